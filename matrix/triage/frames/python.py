"""Python tracebacks: whole again when ranks interleave, chained, grouped, nested in another program's message."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from matrix.triage.frames.model import Incident
from matrix.triage.lines import Line
from matrix.triage.store import LineStore

LIMIT = 1200  # lines walked for one traceback
_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line (?P<line>\d+)(?:,)?(?: in (?P<function>.+))?')
EXCEPTION = re.compile(r"(?P<name>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:\([\w.]+\))?)(?:\s*:(?:\s+|$)(?P<message>.*))?$")
CHAIN = re.compile(r"During handling of the above exception|The above exception was the direct cause")
_LEAD = re.compile(r"^(?:E\s{2,3}|[\s|+]*)")
# Exceptions that only report another process's or sub-exception's end.
WRAPPERS = frozenset(
    [
        "ChildFailedError",
        "ProcessRaisedException",
        "ProcessExitedException",
        "RemoteTraceback",
        "_RemoteTraceback",
        "CalledProcessError",
        "RayTaskError",
        "BrokenProcessPool",
        "SystemExit",
        "Exit",
        "ExceptionGroup",
        "BaseExceptionGroup",
        "SignalException",
        "WorkerCrashedError",
        "RayActorError",
        "ActorDiedError",
        "SubprocessError",
        "ClickException",
        "SpawnException",
        "UserCodeException",
        "ExecutionError",
    ]
)


@dataclass(slots=True)
class Traceback:
    """One traceback: header, frames, the exception's line and its message."""

    start: int
    end: int
    stream: str
    rank: int | None
    lead: str
    frames: list[tuple[str, int, str]] = field(default_factory=list)
    exception: Line | None = None
    name: str = ""
    ignored: bool = False  # printed by the interpreter for an exception that it dropped


def parse(store: LineStore, start: int) -> Traceback | None:
    """Parse the traceback whose header is on line `start`."""
    head = store.line(start)
    if head is None:
        return None
    if "+ Exception Group Traceback" in head.body:
        return _group(store, head)
    at = head.body.find("Traceback")
    lead = head.body[: max(at, 0)]
    if lead.strip(" \t|+E"):
        lead = ""
    lead = lead.replace("+", "|")
    found = Traceback(start, start, head.stream, head.rank, lead)
    strange = 0
    for no in range(start + 1, start + LIMIT):
        line = store.line(no)
        if line is None:
            break
        if line.stream != head.stream:
            strange += 1
            if strange > 600:
                break
            continue
        body = _unlead(line.body, lead)
        if body is None:
            break
        if not body.strip():
            if found.frames:
                continue
            break
        if body[0] in " \t":
            if frame := _FRAME.match(body):
                found.frames.append((frame["file"], int(frame["line"]), frame["function"] or ""))
            found.end = no
            continue
        if body.startswith("Traceback") or CHAIN.match(body):
            break
        match = EXCEPTION.match(body)
        if match and (found.frames or "Error" in body or "Exception" in body):
            found.exception, found.name, found.end = line, match["name"].split("(")[0].rsplit(".", 1)[-1], no
        break
    return found


def _group(store: LineStore, head: Line) -> Traceback:
    """An exception group: its first member without members of its own is what happened."""
    found = Traceback(head.no, head.no, head.stream, head.rank, "  | ")
    for no in range(head.no + 1, head.no + LIMIT):
        line = store.line(no)
        if line is None:
            break
        if line.stream != head.stream:
            continue
        tree = _TREE.match(line.body)
        if tree is None:
            break
        found.end = no
        body = tree["body"] or ""
        if frame := _FRAME.match(body):
            if found.exception is None:
                found.frames.append((frame["file"], int(frame["line"]), frame["function"] or ""))
            continue
        match = (
            None
            if body[:1] in {" ", ""} or body.startswith(("Traceback", "Exception Group"))
            else EXCEPTION.match(body)
        )
        if match and found.exception is None and not _MEMBERS.search(body):
            found.exception, found.name = line._replace(body=body), match["name"].rsplit(".", 1)[-1]
    return found


_TREE = re.compile(r"\s*[|+](?:[-+]+ [\d.]+ [-+]+| ?(?P<body>.*))$")
_MEMBERS = re.compile(r"\(\d+ sub-exceptions?\)$")


def _unlead(body: str, lead: str) -> str | None:
    if not lead:
        return body
    if body.startswith(lead):
        return body[len(lead) :]
    stripped = _LEAD.sub("", body)
    if "|" in lead and "|" not in body:
        return None
    return stripped if stripped != body or not lead.strip() else None


def message(store: LineStore, traceback: Traceback, limit: int = 30) -> list[Line]:
    """The lines after an exception's line that belong to its message, as far as that can be told."""
    found: list[Line] = []
    blank = 0
    for no in range(traceback.end + 1, traceback.end + 4 * limit):
        line = store.line(no)
        if line is None or len(found) >= limit:
            break
        if line.stream != traceback.stream:
            continue
        if not line.body.strip():
            blank += 1
            if blank > 1:
                break
            continue
        if line.level or _FOREIGN.match(line.text) or CHAIN.match(line.body):
            break
        found.append(line)
    return found


_FOREIGN = re.compile(r"##\[|\+ |\$ |\[Pipeline\]|section_|Traceback |make|Finished: |=== |Exception ignored|::\w+")


def incidents(store: LineStore, starts: list[int]) -> list[Incident]:
    """One incident for each chain of tracebacks; `starts` are the lines with a header, in order."""
    tracebacks: list[Traceback] = []
    seen: dict[str, int] = {}
    for start in starts:
        found = parse(store, start)
        if found is None or (found.exception is None and not found.frames):
            continue
        found.ignored = _ignored(store, found)
        tracebacks.append(found)
    chains: list[list[Traceback]] = []
    for found in tracebacks:
        last = seen.get(found.stream)
        if last is not None and _chained(store, found, chains[last][-1]):
            chains[last].append(found)
            continue
        seen[found.stream] = len(chains)
        chains.append([found])
    return [made for chain in chains if (made := _incident(store, chain)) is not None]


def _ignored(store: LineStore, found: Traceback) -> bool:
    before = store.line(found.start - 1)
    return before is not None and before.stream == found.stream and before.body.startswith("Exception ignored")


def _chained(store: LineStore, found: Traceback, previous: Traceback) -> bool:
    """True if between the two stands the interpreter's sentence about chaining."""
    for no in range(found.start - 1, max(previous.end, found.start - 60), -1):
        line = store.line(no)
        if line is None:
            return False
        if line.stream != found.stream:
            continue
        body = line.body.strip(" |+E\t\"'")
        if body:
            return CHAIN.search(body) is not None
    return False


def _bare(store: LineStore, first: Traceback) -> Line | None:
    """The exception above a chain's first traceback that was never raised itself, so that it has no traceback."""
    linked = False
    for no in range(first.start - 1, max(first.start - 14, 0), -1):
        line = store.line(no)
        if line is None or _FOREIGN.match(line.text):
            return None
        if line.stream != first.stream:
            continue
        if CHAIN.search(line.body):
            linked = True
        elif linked and (match := EXCEPTION.match(line.body)) and re.search(r"Error|Exception", match["name"]):
            return line
    return None


def _native_summary(store: LineStore, found: Traceback) -> list[Line]:
    """What Paddle says below a C++ stack, of an exception whose own message is empty: the sentence first, then its name."""
    said = found.exception
    if said is None or not said.body.rstrip().endswith(":"):
        return []
    lines: list[Line] = []
    opened = False
    for no in range(said.no + 1, said.no + _NATIVE_STACK):
        line = store.line(no)
        if line is None:
            break
        body = line.body.strip()
        if line.stream != found.stream or not body or not body.strip("-"):
            continue
        if not opened and not lines and "C++ Traceback" not in body and no < said.no + 6 and not _NATIVE.match(body):
            return []
        if opened:
            lines.append(line)
            if len(lines) == 2:
                break
        opened = opened or body.startswith("Error Message Summary")
    return lines[::-1] if len(lines) == 2 and lines[0].body.rstrip().endswith(":") else lines[:1]


_NATIVE_STACK = 150  # lines that a C++ stack may take
_NATIVE = re.compile(r"\d+ +\S|Not support stack|No stack trace")


def _incident(store: LineStore, chain: list[Traceback]) -> Incident | None:
    named = [t for t in chain if t.exception is not None]
    first, last = chain[0], chain[-1]
    if not named:
        head = store.line(last.start)
        if head is None:
            return None
        return Incident(
            "python", last.start, first.start, last.end, head.text, head.body, [head], first.stream, first.rank,
            frames=last.frames, fatal=0.4,
        )  # fmt: skip
    inner = next((t for t in named if t.name not in WRAPPERS), named[0])
    key = inner.exception
    assert key is not None
    told = [t for t in named if t.name not in WRAPPERS] or [inner]
    keys = [t.exception for t in told if t.exception is not None]
    native = _native_summary(store, inner)
    if native:
        key, keys = native[0], [*native, *keys]
    bare = _bare(store, first)
    if bare is not None:
        keys.append(bare)
    made = Incident(
        "python",
        key.no,
        bare.no if bare else first.start,
        last.end,
        key.text,
        _unlead(key.body, inner.lead) or key.body,
        keys,
    )
    made.more = [*([] for _ in native), *(message(store, t) for t in told)]
    made.end = max(made.end, *(line.no for line in native)) if native else made.end
    made.stream, made.rank, made.exception, made.frames = first.stream, first.rank, inner.name, inner.frames
    made.fatal, made.handled = 0.9, last.ignored
    made.wrapper = inner.name in WRAPPERS or named[-1].name == "SystemExit"
    return made
