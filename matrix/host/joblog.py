"""The log of an attempt: every line of the job with the time at which it began, and the runner's own remarks.

Nothing of the job's output is changed or left out: without the stamps, the log is what the job wrote.
"""

from __future__ import annotations

import os
import time

REMARK = "[matrix] "  # begins every line that the runner adds


def stamp(now: float) -> bytes:
    """Return the UTC time as it stands before a line, such as `2026-12-01T09:30:11.123456Z `."""
    return b"%s.%06dZ " % (time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)).encode(), int(now % 1 * 1e6))


class JobLog:
    """An open log. Counts its lines, so that a remark can be pointed at."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._at_start = True
        self.problem: str | None = None  # why the last of it could not be written, such as a full disk
        self.lines = 0  # complete ones

    def write(self, chunk: bytes) -> None:
        """Add output of the job. A line that comes in pieces is stamped once, when it begins."""
        if not chunk:
            return
        mark = stamp(time.time())
        closed = chunk.endswith(b"\n")
        body = (chunk[:-1] if closed else chunk).replace(b"\n", b"\n" + mark)
        self._write((mark if self._at_start else b"") + body + (b"\n" if closed else b""))
        self.lines += chunk.count(b"\n")
        self._at_start = closed

    def remark(self, text: str) -> int:
        """Add lines of the runner, and return the number of the first of them."""
        if not self._at_start:
            self.write(b"\n")
        first = self.lines + 1
        self.write("".join(f"{REMARK}{line}\n" for line in text.splitlines()).encode(errors="replace"))
        return first

    def _write(self, data: bytes) -> None:
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError as e:  # the job goes on, and the run says that its log is not whole
            self.problem = e.strerror
