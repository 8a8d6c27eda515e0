"""Where a job hung, from the stacks that its supervisor wrote to the log below the word that it reached its limit."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from matrix.report.seek import skip_lines

_MARK = re.compile(r"^(?:\S+Z )?\[matrix\] ?")
_PROCESS = re.compile(r"Python stacks of process (\d+)")
# py-spy: `    wait (threading.py:320)`, innermost first; faulthandler: `  File "/x/a.py", line 3 in wait`, likewise.
_FRAME = re.compile(
    r'^ +(?P<name>\S+) \((?P<file>[^()]+):(?P<line>\d+)\)|^ +File "(?P<f>[^"]+)", line (?P<l>\d+) in (?P<n>\S+)'
)
_MOST_LINES, _MOST = 2000, 3


def where(log: Path, remark: int | None) -> str:
    """Return where the processes of a job were, as text to add to its cause; empty where no stack tells."""
    if remark is None:
        return ""
    try:
        with log.open("rb") as f:
            skip_lines(f, remark)
            lines = [raw.decode(errors="replace") for raw in itertools.islice(f, _MOST_LINES)]
    except OSError:
        return ""
    said = list(dict.fromkeys(frame for _, frame in frames(lines)))
    return f"; it was in {', '.join(said[:_MOST])}" if said else ""


def frames(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each process and the innermost frame of it that is not Python's own library, else the innermost one."""
    process, inner, own = "", "", ""
    for raw in lines:
        mark = _MARK.match(raw)
        if mark is None:
            break  # the job's own words again
        line = raw[mark.end() :].rstrip()
        if found := _PROCESS.search(line):
            if own or inner:
                yield process, own or inner
            process, inner, own = found[1], "", ""
        elif process and (found := _FRAME.match(line)):
            file, number, name = found["file"] or found["f"], found["line"] or found["l"], found["name"] or found["n"]
            shown = f"{name} ({file}:{number})"
            inner = inner or shown
            if not own and not _of_python(file):
                own = shown
    if own or inner:
        yield process, own or inner


def _of_python(file: str) -> bool:
    if file.startswith("<frozen") or "/lib/python3" in file:
        return True
    return file.partition("/")[0].removesuffix(".py") in sys.stdlib_module_names
