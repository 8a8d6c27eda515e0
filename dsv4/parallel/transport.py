"""Moving tensors between the ranks of a group: one small interface, native calls where the back end has them.

Paddle's gloo has neither all-to-all nor reduce-scatter. Two of its rules decide what stands here: a message matches by
the count of operations that both ranks have done on the group, and a send waits for its receive. So all ranks of a
group do the same number of operations in the same order, and of two ranks that exchange, the lower sends first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import paddle

Table = Sequence[Sequence[int]]
"""Rows of an exchange: table[i][j] go from rank i to rank j. Every rank knows all of it, so all choose one way."""


class Transport(Protocol):
    """What a back end gives; `size` ranks, this one is `rank`. `sent` counts the bytes that left this rank."""

    rank: int
    size: int
    sent: int

    def all_gather(self, x: paddle.Tensor) -> list[paddle.Tensor]:
        """Tensors of all ranks in their order; shapes must be equal."""

    def all_to_all(self, x: paddle.Tensor, table: Table) -> paddle.Tensor:
        """Rows of x, ordered by destination, go out; returns what came in, ordered by source."""

    def send(self, x: paddle.Tensor, to: int) -> None:
        """Send to one rank of the group."""

    def receive(self, like: paddle.Tensor, source: int) -> paddle.Tensor:
        """Receive from one rank a tensor of the shape and dtype of `like`."""


class Alone:
    """A group of one."""

    rank, size, sent = 0, 1, 0

    def all_gather(self, x: paddle.Tensor) -> list[paddle.Tensor]:
        """Return x itself."""
        return [x]

    def all_to_all(self, x: paddle.Tensor, table: Table) -> paddle.Tensor:  # noqa: ARG002
        """Return x itself."""
        return x

    def send(self, x: paddle.Tensor, to: int) -> None:  # noqa: ARG002
        """There is nobody to send to."""
        raise AssertionError

    def receive(self, like: paddle.Tensor, source: int) -> paddle.Tensor:  # noqa: ARG002
        """There is nobody to receive from."""
        raise AssertionError


class GlooTransport:
    """Gloo on the CPU: all-gather and pairwise messages."""

    # Up to so many bytes on each rank an all-gather is faster than the exchanges, though it moves more.
    GATHER_BYTES = 1 << 20

    def __init__(self, group: Any, rank: int, size: int) -> None:
        self._group, self.rank, self.size, self.sent = group, rank, size, 0

    def all_gather(self, x: paddle.Tensor) -> list[paddle.Tensor]:
        """One native all-gather."""
        out = paddle.empty([self.size, *x.shape], x.dtype)
        self._group.all_gather_into_tensor(out, x.contiguous(), True)
        self.sent += nbytes(x) * (self.size - 1)
        return [out[i] for i in range(self.size)]

    def all_to_all(self, x: paddle.Tensor, table: Table) -> paddle.Tensor:
        """By pairwise exchange, or by all-gather if that is less work or the size is no power of two."""
        longest = max(1, *(sum(row) for row in table))
        gathered = longest * self.size * math.prod(x.shape[1:]) * x.element_size()
        if self.size & (self.size - 1) or gathered <= self.GATHER_BYTES:
            return self._by_gather(x, table, longest)
        return self._by_pairs(x, table)

    def _by_pairs(self, x: paddle.Tensor, table: Table) -> paddle.Tensor:
        """In round s every rank exchanges with rank XOR s."""
        parts = split_rows(x, table[self.rank])
        got = list(parts)
        for step in range(1, self.size):
            peer = self.rank ^ step
            # An empty part still sends one row: the count of operations must not depend on the data.
            mine = parts[peer] if parts[peer].shape[0] else paddle.zeros([1, *x.shape[1:]], x.dtype)
            rows = table[peer][self.rank]
            like = paddle.empty([max(1, rows), *x.shape[1:]], x.dtype)
            if self.rank < peer:
                self.send(mine, peer)
                theirs = self.receive(like, peer)
            else:
                theirs = self.receive(like, peer)
                self.send(mine, peer)
            got[peer] = theirs[:rows]
        return paddle.concat(got)

    def _by_gather(self, x: paddle.Tensor, table: Table, longest: int) -> paddle.Tensor:
        """Everyone gets everything, padded to the longest, and keeps its own part."""
        missing = longest - x.shape[0]
        padded = paddle.concat([x, paddle.zeros([missing, *x.shape[1:]], x.dtype)]) if missing else x
        kept = []
        for counts, rows in zip(table, self.all_gather(padded), strict=True):
            start = sum(counts[: self.rank])
            kept.append(rows[start : start + counts[self.rank]])
        return paddle.concat(kept)

    def send(self, x: paddle.Tensor, to: int) -> None:
        """Return when the other side has received."""
        self._group.send(x.contiguous(), to, True)
        self.sent += nbytes(x)

    def receive(self, like: paddle.Tensor, source: int) -> paddle.Tensor:
        """Wait until the other side sends."""
        out = paddle.empty(like.shape, like.dtype)
        self._group.recv(out, source, True)
        return out


class NativeTransport:
    """A back end that has all calls, such as NCCL, by Paddle's own groups. Not run where only the CPU build is."""

    def __init__(self, group: Any, rank: int, size: int) -> None:
        self._group, self.rank, self.size, self.sent = group, rank, size, 0

    def all_gather(self, x: paddle.Tensor) -> list[paddle.Tensor]:
        """One native all-gather."""
        out: list[paddle.Tensor] = []
        paddle.distributed.all_gather(out, x, group=self._group)
        self.sent += nbytes(x) * (self.size - 1)
        return out

    def all_to_all(self, x: paddle.Tensor, table: Table) -> paddle.Tensor:
        """One native all-to-all with uneven parts."""
        send, receive = list(table[self.rank]), [row[self.rank] for row in table]
        out = paddle.empty([sum(receive), *x.shape[1:]], x.dtype)
        paddle.distributed.alltoall_single(out, x, in_split_sizes=send, out_split_sizes=receive, group=self._group)
        self.sent += nbytes(x)
        return out

    def send(self, x: paddle.Tensor, to: int) -> None:
        """Send to a rank of the group."""
        paddle.distributed.send(x, self._group.ranks[to], group=self._group)
        self.sent += nbytes(x)

    def receive(self, like: paddle.Tensor, source: int) -> paddle.Tensor:
        """Receive from a rank of the group."""
        out = paddle.empty(like.shape, like.dtype)
        paddle.distributed.recv(out, self._group.ranks[source], group=self._group)
        return out


def nbytes(x: paddle.Tensor) -> int:
    """Bytes of a tensor's elements."""
    return int(x.numel()) * int(x.element_size())


def split_rows(x: paddle.Tensor, counts: Sequence[int]) -> list[paddle.Tensor]:
    """Cut the first axis into pieces of the given lengths."""
    parts, start = [], 0
    for count in counts:
        parts.append(x[start : start + count])
        start += count
    return parts
