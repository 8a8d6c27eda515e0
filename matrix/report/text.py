"""Makes the text of strangers (logs, test ids, job names) safe for a terminal, for XML and for a line."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# Control characters but for tab and newline; marks that reorder what a reader sees; halves of characters.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\u200e\u200f\ufeff\ud800-\udfff\ufffe\uffff]"
)


def plain(text: str) -> str:
    r"""Return text that can do nothing to a terminal and is valid in XML; tabs and newlines stay.

    A carriage return, with which progress bars begin their line again, becomes a sign.

    >>> plain("\x1b[31mred\x1b[0m\x07 \ud800"), plain("50 %\r100 %\r\n")
    ('red� �', '50 %⏎100 %\n')
    """
    text = _ANSI.sub("", text.replace("\r\n", "\n"))
    return _UNSAFE.sub("\ufffd", text.replace("\r", "⏎"))


def one_line(text: str, limit: int = 300) -> str:
    """Return text as one line of at most `limit` characters."""
    line = " ".join(plain(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def duration(seconds: float) -> str:
    """Write a duration for people.

    >>> duration(0.4), duration(1), duration(95), duration(7300)
    ('0.4s', '1s', '1m35s', '2h01m')
    """
    if seconds < 10 and seconds != round(seconds):  # records have whole seconds: no tenths that nobody measured
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    return f"{whole // 60}m{whole % 60:02d}s" if whole < 3600 else f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def when(iso: str) -> str:
    """Write a time of a record for people; what is none stays as it is.

    >>> when("2026-12-01T09:30:11+00:00"), when("2026-12-01T17:30:11.5+08:00"), when("soon")
    ('2026-12-01 09:30:11 UTC', '2026-12-01 09:30:11 UTC', 'soon')
    """
    try:
        return datetime.fromisoformat(iso).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except ValueError:
        return iso


def size(count: float) -> str:
    """Write a number of bytes for people.

    >>> size(2048), size(3 << 30)
    ('2.0 KiB', '3.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def count(number: int, thing: str) -> str:
    """Write a number of things.

    >>> count(1, "job"), count(2, "job")
    ('1 job', '2 jobs')
    """
    return f"{number} {thing}" + ("" if number == 1 else "s")
