"""Write a loss record, row by row, so that a killed run can be continued."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from dsv4.align.record import HEADER, Row
from dsv4.errors import UsageError


class RecordWriter:
    """Appends whole steps. A kill can cut at most the rows of the step being written, which a resume drops."""

    def __init__(self, path: Path, *, finished_steps: int, accumulate: int) -> None:
        """Begin a record, or cut an existing one back to `finished_steps` and go on.

        Raises UsageError when the record to be continued does not hold every micro-batch up to there.
        """
        kept: list[str] = []
        if finished_steps:
            kept = _rows_up_to(path, finished_steps, accumulate)
        partial = path.with_name(path.name + ".partial")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text("\n".join([HEADER, *kept]) + "\n")
            partial.replace(path)
            self._file = path.open("a", encoding="utf-8")
        except OSError as e:
            raise UsageError(f"{path}: {e.strerror}", "name a record that can be written") from None

    def write(self, rows: Iterable[Row]) -> None:
        """Append the rows of one step in one write."""
        self._file.write("".join(row.line() + "\n" for row in rows))
        self._file.flush()

    def sync(self) -> None:
        """Force the record to disk: before a checkpoint that relies on it."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _rows_up_to(path: Path, steps: int, accumulate: int) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}", "name the record of the run that is resumed") from None
    wanted = [(step, micro) for step in range(1, steps + 1) for micro in range(accumulate)]
    kept = lines[1 : 1 + len(wanted)]
    if lines[:1] != [HEADER]:
        raise UsageError(f"{path}:1: not the header of a record", "name the record of the run that is resumed")
    for number, (key, line) in enumerate(zip(wanted, kept, strict=False), 2):
        if line.split(",")[:2] != [str(key[0]), str(key[1])]:
            raise UsageError(f"{path}:{number}: not step {key[0]} micro {key[1]}", "name the record of this run")
    if len(kept) < len(wanted):
        step, micro = wanted[len(kept)]
        raise UsageError(
            f"{path}: ends before step {step} micro {micro}; the checkpoint is at step {steps}",
            "resume from an earlier checkpoint, or record to a new file without --resume",
        )
    return kept
