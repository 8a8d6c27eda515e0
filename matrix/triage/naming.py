"""Which rule names an incident: its exception's line first, then the rest of the message, then what the report says around it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from matrix.triage.frames.model import Incident
from matrix.triage.lines import Line
from matrix.triage.ruleset import Pattern, RuleSet
from matrix.triage.scan import Scan

EARLIER = 5000  # lines back that a pattern may look for what must come before it
LEAP = 20  # priority by which a rule for an outer exception beats one for the innermost
_LEAD = re.compile(r"^(?:E {2,}|[\s|]+)")
_AROUND = frozenset({"any", "test", "summary", "error_line", "launcher", "exit"})
MAX_BLOCK = 20_000
WORKER, STRUCTURE = "worker_exception", "first-unhandled-exception"
UNKNOWN = 0.3
# One process of several ended by an exception of the program's own. A plain bug is that and nothing else; another exception may be
# the wording of a category that has no rule yet.
OWN_ERROR, OTHER_ERROR = 0.7, 0.45
_BUGS = frozenset(
    {
        "IndexError",
        "ZeroDivisionError",
        "NameError",
        "UnboundLocalError",
        "RecursionError",
        "StopIteration",
        "AttributeError",
        "NotImplementedError",
    }
)


@dataclass(slots=True)
class Found:
    """An incident with what the rules say about it."""

    incident: Incident
    pattern: Pattern | None = None
    structural: str = ""  # a category that the structure alone tells, where no rule does
    captures: dict[str, str | None] = field(default_factory=dict)
    line: int = 0
    text: str = ""
    body: str = ""

    @property
    def category(self) -> str:
        """Id of the category, `unknown` without a rule."""
        return self.pattern.category if self.pattern else self.structural or "unknown"

    @property
    def rule(self) -> str:
        """Id of the pattern, or what stands for one."""
        return self.pattern.id if self.pattern else STRUCTURE if self.structural else "unknown"

    @property
    def confidence(self) -> float:
        """How sure the category is; for an unknown one, that the line is the one to read first."""
        if self.pattern:
            return self.pattern.confidence
        if not self.structural:
            return UNKNOWN
        return OWN_ERROR if self.incident.exception in _BUGS else OTHER_ERROR

    @property
    def named(self) -> bool:
        """True if a rule takes it for a cause."""
        return self.pattern is not None and self.pattern.role != "consequence"


def name(incident: Incident, rules: RuleSet, scan: Scan) -> Found:
    """Ask the rules about an incident. The line that is claimed is always the one that names the failure, never the small print."""
    if incident.kind == "word" and not scan.hits.get(incident.line):
        return Found(incident, None, "", {}, incident.line, incident.text, incident.body)
    where = incident.where
    best: tuple[Pattern, dict[str, str | None], Line] | None = None
    for number, key in enumerate(incident.keys):
        small_print = incident.more[number] if number < len(incident.more) else []
        found = _best(
            rules, scan, [(key, where), *((line, _PRINT) for line in small_print)], guarded=incident.kind != "word"
        )
        if found is not None and (best is None or found[0].priority > best[0].priority + LEAP):
            best = (found[0], found[1], key)
    around = _best(rules, scan, [(line, _AROUND) for line in incident.context])
    if around is not None and (best is None or around[0].priority > best[0].priority):
        best = (around[0], around[1], best[2] if best else incident.keys[0])
    block = _block(incident, rules, scan)
    if block is not None and (best is None or block[0].priority > best[0].priority):
        best = (block[0], block[1], best[2] if best else incident.keys[0])
    if best is None:
        structural = WORKER if "rank" in where and WORKER in rules.categories else ""
        return Found(incident, None, structural, {}, incident.line, incident.text, incident.body)
    pattern, captures, line = best
    return Found(incident, pattern, "", captures, line.no, line.text, _LEAD.sub("", line.body))


_PRINT = frozenset({"any"})


def _best(
    rules: RuleSet, scan: Scan, lines: Iterable[tuple[Line, frozenset[str]]], *, guarded: bool = True
) -> tuple[Pattern, dict[str, str | None]] | None:
    """The matching pattern of the highest priority; of equals the one on the earliest line."""
    best: tuple[Pattern, dict[str, str | None]] | None = None
    for line, where in lines:
        body = _LEAD.sub("", line.body)
        for index in scan.candidates(line.no, line.body) if guarded else sorted(scan.hits.get(line.no, ())):
            pattern = rules.patterns[index]
            if best is not None and pattern.priority <= best[0].priority:
                break
            if (
                pattern.block
                or not rules.in_use(pattern)
                or pattern.where not in where
                or not (match := pattern.search(body))
            ):
                continue
            if pattern.after is not None and not _is_after(pattern, line, scan):
                continue
            best = (pattern, match.groupdict())
            break
    return best


def _is_after(pattern: Pattern, key: Line, scan: Scan) -> bool:
    """True if an earlier line of the same process is what the pattern wants to see before its own."""
    for no in range(key.no - 1, max(key.no - EARLIER, 0), -1):
        line = scan.store.line(no)
        if line is not None and (line.stream == key.stream or not key.stream) and pattern.is_after(line.body):
            return True
    return False


def _block(incident: Incident, rules: RuleSet, scan: Scan) -> tuple[Pattern, dict[str, str | None]] | None:
    """A pattern that wants the whole block: traceback, test report or error block."""
    if incident.handled or incident.kind not in {"python", "test", "crash", "exception"}:
        return None
    blocks = [p for p in rules.patterns if p.block and rules.in_use(p)]
    if not blocks:
        return None
    where = incident.where
    bodies: list[str] = []
    size = 0
    for no in range(incident.start, incident.end + 12):
        line = scan.store.line(no)
        if line is None or size > MAX_BLOCK:
            break
        if line.stream == incident.stream:
            bodies.append(_LEAD.sub("", line.body) if line.body.startswith("E ") else line.body)
            size += len(line.body)
    text = "\n".join(bodies)
    for pattern in blocks:
        if pattern.where in where and (match := pattern.search(text)):
            return pattern, match.groupdict()
    return None
