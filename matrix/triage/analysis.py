"""One log taken apart and ranked: steps, tests, incidents with their rules, and what the log says of the job's end."""

from __future__ import annotations

import re
from dataclasses import dataclass

from matrix.triage import gather, naming, rank
from matrix.triage.frames import othertests, plain, steps, tests
from matrix.triage.frames.model import Incident, Step, Verdict
from matrix.triage.model import LogStatus
from matrix.triage.ruleset import RuleSet
from matrix.triage.scan import Scan, Scanner

_SCANNERS: dict[str, Scanner] = {}
END = 60  # lines before a log's end within which a failure or a count of passed tests settles how it ended


@dataclass(slots=True)
class Analysis:
    """What is known of one log before causes are chosen."""

    scan: Scan
    steps: list[Step]
    verdict: Verdict
    tests: tests.TestReport
    found: list[naming.Found]
    status: LogStatus
    exit_code: int | None


def scanner_for(rules: RuleSet) -> Scanner:
    """One scanner for each set of rules."""
    if rules.digest not in _SCANNERS:
        _SCANNERS[rules.digest] = Scanner(rules)
    return _SCANNERS[rules.digest]


def analyse(scan: Scan, rules: RuleSet, exit_code: int | None, *, ranks: bool = False) -> Analysis:
    """Take a scanned log apart; `ranks` says that it is one rank's of several."""
    store = scan.store
    marked = sorted(scan.marks)
    found_steps, verdict = steps.read_steps(store, [n for n in marked if scan.marks[n] & steps.MARKS])
    report = tests.read_tests(store, [n for n in marked if scan.marks[n] & tests.MARKS])
    other, failing = othertests.read_other_tests(store, [n for n in marked if scan.marks[n] & othertests.MARKS])
    report.incidents.extend(other)
    report.failing.extend(t for t in failing if t not in report.failing)
    incidents = gather.incidents(scan, report, rules)
    rank.mark_steps(incidents, found_steps)
    rank.mark_handled(incidents, store)
    rank.mark_many(incidents, found_steps, ranks)
    found = [naming.name(i, rules, scan) for i in incidents]
    code = exit_code if exit_code is not None else verdict.exit_code
    made = Analysis(scan, found_steps, verdict, report, found, "unknown", code)
    made.status = _status(made, exit_code)
    return made


def _status(a: Analysis, exit_code: int | None) -> LogStatus:
    if exit_code is not None:
        return "passed" if exit_code == 0 else "failed"
    if a.verdict.status != "unknown":
        return a.verdict.status
    alive = [f.incident for f in a.found if not f.incident.handled]
    if a.tests.failed_end or any(i.tests for i in alive):
        return "failed"
    if a.tests.passed_end and not any(i.fatal >= 0.6 and i.line > a.tests.passed_end for i in alive):
        return "passed"
    sure = [i for i in alive if i.fatal >= 0.6 or plain.BUILD_OVER.match(i.text.strip())]
    if not sure or (
        a.verdict.runner and not any(i.kind in {"exit", "launcher", "signal"} for i in alive if i.line >= sure[-1].line)
    ):
        return "unknown"
    return "failed" if _last_words(a, sure[-1]) else "unknown"


def _last_words(a: Analysis, last: Incident) -> bool:
    """True if a log without a verdict ends with this incident: little follows it, and nothing that sounds like success."""
    rest = 0
    for no in range(last.end + 1, a.scan.lines + 1):
        line = a.scan.store.line(no)
        if line is None or rest > END:
            return False
        if line.body.strip():
            rest += 1
            if _WELL.search(line.body) and not _NOT_WELL.search(line.body):
                return False
    return True


_NOT_WELL = re.compile(r"\b(?:not|never) (?:be |been )?(?:complete|finish|success|done|pass)", re.IGNORECASE)
_WELL = re.compile(r"\b(?:all good|done|success(?:ful(?:ly)?)?|passed|finished|completed?|ok)\b", re.IGNORECASE)
