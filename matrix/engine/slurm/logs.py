"""The log of an attempt on a cluster: the nodes' logs joined, and what the run adds when they could not."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from matrix.engine.slurm.files import Exchange
from matrix.host.joblog import JobLog

_STAMP = 28  # bytes of `2026-12-01T09:30:11.123456Z `


def merge_logs(exchange: Exchange, nodes: int, log: Path) -> None:
    """Join the nodes' logs in the order of their stamps; behind the stamp stands the node, as `srun --label` has it."""
    log.parent.mkdir(parents=True, exist_ok=True)
    half = log.with_name(f".{log.name}.merging")
    with contextlib.ExitStack() as stack, half.open("wb") as f:
        streams = [
            _lines(stack.enter_context(path.open("rb")), rank)
            for rank in range(nodes)
            if (path := exchange.node_log(rank)).exists()
        ]
        for _, rank, line in heapq.merge(*streams, key=lambda item: item[:2]):
            f.write(line[:_STAMP] + b"%d: " % rank + line[_STAMP:])
    half.replace(log)


def _lines(file: BinaryIO, rank: int) -> Iterator[tuple[bytes, int, bytes]]:
    for line in file:
        yield line[:_STAMP], rank, line if line.endswith(b"\n") else line + b"\n"


def remark(log: Path, text: str) -> int:
    """Add a remark of the run at the end of a log that nobody writes any more; return its line."""
    lines, last = 0, b"\n"
    with contextlib.suppress(FileNotFoundError), log.open("rb") as f:
        for last in f:  # noqa: B007 -- the last one is wanted after the loop
            lines += 1
    if not last.endswith(b"\n"):
        with log.open("ab") as f:
            f.write(b"\n")
    return lines + JobLog(str(log)).remark(text)
