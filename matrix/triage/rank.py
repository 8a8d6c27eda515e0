"""Which of a log's incidents are causes, and what follows from which."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

from matrix.triage.frames.model import Incident, Step
from matrix.triage.frames.plain import HANDLED
from matrix.triage.lines import Line
from matrix.triage.ruleset import Pattern, RuleSet
from matrix.triage.store import LineStore

MIN_FATAL = 0.45
_PEER = re.compile(
    r"Connection closed by peer|[Cc]onnection reset by peer|TIMEOUT self_rank|Application timeout caused pair closure|Broken pipe|remote process exited"
    r"|NCCL communicator was aborted|Termination signal|SIGTERM|recvValue failed|sendBytes failed|Socket Timeout|failed to (?:recv|send)|heartbeat"
    r"|Timed out waiting \d+ms for (?:recv|send)|Watchdog caught collective|peer closed|ncclRemoteError|Connection refused"
)
_FOLLOW_UP_STEP = re.compile(
    r"\b(?:post|collect|upload|artifact|archive|clean(?:up)?|teardown|report|notify|publish|stop|logs?|summary|ls|cp|tar|rm|df|after_script|cat)\b",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"No such file or directory|cannot stat|cannot access|does not exist|not found|FileNotFound|no files were found",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Found:
    """An incident with what the rules say about it."""

    incident: Incident
    pattern: Pattern | None = None
    captures: dict[str, str | None] = field(default_factory=dict)
    line: int = 0
    text: str = ""
    body: str = ""
    follow: list[Incident] = field(default_factory=list)

    @property
    def category(self) -> str:
        """Id of the category, `unknown` without a rule."""
        return self.pattern.category if self.pattern else "unknown"


def mark_steps(incidents: list[Incident], steps: list[Step]) -> None:
    """Tell each incident its step; what a passed step printed, or a step's script, is no failure."""
    starts = [s.start for s in steps]
    for incident in incidents:
        incident.step = max(bisect_right(starts, incident.line) - 1, 0)
        step = steps[incident.step]
        if step.status == "passed" or step.script[0] <= incident.line <= step.script[1]:
            incident.handled = True


def mark_handled(incidents: list[Incident], store: LineStore) -> None:
    """Mark exceptions that the program caught: a logger's words before or after, or output that goes on as before."""
    for incident in incidents:
        if incident.kind != "python" or incident.handled:
            continue
        before = _neighbour(store, incident, incident.start, -1)
        after = _neighbour(store, incident, incident.end, 1)
        if (
            after is not None
            and (after.level in {"info", "warning", "debug"} or HANDLED.search(after.body))
            and HANDLED.search(after.body)
        ):
            incident.handled = True
        elif before is not None and (before.level in {"warning", "info", "debug"} or HANDLED.search(before.body)):
            incident.handled = (
                before.level in {"warning", "info", "debug"}
                and not re.search(r"fatal|abort|exiting", before.body, re.IGNORECASE)
            ) or HANDLED.search(before.body) is not None
        elif before is not None and before.level == "error":
            incident.fatal -= 0.1


def _neighbour(store: LineStore, incident: Incident, no: int, step: int) -> Line | None:
    for at in range(no + step, no + 12 * step, step):
        line = store.line(at)
        if line is None:
            return None
        if line.stream == incident.stream and line.body.strip():
            return line
    return None


def choose(incidents: list[Incident], steps: list[Step], failed_steps: list[int]) -> list[Incident]:
    """Root incidents, the likeliest first."""
    alive = [i for i in incidents if not i.handled and i.fatal >= MIN_FATAL and not i.wrapper]
    wrappers = [i for i in incidents if not i.handled and i.wrapper and i.fatal >= 0.3]
    for number in failed_steps or range(len(steps)):
        here = [i for i in alive if i.step == number] or [i for i in wrappers if i.step == number]
        if here:
            return _within(here)
    return []


def _within(here: list[Incident]) -> list[Incident]:
    tests = [i for i in here if i.tests]
    if tests:
        return tests
    own = [i for i in here if not _PEER.search(i.body)]
    pool = own or here
    best = max(i.fatal for i in pool)
    return [next(i for i in pool if i.fatal >= best - 0.1)]


def name(found: Found, rules: RuleSet, hits: dict[int, set[int]]) -> None:
    """Find the rule for an incident among its key lines, innermost first."""
    incident = found.incident
    where = incident.where
    for key in incident.keys:
        body = re.sub(r"^(?:E {2,}|[\s|]+)", "", key.body)
        for index in sorted(hits.get(key.no, ())):
            pattern = rules.patterns[index]
            if pattern.where not in where or pattern.block:
                continue
            match = pattern.search(body)
            if match:
                found.pattern, found.captures = pattern, match.groupdict()
                found.line, found.text, found.body = key.no, key.text, body
                return
    found.line, found.text, found.body = incident.line, incident.text, incident.body
