"""Keeps the lines of a log that triage may want to read: all of a small log, the neighbourhood of marks of a large one."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from matrix.triage.lines import Line, clean

WHOLE = 16 << 20  # bytes of marked chunks that are kept whole
HEAD, TAIL = 12 << 20, 12 << 20  # bytes kept of what follows: the first such and the last such


class _Segment:
    __slots__ = ("_rows", "data", "first")

    def __init__(self, first: int, data: bytes) -> None:
        self.first = first
        self.data = data
        self._rows: list[bytes] | None = None

    def rows(self) -> list[bytes]:
        if self._rows is None:
            self._rows = self.data.split(b"\n")
            if self.data.endswith(b"\n"):
                self._rows.pop()
            self.data = b""
        return self._rows


class LineStore:
    """Lines by number. A line that was not kept is None."""

    def __init__(self) -> None:
        self._head: list[_Segment] = []
        self._tail: deque[_Segment] = deque()
        self._used = self._tail_used = 0
        self._starts: list[int] = []
        self._all: list[_Segment] = []
        self._cleaned: dict[int, Line] = {}
        self.iso = False  # each line begins with the runner's ISO time
        self.total = 0  # lines of the log, set by the scan

    @property
    def wants_whole(self) -> bool:
        """True while chunks should be given whole."""
        return self._used < WHOLE

    def add(self, first: int, data: bytes) -> None:
        """Keep lines from number `first` on; call in order of lines."""
        if self._used < WHOLE + HEAD:
            self._head.append(_Segment(first, data))
            self._used += len(data)
            return
        self._tail.append(_Segment(first, data))
        self._tail_used += len(data)
        while self._tail_used > TAIL and len(self._tail) > 1:
            self._tail_used -= len(self._tail.popleft().data)

    def seal(self, total: int) -> None:
        """No more lines come."""
        self.total = total
        self._all = [*self._head, *self._tail]
        self._starts = [s.first for s in self._all]

    def raw(self, no: int) -> bytes | None:
        """The bytes of line `no` without escape codes, or None if it was not kept."""
        at = bisect_right(self._starts, no) - 1
        if at < 0:
            return None
        segment = self._all[at]
        rows = segment.rows()
        if no - segment.first < len(rows):
            return rows[no - segment.first]
        return None

    def line(self, no: int) -> Line | None:
        """The cleaned line `no`, or None if it was not kept."""
        found = self._cleaned.get(no)
        if found is None:
            raw = self.raw(no)
            if raw is None:
                return None
            found = self._cleaned[no] = clean(no, raw, iso=self.iso)
        return found


def keep_windows(store: LineStore, first: int, data: bytes, windows: list[tuple[int, int]]) -> None:
    """Keep the given ranges of lines of one chunk whose first line is `first`."""
    windows.sort()
    merged: list[list[int]] = []
    for low, high in windows:
        if merged and low <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    line, at = first, 0
    for low, high in merged:
        while line < max(low, first) and at < len(data):
            at = data.find(b"\n", at) + 1 or len(data)
            line += 1
        start, number = at, line
        while line <= high and at < len(data):
            at = data.find(b"\n", at) + 1 or len(data)
            line += 1
        if at > start:
            store.add(number, data[start:at])
