"""Which rank of a job failed first, from every rank's own log."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from matrix.triage import rank as ranking
from matrix.triage.analysis import Analysis, analyse, scanner_for
from matrix.triage.causes import MAX_FOLLOW, cause, consequences, last_line
from matrix.triage.folder import Folder, RankFile
from matrix.triage.frames.launchers import ended
from matrix.triage.model import Cause, Consequence, LogReport, LogStatus
from matrix.triage.naming import Found
from matrix.triage.read import open_log
from matrix.triage.ruleset import RuleSet
from matrix.triage.signature import signature

_TIME = re.compile(
    r"(?:(?P<y>\d{4})-(?P<mo>\d\d)-(?P<d>\d\d)[T _]|[IWEF](?P<gm>\d\d)(?P<gd>\d\d) )(?P<h>\d\d):(?P<mi>\d\d):(?P<s>\d\d(?:[.,]\d+)?)"
)
# A rank that waits for others when it is stopped stands in one of these.
_COLLECTIVE = re.compile(
    r"ProcessGroup\w*::|all_?reduce|all_?gather|reduce_?scatter|broadcast|barrier|all_?to_?all|AllReduce|AllGather|Barrier|ncclKernel|gloo::|recv_?forward|batch_isend_irecv",
    re.IGNORECASE,
)
_TIMED_OUT = re.compile(
    r"Watchdog caught collective|[Cc]ollective operation timeout|Timed out waiting \d+ ?ms|unbound_buffer\.cc:\d+\] (?:TIMEOUT|Timed out)|wait timeout|Socket Timeout|pair_rank = (?:-1|none)|DistStoreError|timed out after \d+"
)
_STOPPED = re.compile(
    r"Terminating with signal (\d+)|Exit with signal (\d+)|Received (?:signal )?(?:15|SIGTERM)|SignalException|got signal: 15|DUE TO TIME LIMIT|CANCELLED AT"
)
_LAUNCH_OK = re.compile(r"Pod completed|LAUNCH INFO .* Exit code 0$|finished successfully")
_LAUNCH_FAILED = re.compile(
    r"Pod failed|Container failed|LAUNCH INFO .* Exit code (-?[1-9]\d*)|ChildFailedError|failed \(exitcode|srun: error"
)
TIMEOUT = 124


@dataclass(slots=True)
class RankState:
    """One rank: its logs taken apart, and what failed in them."""

    rank: int
    logs: list[tuple[RankFile, Analysis]] = field(default_factory=list)
    own: tuple[RankFile, Found] | None = None  # a failure of its own
    peer: tuple[RankFile, Found] | None = None  # it lost a peer, or was stopped
    time: tuple[int, int, float] | None = None  # when its own failure was printed, or its last line


def diagnose_folder(folder: Folder, path: str, exit_code: int | None, rules: RuleSet) -> LogReport:
    """One report for all logs of a folder."""
    code = exit_code if exit_code is not None else folder.exit_code
    scanner = scanner_for(rules)
    states: dict[int, RankState] = {}
    launchers: list[tuple[RankFile, Analysis]] = []
    lines = size = 0
    for file in folder.files:
        with open_log(str(file.path)) as stream:
            analysis = analyse(scanner.scan(stream), rules, None, ranks=file.rank is not None)
        lines += analysis.scan.lines
        size += analysis.scan.size
        if file.rank is None:
            launchers.append((file, analysis))
        else:
            states.setdefault(file.rank, RankState(file.rank)).logs.append((file, analysis))
    for state in states.values():
        _judge(state, rules)
    report = LogReport(path=path, status=_status(code, states, launchers), exit_code=code, lines=lines, bytes=size)
    if report.status != "failed":
        return report
    report.failing_tests = list(dict.fromkeys(t for s in states.values() for _, a in s.logs for t in a.tests.failing))
    report.causes = _causes(states, launchers, code, rules)
    return report


def _judge(state: RankState, rules: RuleSet) -> None:
    """Find what a rank's logs say of its own failure."""
    for file, analysis in state.logs:
        alive = [f for f in analysis.found if not f.incident.handled and f.incident.fatal >= 0.45]
        mine = [f for f in alive if not ranking.PEER.search(f.incident.body) and not f.incident.wrapper]
        roots = ranking.choose(mine, analysis.steps, None, rules)
        if roots and (state.own is None or roots[0].incident.fatal > state.own[1].incident.fatal):
            state.own = (file, roots[0])
            state.time = time_at(analysis, roots[0].incident.line)
        heard = [f for f in analysis.found if not f.incident.handled and f.incident.fatal > 0.15]
        if lost := next((f for f in heard if ranking.PEER.search(f.incident.body)), None):
            state.peer = state.peer or (file, lost)
    if state.own is None:
        times = [t for _, a in state.logs if (t := time_at(a, a.scan.lines))]
        state.time = max(times, default=None)
    for file, _ in state.logs:
        state.time = _error_file(file.path.parent / "error.json") or state.time


def time_at(analysis: Analysis, no: int) -> tuple[int, int, float] | None:
    """Month, day and second of the nearest timestamp at or before a line."""
    for at in range(no, max(no - 200, 0), -1):
        raw = analysis.scan.store.raw(at)
        if raw is None:
            break
        if found := _TIME.search(raw[:200].decode("utf-8", "replace")):
            month, day = int(found["mo"] or found["gm"]), int(found["d"] or found["gd"])
            return month, day, int(found["h"]) * 3600 + int(found["mi"]) * 60 + float(found["s"].replace(",", "."))
    return None


def _error_file(path: Path) -> tuple[int, int, float] | None:
    """The time in torch elastic's error.json."""
    import time  # noqa: PLC0415 - only such folders need it

    try:
        if path.stat().st_size > 1 << 20:
            return None
        document = json.loads(path.read_text("utf-8", "replace"))
        stamp = float(document["message"]["extraInfo"]["timestamp"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    at = time.gmtime(stamp)
    return at.tm_mon, at.tm_mday, at.tm_hour * 3600 + at.tm_min * 60 + at.tm_sec


def _status(code: int | None, states: dict[int, RankState], launchers: list[tuple[RankFile, Analysis]]) -> LogStatus:
    if code is not None:
        return "passed" if code == 0 else "failed"
    if any(s.own or s.peer for s in states.values()) or any(_seen(a, _LAUNCH_FAILED) for _, a in launchers):
        return "failed"
    if any(_seen(a, _LAUNCH_OK) for _, a in launchers):
        return "passed"
    every = [a.status for s in states.values() for _, a in s.logs] + [a.status for _, a in launchers]
    if "failed" in every:
        return "failed"
    return "passed" if "passed" in every else "unknown"


def _seen(analysis: Analysis, pattern: re.Pattern[str]) -> bool:
    total = analysis.scan.lines
    return any(
        (line := analysis.scan.store.line(n)) is not None and pattern.search(line.text) is not None
        for n in range(max(1, total - 400), total + 1)
    )


def _causes(
    states: dict[int, RankState], launchers: list[tuple[RankFile, Analysis]], code: int | None, rules: RuleSet
) -> list[Cause]:
    failed = sorted((s for s in states.values() if s.own), key=lambda s: (s.time or (99, 0, 0.0), s.rank))
    if failed:
        return [_own_cause(failed, states, rules)]
    waiting = [s for s in states.values() if s.peer and _TIMED_OUT.search(s.peer[1].incident.body)]
    stopped = code == TIMEOUT or any(_seen(a, _STOPPED) for _, a in launchers)
    if (waiting and len(waiting) < len(states)) or (stopped and states):
        return [_hang(states, waiting, launchers, rules)]
    if states:
        return [_silent(states, launchers, rules)]
    file, analysis = launchers[-1]
    roots = ranking.choose(analysis.found, analysis.steps, code, rules)
    if not roots:
        return [last_line(analysis, file.name)]
    root = roots[0]
    return [cause(root, rules, signature(root.category, root.incident.exception, root.body), file.name)]


def _own_cause(failed: list[RankState], states: dict[int, RankState], rules: RuleSet) -> Cause:
    """The first rank with a failure of its own; what the others say follows from it."""
    first = failed[0]
    assert first.own is not None
    file, root = first.own
    made = cause(root, rules, signature(root.category, root.incident.exception, root.body), file.name)
    made.rank = first.rank
    follow: list[Consequence] = []
    for state in states.values():
        said = (state.own if state is not first else None) or state.peer
        if said is not None:
            follow.append(
                Consequence(file=said[0].name, line=said[1].line, category=said[1].category, text=said[1].text)
            )
    for log, analysis in first.logs:
        if log is file:
            follow.extend(consequences(analysis, [root], root.line, file.name))
    made.consequences = follow[:MAX_FOLLOW]
    return made


def _hang(
    states: dict[int, RankState], waiting: list[RankState], launchers: list[tuple[RankFile, Analysis]], rules: RuleSet
) -> Cause:
    """Some ranks wait in a collective; the one that did not arrive is the cause, at the last line that it printed."""
    there = [s for s in states.values() if s in waiting or any(_in_collective(a) for _, a in s.logs)]
    absent = sorted((s for s in states.values() if s not in there), key=lambda s: (s.time or (99, 0, 0.0), s.rank))
    first = absent[0] if absent else min(states.values(), key=lambda s: (s.time or (99, 0, 0.0), s.rank))
    file, analysis = first.logs[-1]
    made = stood(analysis, file.name)
    made.rank = first.rank if absent else None
    made.category = "collective_timeout" if waiting else "job_timeout"
    made.rule, made.confidence = "ranks-absent", 0.8 if absent and there else 0.6
    made.fix = {"en": _absent(absent, there), "zh": _absent_zh(absent, there)} if absent else {}
    for state in there:
        said = state.peer
        if said is not None:
            made.consequences.append(
                Consequence(file=said[0].name, line=said[1].line, category=said[1].category, text=said[1].text)
            )
    for log, launcher in launchers:
        made.consequences.extend(c for c in consequences(launcher, [], 0, log.name) if _STOPPED.search(c.text))
    made.consequences = made.consequences[:MAX_FOLLOW]
    if made.category not in rules.categories:
        made.category, made.rule, made.confidence = "unknown", "unknown", 0.3
    made.signature = signature(made.category, "", made.text)
    return made


def _absent(absent: list[RankState], there: list[RankState]) -> str:
    names = ", ".join(str(s.rank) for s in absent[:16])
    others = ", ".join(str(s.rank) for s in there[:16])
    if not others:
        return f"Look at what rank {names} did after its last line."
    return f"Ranks {others} waited in a collective that rank {names} did not reach: look at what it did after its last line."


def _absent_zh(absent: list[RankState], there: list[RankState]) -> str:
    names = "、".join(str(s.rank) for s in absent[:16])
    others = "、".join(str(s.rank) for s in there[:16])
    if not others:
        return f"请查看 rank {names} 在最后一行日志之后做了什么。"
    return f"rank {others} 在集合通信中等待，而 rank {names} 没有到达：请查看它在最后一行日志之后做了什么。"


def _in_collective(analysis: Analysis) -> bool:
    """True if the last stack in a log stands in a collective."""
    total = analysis.scan.lines
    for no in range(total, max(total - 120, 0), -1):
        line = analysis.scan.store.line(no)
        if line is not None and _COLLECTIVE.search(line.body):
            return True
    return False


def stood(analysis: Analysis, file: str) -> Cause:
    """The last line that a rank printed on its own, before any stack that a signal drew out of it."""
    store, total = analysis.scan.store, analysis.scan.lines
    first_trace = next(
        (n for n in sorted(analysis.scan.marks) if n > total - 200 and analysis.scan.marks[n] & {"fault", "traceback"}),
        total + 1,
    )
    for no in range(first_trace - 1, 0, -1):
        line = store.line(no)
        if line is None:
            break
        if line.body.strip(" -="):
            return Cause(
                category="unknown",
                rule="unknown",
                confidence=0.3,
                file=file,
                line=no,
                text=line.text,
                signature=signature("unknown", "", line.body),
            )
    return last_line(analysis, file)


def _silent(states: dict[int, RankState], launchers: list[tuple[RankFile, Analysis]], rules: RuleSet) -> Cause:
    """No rank says what went wrong: the cause is one whose log just stops, with the launcher's word on how it ended."""
    quiet = [s for s in states.values() if not s.peer] or list(states.values())
    words = [
        (log, f, e)
        for log, a in launchers
        for f in a.found
        if (line := a.scan.store.line(f.line)) is not None and (e := ended(line)) is not None and e.rank is not None
    ]
    blamed = {e.rank for _, _, e in words}
    first = min(quiet, key=lambda s: (s.rank not in blamed, s.time or (99, 0, 0.0), s.rank))
    for log, f, e in words:
        if e.rank == first.rank and f.pattern is not None:
            made = cause(f, rules, signature(f.category, "", f.body), log.name)
            made.rank = first.rank
            break
    else:
        file, analysis = first.logs[-1]
        made = stood(analysis, file.name)
        made.rank = first.rank
    for state in states.values():
        if state is not first and state.peer is not None:
            said = state.peer
            made.consequences.append(
                Consequence(file=said[0].name, line=said[1].line, category=said[1].category, text=said[1].text)
            )
    made.consequences = made.consequences[:MAX_FOLLOW]
    return made
