"""Collects the incidents of a scanned log from all frames, each line counted once."""

from __future__ import annotations

import re
from collections.abc import Iterable

from matrix.triage.frames import launchers, plain, python, steps, tests
from matrix.triage.frames.model import Incident
from matrix.triage.lines import Line
from matrix.triage.ruleset import Pattern, RuleSet
from matrix.triage.scan import Scan

NAMED = 0.66  # how fatal a line is at least that a rule takes for a cause
MIN = 0.15
SURE = 0.8  # confidence of a rule from which a warning is kept
QUIET = 0.2
_WORDS = frozenset({"tool", "signal", "exception", "exit", "fault"})
_PASSED = re.compile(r"\b(?:PASSED|ok|OK)\b|✓|✔")


def incidents(scan: Scan, report: tests.TestReport, rules: RuleSet) -> list[Incident]:
    """All incidents, by line."""
    made = _tracebacks(scan, report)
    covered = _covered(scan, made, report)
    for no in sorted({n for n, marks in scan.marks.items() if marks & plain.MARKS} | set(scan.hits)):
        line = None if no in covered else scan.store.line(no)
        if line is not None and (found := _plain(scan, line, rules)) is not None:
            made.append(found)
    made.extend(report.incidents)
    made.sort(key=lambda i: i.line)
    return made


def _tracebacks(scan: Scan, report: tests.TestReport) -> list[Incident]:
    regions = [*report.regions, *report.captured]
    starts = [n for n in sorted(scan.marks) if scan.marks[n] & {"traceback", "exception_group"}]
    return [i for i in python.incidents(scan.store, starts) if not any(a <= i.start <= b for a, b in regions)]


def _covered(scan: Scan, made: list[Incident], report: tests.TestReport) -> set[int]:
    """Lines that belong to a traceback, a launcher's table or a test report."""
    covered: set[int] = set()
    for incident in made:
        covered.update(range(incident.start, incident.end + 1))
        covered.update(line.no for message in incident.more for line in message if plain.classify(line)[1] < 0.8)
        if incident.exception == "ChildFailedError":
            end, _ = launchers.block(scan.store, incident.end)
            covered.update(n for n in range(incident.end + 1, end + 1) if not _tells_end(scan, n))
    for low, high in report.regions:
        covered.update(range(low, high + 1))
    for incident in report.incidents:
        covered.update(range(incident.start, incident.end + 1))
    return covered


def _tells_end(scan: Scan, no: int) -> bool:
    line = scan.store.line(no)
    return line is not None and launchers.ended(line) is not None


def _plain(scan: Scan, line: Line, rules: RuleSet) -> Incident | None:
    """The incident that one line outside all reports is, if it is one."""
    marks, led = scan.marks.get(line.no, set()), scan.hits.get(line.no)
    if not marks & plain.MARKS:
        return _only_words(line, led or set(), rules)
    if marks & launchers.MARKS and (ended := launchers.ended(line)):
        return launchers.incident(line, ended)
    kind, fatal = plain.classify(line)
    if kind not in {"exit", "runner"} and steps.is_boundary(line.text, scan.store.raw(line.no) or b""):
        return None
    if kind == "word" and not marks & _WORDS:
        return _only_words(line, led or set(), rules)
    causes = _causes(line, scan.candidates(line.no, line.body) if kind != "word" else sorted(led or ()), rules)
    if kind == "word" and not causes and (fatal <= MIN or _PASSED.search(line.body)):
        return None
    if fatal <= MIN:
        return _warning(line, causes)
    if kind in {"tool", "word", "exception"} and _closes_step(scan, line.no):
        fatal = fatal + 0.3 if kind == "word" else max(fatal, min(fatal + 0.08, 0.79))
    if causes and kind not in {"exit", "launcher"}:
        fatal = max(fatal, NAMED)
    return plain.incident(line, kind, fatal)


def _causes(line: Line, numbers: Iterable[int], rules: RuleSet) -> list[Pattern]:
    """The patterns that really match a line and take it for a cause."""
    patterns = [p for i in numbers if rules.in_use(p := rules.patterns[i])]
    return [p for p in patterns if p.role != "consequence" and p.search(line.body)]


def _only_words(line: Line, led: set[int], rules: RuleSet) -> Incident | None:
    """An incident of a line that bears no mark: a rule must name it."""
    if not (causes := _causes(line, sorted(led), rules)):
        return None
    if (fatal := plain.loudness(line)) <= MIN:
        return _warning(line, causes)
    return plain.incident(line, "word", max(fatal, NAMED))


def _warning(line: Line, causes: list[Pattern]) -> Incident | None:
    """A warning that an error may follow from: pip warns of the network before it says that no version fits."""
    sure = line.level in {"", "warning"} and any(p.confidence >= SURE for p in causes)
    return plain.incident(line, "word", QUIET) if sure else None


def _closes_step(scan: Scan, no: int) -> bool:
    """True if the next thing that was printed is the runner's end of the step."""
    for at in range(no + 1, no + 5):
        line, raw = scan.store.line(at), scan.store.raw(at)
        if line is None or raw is None:
            return at > scan.lines
        if line.text.strip() or raw.startswith(b"section_"):
            return steps.is_boundary(line.text, raw)
    return False
