"""Losses of all ranks: each as its rank computed it, the merged record, and the mean over ranks beside them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import paddle

from dsv4.align.bits import decimal20
from dsv4.align.record import HEADER, Row
from dsv4.errors import UsageError
from dsv4.parallel.layout import Layout, Share
from dsv4.parallel.transport import Transport

RANK_HEADER = f"{HEADER},rank,reduced_main_loss,reduced_mtp_loss"


@dataclass(frozen=True)
class LocalLoss:
    """Losses of one micro-batch on one rank. Before the last stage there is no main loss."""

    micro: int
    main: float | None
    mtp: float | None
    main_weight: float
    mtp_weight: float
    indexer: float
    balance: float

    def numbers(self) -> list[float]:
        """As a row of numbers, NaN for what is not there."""
        pair = [math.nan if v is None else v for v in (self.main, self.mtp)]
        return [float(self.micro), *pair, self.main_weight, self.mtp_weight, self.indexer, self.balance]

    @classmethod
    def of(cls, numbers: Sequence[float]) -> LocalLoss:
        """Inverse of `numbers`."""
        micro, main, mtp, main_weight, mtp_weight, indexer, balance = numbers
        pair = [None if math.isnan(v) else v for v in (main, mtp)]
        return cls(int(micro), pair[0], pair[1], main_weight, mtp_weight, indexer, balance)


@dataclass(frozen=True)
class RankRow:
    """A row of a rank's own record: its loss, unreduced, and the mean over the ranks that it is averaged with."""

    rank: int
    row: Row
    reduced_main: float
    reduced_mtp: float | None

    def line(self) -> str:
        """Write as CSV, without a line end."""
        mtp = "" if self.reduced_mtp is None else decimal20(self.reduced_mtp)
        return f"{self.row.line()},{self.rank},{decimal20(self.reduced_main)},{mtp}"


@dataclass(frozen=True)
class Merged:
    """A step over all ranks."""

    rows: tuple[Row, ...]  # one a micro-batch
    by_rank: tuple[RankRow, ...]
    indexer_loss: float
    balance_loss: float

    def of_rank(self, rank: int) -> tuple[RankRow, ...]:
        """Rows of one rank; none before the last stage."""
        return tuple(r for r in self.by_rank if r.rank == rank)


def merge(step: int, losses: Sequence[LocalLoss], share: Share, layout: Layout, world: Transport) -> Merged:
    """Exchange a step's losses over all ranks and put them together, equal on every rank."""
    table = paddle.to_tensor([loss.numbers() for loss in losses], dtype="float64")
    by_rank = [[LocalLoss.of(row) for row in t.tolist()] for t in world.all_gather(table)]
    return merge_losses(step, by_rank, share, layout)


def merge_losses(step: int, by_rank: Sequence[Sequence[LocalLoss]], share: Share, layout: Layout) -> Merged:
    """Pure part of `merge`.

    A micro-batch that some rank computed whole is recorded as that rank computed it, the lowest where several did.
    One whose rows were divided is recorded as the mean over its rows, which no single rank has.
    """
    first_of_last = layout.world - layout.per_stage
    last = [(r, loss) for r, losses in enumerate(by_rank) for loss in losses if r >= first_of_last]
    same: dict[int, list[tuple[int, LocalLoss]]] = {}
    for rank, loss in last:
        same.setdefault(loss.micro, []).append((rank, loss))
    rows = []
    for micro, found in sorted(same.items()):
        main, mtp = _mean([loss for _, loss in found]) if share.rows > 1 else (found[0][1].main, found[0][1].mtp)
        assert main is not None
        rows.append(Row(step, micro, main, mtp))
    own_means: dict[int, tuple[float, float | None]] = {}
    if share.own:  # the mean is over ranks, each with its own data, at the same place of the step
        count = len(by_rank[first_of_last])
        for j in range(count):
            own_means[j] = _mean([by_rank[r][j] for r in range(first_of_last, layout.world)])
    rank_rows = []
    for rank, loss in last:
        assert loss.main is not None
        mean = own_means[loss.micro // share.micros] if share.own else _mean([f for _, f in same[loss.micro]])
        rank_rows.append(RankRow(rank, Row(step, loss.micro, loss.main, loss.mtp), *mean))
    everything = [loss for losses in by_rank for loss in losses]
    per_stage = len(everything) / layout.pipeline
    return Merged(
        tuple(rows),
        tuple(rank_rows),
        sum(loss.indexer for loss in everything) / per_stage,
        sum(loss.balance for loss in everything) / per_stage,
    )


def _mean(losses: Sequence[LocalLoss]) -> tuple[float, float | None]:
    main = [loss.main * loss.main_weight for loss in losses if loss.main is not None]
    mtp = [loss.mtp * loss.mtp_weight for loss in losses if loss.mtp is not None]
    return sum(main) / len(main), sum(mtp) / len(mtp) if mtp else None


# -- a rank's own record -----------------------------------------------------------------------------------------------


def rank_record(record: Path, rank: int) -> Path:
    """Where a rank's own record stands: `run.csv` → `run.rank3.csv`."""
    return record.with_name(f"{record.stem}.rank{rank}{record.suffix}")


def cut_rank_records(record: Path, finished_steps: int) -> None:
    """Cut all ranks' records back to a step; a run that begins has none."""
    for path in record.parent.glob(f"{record.stem}.rank*{record.suffix}"):
        lines = path.read_text(encoding="utf-8").splitlines() if finished_steps else []
        kept = [
            line for line in lines[1:] if line.count(",") == RANK_HEADER.count(",") and _step(line) <= finished_steps
        ]
        if not kept:
            path.unlink()
            continue
        partial = path.with_name(path.name + ".partial")
        partial.write_text("\n".join([RANK_HEADER, *kept]) + "\n")
        partial.replace(path)


def _step(line: str) -> float:
    head = line.partition(",")[0]
    return int(head) if head.isdigit() else math.inf


class RankWriter:
    """Appends a rank's rows to its own record."""

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            begin = not path.exists()
            self._file = path.open("a", encoding="utf-8")
        except OSError as e:
            raise UsageError(f"{path}: {e.strerror}", "name a record that can be written") from None
        if begin:
            self._file.write(RANK_HEADER + "\n")

    def write(self, rows: Iterable[RankRow]) -> None:
        """Append the rows of a step in one write."""
        self._file.write("".join(row.line() + "\n" for row in rows))
        self._file.flush()

    def sync(self) -> None:
        """Force the record to disk."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()
