"""Which of a log's incidents are causes, and what follows from which."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

from matrix.triage.fate import HANDLED, after, before, fate
from matrix.triage.frames.model import Incident, Step
from matrix.triage.naming import Found
from matrix.triage.ruleset import RuleSet
from matrix.triage.store import LineStore

TIERS = (0.8, 0.62, 0.45)  # how fatal an incident must be to be a cause, tried in turn
WENT_ON = 200  # lines that a step prints after a process of it died, if that process was one of several
LAUNCHER_ERRORS = frozenset({"ChildFailedError", "ProcessRaisedException", "ProcessExitedException"})
NEAR = 150  # lines between incidents that still belong to one end
# What a rank says when another one left it alone.
PEER = re.compile(
    r"[Cc]onnection (?:closed|reset) by peer|TIMEOUT self_rank|Application timeout caused pair closure|Broken pipe|remote process exited|Termination signal|SIGTERM"
    r"|NCCL communicator was aborted|recvValue failed|sendBytes failed|recvBytes|Socket Timeout|failed to (?:recv|send)|heartbeat|peer closed|ncclRemoteError"
    r"|Timed out waiting \d+ms for (?:recv|send)|Watchdog caught collective|Connection refused|[Ss]ocket closed|store->get|TCPStore|collective operation timeout|barrier"
)
_FOLLOW_UP = re.compile(
    r"\b(?:post|collect|upload|artifacts?|archive|clean(?:up|ing)?|teardown|report|notify|publish|stop|logs?|summary|ls|cp|tar|rm|df|after_script|cat|cache)\b",
    re.IGNORECASE,
)
_MISSING = re.compile(
    r"[Nn]o such file or directory|cannot stat|cannot access|does not exist|FileNotFound|[Nn]o files were found"
)


def mark_steps(incidents: list[Incident], steps: list[Step]) -> None:
    """Tell each incident its step; what a passed step printed, or a step's script, is no failure."""
    starts = [s.start for s in steps]
    for incident in incidents:
        incident.step = max(bisect_right(starts, incident.line) - 1, 0)
        step = steps[incident.step]
        if step.status == "passed" or step.script[0] <= incident.line <= step.script[1]:
            incident.handled = True


def mark_handled(incidents: list[Incident], store: LineStore) -> None:
    """Mark exceptions that the program caught: it says so before or after, or goes on as before."""
    for incident in incidents:
        if incident.kind not in {"python", "exception"} or incident.handled:
            continue
        ending = fate(store, incident)
        ahead, behind = before(store, incident), after(store, incident)
        logged = ahead is not None and ahead.no >= incident.start - 2 and ahead.level != ""
        loud = logged and ahead is not None and ahead.level not in {"info", "debug"}
        said = (loud and ahead is not None and HANDLED.search(ahead.body) is not None) or (
            behind is not None and HANDLED.search(behind.body) is not None and behind.body[:1] not in " \t"
        )
        if logged and said:
            incident.handled = True
        elif ending == "died":
            incident.fatal += 0.05
        elif said or (ending == "survived" and logged):
            incident.handled = True
        elif ending == "survived" or (logged and ahead is not None and ahead.level in {"info", "warning", "debug"}):
            incident.fatal -= 0.3


def mark_many(incidents: list[Incident], steps: list[Step], ranks: bool) -> None:
    """Mark exceptions of one process among several: a rank's, a launched one's, or one of a loop whose step went on."""
    launched = {i.step for i in incidents if i.kind == "launcher" or i.exception in LAUNCHER_ERRORS}
    for incident in incidents:
        if incident.kind != "python":
            continue
        step = steps[incident.step]
        end = step.failed_at or step.end
        went_on = incident.fatal >= 0.9 and end - incident.end > WENT_ON
        incident.one_of_many = ranks or incident.rank is not None or incident.step in launched or went_on


def choose(found: list[Found], steps: list[Step], exit_code: int | None, rules: RuleSet) -> list[Found]:
    """Root incidents, the likeliest first; `found` in order of lines."""
    alive = [f for f in found if not f.incident.handled]
    failed = [n for n, step in enumerate(steps) if step.status == "failed"]
    if not failed:
        used = {f.incident.step for f in alive}
        main = {n for n in used if not tidies_up(steps[n])}
        return _by_tier(alive, main, steps, exit_code, rules) or (
            _by_tier(alive, used, steps, exit_code, rules) if len(steps) < 3 else []
        )
    roots: list[Found] = []
    for number in failed:
        code = steps[number].exit_code
        here = _by_tier(alive, [number], steps, code if code is not None else exit_code, rules)
        if number == failed[0]:
            if not here:
                return []  # the first step to fail left no trace: no other step's words explain it
            roots = here
        elif here and not _follows(steps[number], here[0], roots[0]):
            roots.extend(here)
    return roots


def _by_tier(
    alive: list[Found], numbers: Iterable[int], steps: list[Step], exit_code: int | None, rules: RuleSet
) -> list[Found]:
    order = sorted(set(numbers))
    for tier in TIERS:
        for number in order:
            here = [
                f for f in alive if f.incident.step == number and f.incident.fatal >= tier and not f.incident.wrapper
            ]
            if here:
                reach = [
                    f
                    for f in alive
                    if f.incident.step == number
                    and (f.incident.fatal >= 0.6 or (f.named and f.incident.kind == "word"))
                    and not f.incident.wrapper
                ]
                return _within(here, reach or here, steps[number], exit_code, rules)
    for number in order:
        here = [
            f
            for f in alive
            if f.incident.step == number and f.incident.wrapper and (f.named or f.incident.fatal >= 0.3)
        ]
        if here:
            return ([f for f in here if f.named] or here)[:1]
    return []


def _within(here: list[Found], reach: list[Found], step: Step, exit_code: int | None, rules: RuleSet) -> list[Found]:
    """The causes among the incidents of one step."""
    if tests := [f for f in reach if f.incident.tests]:
        return tests
    by_signal = exit_code is not None and (exit_code > 128 or exit_code < 0) and exit_code not in {143, -15, 255}
    if by_signal and (dead := [f for f in reach if f.incident.kind in {"signal", "crash"}]):
        return dead[:1]
    pool = _own(here) or _own(reach) or here
    tail = _tail(pool, step)
    best = max(f.incident.fatal for f in tail)
    root = next(f for f in tail if f.incident.fatal >= best - 0.1)
    return [_upstream(root, reach, rules)]


def _own(found: list[Found]) -> list[Found]:
    """Without those that only lost a peer."""
    return [f for f in found if not PEER.search(f.incident.body)]


def _tail(pool: list[Found], step: Step) -> list[Found]:
    """The incidents that hang together with the step's end, if any do; else all."""
    end = step.failed_at or step.end
    cluster: list[Found] = []
    for found in reversed(pool):
        if end - found.incident.end > NEAR:
            break
        cluster.append(found)
        end = found.incident.start
    return cluster[::-1] or pool


def _upstream(root: Found, reach: list[Found], rules: RuleSet) -> Found:
    """An error that was printed just before, of which `root` only tells."""
    at = root
    for found in reversed([f for f in reach if f.incident.line < root.incident.start]):
        incident = found.incident
        if at.incident.start - incident.end > 40:
            break
        if root.incident.stream and incident.stream not in {"", root.incident.stream}:
            continue  # a line without a prefix may be any rank's
        clear = incident.fatal >= 0.6 and incident.kind in {"tool", "crash", "signal", "exception"}
        # A rule that names `at` and says of no such upstream stands: what was printed before it was then its own affair.
        open_question = at.pattern is None or at.category == found.category or at.incident.kind == "signal"
        named = found.named and open_question
        own = clear and (named or incident.kind == "crash") and not PEER.search(incident.body)
        earlier = at is not root and found.category == at.category  # the first time that it was said
        if own or earlier or found.category in rules.follows(at.category):
            at = found
    return at


def _follows(step: Step, later: Found, root: Found) -> bool:
    """True if a later step's failure comes of an earlier one's: it tidies up, or misses what was not made."""
    if later.category == root.category or _MISSING.search(later.incident.body):
        return True
    return tidies_up(step)


def tidies_up(step: Step) -> bool:
    """True for a step that collects, uploads or cleans, whatever came before."""
    return _FOLLOW_UP.search(step.name.replace("_", " ")) is not None
