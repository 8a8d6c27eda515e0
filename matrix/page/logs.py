"""A window of lines of a log of any size: found by counting newlines, so a log of 40 MB costs milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from matrix.report.seek import skip_lines
from matrix.report.text import plain, size

WINDOW = 400  # lines that a page shows
_CHUNK = 1 << 20
_WIDTH = 4000  # bytes of a line that are shown


@dataclass(frozen=True, slots=True)
class Window:
    """Lines `first` to `first + len(lines) - 1` of a log that has `total`."""

    first: int
    lines: tuple[str, ...]
    total: int

    @property
    def last(self) -> int:
        """Return the number of the last line shown."""
        return self.first + len(self.lines) - 1


def count_lines(path: Path) -> int:
    """Count the lines of a file; one without a newline at its end counts too."""
    total, last = 0, b"\n"
    with path.open("rb") as f:
        while chunk := f.read(_CHUNK):
            total += chunk.count(b"\n")
            last = chunk[-1:]
    return total + (last != b"\n")


def window(path: Path, around: int) -> Window:
    """Return the lines around a line (1-based; beyond the end means the end)."""
    total = count_lines(path)
    first = max(1, min(around - WINDOW // 4, total - WINDOW + 1))
    with path.open("rb") as f:
        skip_lines(f, first - 1)
        shown: list[str] = []
        while len(shown) < WINDOW and (raw := f.readline(_WIDTH)):
            text, more = plain(raw.decode("utf-8", "replace").rstrip("\r\n")), 0
            while not raw.endswith(b"\n") and (raw := f.readline(1 << 16)):
                more += len(raw)
            shown.append(f"{text} … and {size(more)} more in this line" if more > 1 else text)
    return Window(first, tuple(shown), total)
