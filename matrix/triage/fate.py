"""Did the process that printed an exception die of it, or go on?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal

from matrix.triage.frames.launchers import ended
from matrix.triage.frames.model import Incident
from matrix.triage.lines import Line
from matrix.triage.store import LineStore

Fate = Literal["died", "survived", "unclear"]
LOOK = 60  # lines of the same stream that are looked at
_END = re.compile(
    r"##\[(?:error|group|section)\]|\+{1,3} |\$ |\[Pipeline\]|section_(?:start|end)|={3,} |~~~ |make(?:\[\d+\])?: \*\*\*|ninja: build stopped|Finished: |ERROR: (?:Job failed|script returned)"
    r"|Post job cleanup|Cleaning up orphan|Error: Process completed|npm ERR!|error: Recipe|\^\^\^ \+\+\+|🚨|Killing subprocess|Job (?:failed|succeeded)|user_command|ERROR conda\.cli|srun: |-- Process \d+ terminated"
)
_EXIT = re.compile(
    r"\b(?:exit(?:ed|s|ing)?|return(?:ed)?|rc|failed|status)\b[^\n]{0,30}?(?:code|status|rc|with|=)?[ =:(]*-?[1-9]\d{0,2}\b|\bFAILED\b|\bfailed\b$",
    re.IGNORECASE,
)
_GLOG = re.compile(r"\[?[WEIF]\d{4} ")
_BENIGN = re.compile(r"\b0 (?:errors?|failed|failures?|warnings?)\b|\bno errors?\b|\berrors?[:=] ?0\b", re.IGNORECASE)
HANDLED = re.compile(
    r"\bignor(?:ed|ing|e)\b|\bretry(?:ing)?\b|\bwill retry\b|\bfall(?:s|ing)? ?back\b|fallback|\bcontinu(?:ing|es)\b|\bskipp?(?:ed|ing)\b|\boptional\b|not an error|\brecover(?:ed|ing)\b"
    r"|\battempt \d+(?:/| of )\d+ failed|non-?fatal|harmless|as expected|\bexpected (?:error|failure|exception)|\bcaught\b|\bhandled\b|\bis disabled\b|\busing\b.*\binstead\b|\btry(?:ing)? again\b|\bdefault(?:ing)? to\b",
    re.IGNORECASE,
)


def fate(store: LineStore, incident: Incident) -> Fate:
    """Judge by what the same stream prints next: its end, or lines like those that it printed before."""
    shapes: set[str] | None = None
    last: Line | None = None
    talk = 0  # lines that are no part of the exception's message, as far as one can see
    for number, line in enumerate(_stream(store, incident, incident.end, 1)):
        last = line
        if _ended(line, number):
            return "died" if talk < 3 else "unclear"
        if number < 3 and HANDLED.search(line.body) and line.body[:1] not in " \t":
            return "survived"
        if incident.stream and _GLOG.match(line.text):
            continue  # a rank's C++ side speaks up while it goes down
        if line.level in {"info", "debug", "warning"}:
            return "survived"
        if shapes is None:
            shapes = {_shape(earlier) for earlier in _stream(store, incident, incident.start, -1)}
        if (
            len(line.body) > 12
            and line.body[:1] not in " \t"
            and not line.body.startswith("Traceback")
            and _shape(line) in shapes
        ):
            return "survived"
        talk += line.body[:1] not in " \t"
    if last is None:
        return "died" if incident.end >= store.total - LOOK or store.line(incident.end + 1) is not None else "unclear"
    return "died" if last.no >= store.total - 3 and talk < 20 else "unclear"


def _ended(line: Line, number: int) -> bool:
    if _END.match(line.text) or ended(line) is not None:
        return True
    return (
        number < 3
        and _EXIT.search(line.body) is not None
        and not _BENIGN.search(line.body)
        and not HANDLED.search(line.body)
    )


def before(store: LineStore, incident: Incident) -> Line | None:
    """The line that the same stream printed just before an incident."""
    return next(_stream(store, incident, incident.start, -1), None)


def after(store: LineStore, incident: Incident) -> Line | None:
    """The line that the same stream printed just after an incident."""
    return next(_stream(store, incident, incident.end, 1), None)


def _stream(store: LineStore, incident: Incident, no: int, step: int) -> Iterator[Line]:
    left = LOOK
    for at in range(no + step, no + step * (LOOK * 4), step):
        line = store.line(at)
        if line is None or not left:
            return
        if line.stream == incident.stream and line.body.strip():
            left -= 1
            yield line


def _shape(line: Line) -> str:
    return re.sub(r"[-+]?\d+(?:[.,:]\d+)*(?:e[-+]?\d+)?", "0", line.body)[:70]
