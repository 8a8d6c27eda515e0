"""Lines of a log by number, read again in one bounded pass: for explanations and pages."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from matrix.triage.lines import begins_with_time, clean
from matrix.triage.model import LogReport
from matrix.triage.read import chunks, open_log

MAX_LINES = 20_000  # lines of one log that a page shows


class Shown(NamedTuple):
    """A line as it is shown, or a fold: `text` None stands for the lines `no` to `last` that are left out."""

    no: int
    last: int
    text: str | None


def source(report: LogReport, file: str | None) -> str:
    """Path of the log that a cause's line is in."""
    return str(Path(report.path) / file) if file else report.path


def around(path: str, ranges: list[tuple[int, int]]) -> list[Shown]:
    """The given ranges of a log's lines, with folds for what lies between, before and after them."""
    wanted = _merged(ranges)
    found: list[Shown] = []
    at = last = shown_to = 0
    iso = False
    with open_log(path) as stream:
        for chunk in chunks(stream):
            if chunk.line == 1:
                iso = begins_with_time(chunk.data[:40_000].split(b"\n")[:60])
            end = chunk.line + chunk.data.count(b"\n") - chunk.data.endswith(b"\n")
            rows: list[bytes] | None = None
            while at < len(wanted) and wanted[at][0] <= end:
                low, high = max(wanted[at][0], chunk.line), min(wanted[at][1], end)
                rows = rows if rows is not None else chunk.data.split(b"\n")
                if low > shown_to + 1:
                    found.append(Shown(shown_to + 1, low - 1, None))
                numbers = range(max(low, shown_to + 1), high + 1)
                found.extend(Shown(no, no, clean(no, rows[no - chunk.line], iso=iso).text) for no in numbers)
                shown_to = max(shown_to, high)
                if wanted[at][1] > end:
                    break
                at += 1
            last = max(last, end)
    if last > shown_to:
        found.append(Shown(shown_to + 1, last, None))
    return found


def _merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[list[int]] = []
    total = 0
    for low, high in sorted((max(a, 1), b) for a, b in ranges if b >= 1):
        if total > MAX_LINES:
            break
        total += high - low + 1
        if merged and low <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    return [(a, b) for a, b in merged]
