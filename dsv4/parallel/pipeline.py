"""1F1B over pipeline stages: each stage keeps at most as many micro-batches in flight as there are stages after it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

import paddle

from dsv4.parallel.groups import Groups
from dsv4.parallel.layout import Place
from dsv4.parallel.transport import Transport


class StageWork(Protocol):
    """What a stage does with one micro-batch, known by its number."""

    def forward(self, micro: int, X_BSnD: paddle.Tensor | None) -> paddle.Tensor | None:
        """Streams to the next stage, None from the last; streams from the stage before, None at the first."""

    def backward(self, micro: int, dX_BSnD: paddle.Tensor | None) -> paddle.Tensor | None:
        """Gradient to the stage before, None from the first; gradient from the next stage, None at the last."""

    def streams(self, micro: int) -> paddle.Tensor:
        """Return a tensor of the shape and dtype that travel between stages."""


class Schedule:
    """One rank's order of work, and its messages to both neighbours.

    A send waits for its receive, so where a stage and the next have something for each other at one time, the even
    stage sends first and the odd one receives first.
    """

    def __init__(self, place: Place, groups: Groups) -> None:
        self._place = place
        self._before, self._after = groups.before, groups.after
        self._even = place.stage % 2 == 0

    def run(self, work: StageWork, micros: int) -> None:
        """Do forward and backward of all micro-batches of a step."""
        ahead = min(self._place.layout.pipeline - 1 - self._place.stage, micros)
        for micro in range(ahead):
            self._send_after(work.forward(micro, self._receive_before(work, micro)))
        steady = micros - ahead
        X = self._receive_before(work, ahead) if steady else None
        for i in range(steady):
            out = work.forward(ahead + i, X)
            dX = work.backward(i, self._swap_after(out, work.streams(i)))
            more = i + 1 < steady
            X = self._swap_before(dX, work.streams(i)) if more else None
            if not more:
                self._send_before(dX)
        for micro in range(steady, micros):
            dX = work.backward(micro, self._receive_after(work, micro))
            self._send_before(dX)

    # Stage and next stage form a group of two: this stage is rank 0 of `after` and rank 1 of `before`.

    def _receive_before(self, work: StageWork, micro: int) -> paddle.Tensor | None:
        return None if self._place.first else self._before.receive(work.streams(micro), 0)

    def _receive_after(self, work: StageWork, micro: int) -> paddle.Tensor | None:
        return None if self._place.last else self._after.receive(work.streams(micro), 1)

    def _send_after(self, X: paddle.Tensor | None) -> None:
        if X is not None:
            self._after.send(X, 1)

    def _send_before(self, dX: paddle.Tensor | None) -> None:
        if dX is not None:
            self._before.send(dX, 0)

    def _swap_after(self, X: paddle.Tensor | None, like: paddle.Tensor) -> paddle.Tensor | None:
        return None if X is None else _swap(self._after, X, 1, like, send_first=self._even)

    def _swap_before(self, dX: paddle.Tensor | None, like: paddle.Tensor) -> paddle.Tensor | None:
        return None if dX is None else _swap(self._before, dX, 0, like, send_first=self._even)


def _swap(group: Transport, x: paddle.Tensor, peer: int, like: paddle.Tensor, *, send_first: bool) -> paddle.Tensor:
    if send_first:
        group.send(x, peer)
        return group.receive(like, peer)
    got = group.receive(like, peer)
    group.send(x, peer)
    return got


def forward_only(
    place: Place, groups: Groups, like: paddle.Tensor, forward: Callable[[paddle.Tensor | None], paddle.Tensor | None]
) -> None:
    """One micro-batch through all stages without gradients, for evaluation."""
    X = None if place.first else groups.before.receive(like, 0)
    out = forward(X)
    if out is not None:
        groups.after.send(out, 1)


class InFlight:
    """Micro-batches of a stage between forward and backward, oldest first."""

    def __init__(self) -> None:
        self._kept: deque[tuple[paddle.Tensor | None, paddle.Tensor | None, paddle.Tensor]] = deque()

    def put(self, X_in: paddle.Tensor | None, X_out: paddle.Tensor | None, objective: paddle.Tensor) -> None:
        """Keep what backward needs."""
        self._kept.append((X_in, X_out, objective))

    def backward(self, dX_out: paddle.Tensor | None) -> paddle.Tensor | None:
        """Backward of the oldest: from its own losses and from the gradient of what it sent."""
        X_in, X_out, objective = self._kept.popleft()
        roots: list[paddle.Tensor] = []
        seeds: list[paddle.Tensor | None] = []
        if X_out is not None:
            roots.append(X_out)
            seeds.append(dX_out)
        if not objective.stop_gradient:
            roots.append(objective)
            seeds.append(None)
        paddle.autograd.backward(roots, seeds)
        return None if X_in is None else X_in.grad
