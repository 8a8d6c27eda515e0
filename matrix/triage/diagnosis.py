"""From one log to its report: read, scan, frames, rank, name, sign."""

from __future__ import annotations

import functools
from pathlib import Path

from matrix.triage import rank
from matrix.triage.frames import plain, python, steps, tests
from matrix.triage.frames.model import Incident, Step, Verdict
from matrix.triage.model import Cause, Consequence, LogReport, LogStatus
from matrix.triage.read import open_log
from matrix.triage.ruleset import RuleSet, load_rules
from matrix.triage.scan import Scan, Scanner
from matrix.triage.signature import signature

MAX_CAUSES, MAX_FOLLOW = 20, 20


_SCANNERS: dict[str, Scanner] = {}


def scanner_for(rules: RuleSet) -> Scanner:
    """One scanner for each set of rules."""
    if rules.digest not in _SCANNERS:
        _SCANNERS[rules.digest] = Scanner(rules)
    return _SCANNERS[rules.digest]


@functools.lru_cache(maxsize=1)
def _default_rules() -> RuleSet:
    return load_rules()


def diagnose(
    path: str | Path,
    *,
    exit_code: int | None = None,
    job: str | None = None,  # noqa: ARG001 - callers know it; reports that name the job will use it
    rules: RuleSet | None = None,
) -> LogReport:
    """Read a log (plain, gz, zst, `-`) and say what failed first.

    `exit_code` is the job's own, where it is known: 0 means that nothing failed, whatever the log says.
    Raises UsageError if the log cannot be read.
    """
    rules = rules or _default_rules()
    with open_log(str(path)) as stream:
        scan = scanner_for(rules).scan(stream)
    return report(str(path), scan, rules, exit_code)


def report(path: str, scan: Scan, rules: RuleSet, exit_code: int | None) -> LogReport:
    """The report of a scanned log."""
    store = scan.store
    marked = sorted(scan.marks)
    found_steps, verdict = steps.read_steps(store, [n for n in marked if scan.marks[n] & steps.MARKS])
    test_report = tests.read_tests(store, [n for n in marked if scan.marks[n] & tests.MARKS])
    incidents = _incidents(scan, test_report, rules)
    rank.mark_steps(incidents, found_steps)
    rank.mark_handled(incidents, store)
    status = _status(exit_code, verdict, incidents, test_report, scan)
    made = LogReport(
        path=path,
        status=status,
        exit_code=exit_code if exit_code is not None else verdict.exit_code,
        lines=scan.lines,
        bytes=scan.size,
    )
    if status != "failed":
        return made
    made.failing_tests = test_report.failing
    roots = rank.choose(incidents, found_steps, [i for i, s in enumerate(found_steps) if s.status == "failed"])
    made.causes = _causes(roots, incidents, scan, rules, found_steps, verdict)
    return made


def _incidents(scan: Scan, test_report: tests.TestReport, rules: RuleSet) -> list[Incident]:
    store = scan.store
    regions = [*test_report.regions, *test_report.captured]
    starts = [n for n in sorted(scan.marks) if scan.marks[n] & {"traceback", "exception_group"}]
    made = [i for i in python.incidents(store, starts) if not any(a <= i.start <= b for a, b in regions)]
    covered: set[int] = set()
    for incident in made:
        covered.update(range(incident.start, incident.end + 1))
    for low, high in regions:
        covered.update(range(low, high + 1))
    for incident in test_report.incidents:
        covered.update(range(incident.start, incident.end + 1))
    for no in sorted({n for n, m in scan.marks.items() if m & plain.MARKS} | set(scan.hits)):
        if no in covered or (line := store.line(no)) is None:
            continue
        kind, fatal = plain.classify(line)
        hits = scan.hits.get(no)
        if (
            hits
            and fatal > 0.15
            and any(rules.patterns[i].role != "consequence" and rules.patterns[i].search(line.body) for i in hits)
        ):
            fatal = max(fatal, 0.66)
        if fatal > 0.15:
            made.append(plain.incident(line, kind, fatal))
    made.extend(test_report.incidents)
    made.sort(key=lambda i: i.line)
    return made


def _status(
    exit_code: int | None, verdict: Verdict, incidents: list[Incident], test_report: tests.TestReport, scan: Scan
) -> LogStatus:
    if exit_code is not None:
        return "passed" if exit_code == 0 else "failed"
    if verdict.status != "unknown":
        return verdict.status
    if scan.lines == 0:
        return "unknown"
    if test_report.failed_end or test_report.incidents:
        return "failed"
    alive = [i for i in incidents if not i.handled and i.fatal >= 0.6]
    if alive and alive[-1].line >= scan.lines - 60:
        return "failed"
    if test_report.passed_end and test_report.passed_end >= scan.lines - 60:
        return "passed"
    return "failed" if any(i.fatal >= 0.85 for i in alive) else "unknown"


def _causes(
    roots: list[Incident],
    incidents: list[Incident],
    scan: Scan,
    rules: RuleSet,
    found_steps: list[Step],
    verdict: Verdict,
) -> list[Cause]:
    causes: list[Cause] = []
    for root in roots[:MAX_CAUSES]:
        found = rank.Found(root)
        rank.name(found, rules, scan.hits)
        sign = signature(found.category, root.exception, found.body, tuple(root.tests))
        same = next((c for c in causes if c.signature == sign), None)
        if same is not None:
            same.tests.extend(t for t in root.tests if t not in same.tests)
            continue
        causes.append(
            Cause(
                category=found.category,
                rule=found.pattern.id if found.pattern else "unknown",
                confidence=found.pattern.confidence if found.pattern else 0.3,
                line=found.line,
                end_line=max(root.end, found.line),
                text=found.text,
                rank=root.rank,
                tests=list(root.tests),
                signature=sign,
                fix=rules.fix(found.pattern, found.captures) if found.pattern else {},
            )
        )
    if not causes:
        causes.append(_last_line(scan, found_steps, verdict))
    chosen = {id(r) for r in roots}
    later = [
        i
        for i in incidents
        if id(i) not in chosen and not i.handled and i.fatal >= 0.3 and i.line > (causes[0].line or 0)
    ]
    causes[0].consequences = [Consequence(line=i.line, category="unknown", text=i.text) for i in later[:MAX_FOLLOW]]
    return causes


def _last_line(scan: Scan, found_steps: list[Step], verdict: Verdict) -> Cause:
    """Without any evidence: the last line that the failed step printed."""
    failed = next((s for s in found_steps if s.status == "failed"), None)
    end = (failed.failed_at if failed and failed.failed_at else verdict.line) or scan.lines
    for no in range(end - 1, max(end - 40, 0), -1):
        line = scan.store.line(no)
        if line is not None and line.body.strip():
            return Cause(
                category="unknown",
                rule="unknown",
                confidence=0.1,
                line=no,
                text=line.text,
                signature=signature("unknown", "", line.body),
            )
    line = scan.store.line(end)
    return Cause(
        category="unknown",
        rule="unknown",
        confidence=0.1,
        line=max(end, 1),
        text=line.text if line else "",
        signature=signature("unknown", "", line.body if line else ""),
    )
