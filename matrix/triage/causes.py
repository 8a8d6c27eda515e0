"""From ranked incidents to the report's causes and consequences."""

from __future__ import annotations

import re

from matrix.triage import rank
from matrix.triage.analysis import Analysis
from matrix.triage.frames import steps
from matrix.triage.lines import Line
from matrix.triage.model import Cause, Consequence, LogReport
from matrix.triage.naming import Found
from matrix.triage.ruleset import RuleSet
from matrix.triage.signature import signature

MAX_CAUSES, MAX_FOLLOW = 20, 20
_SPEAKER = re.compile(r"[\w./-]{1,40}: \S")


def report(path: str, analysis: Analysis, rules: RuleSet) -> LogReport:
    """The report of one log."""
    scan = analysis.scan
    made = LogReport(path=path, status=analysis.status, exit_code=analysis.exit_code, lines=scan.lines, bytes=scan.size)
    if analysis.status != "failed":
        return made
    made.failing_tests = analysis.tests.failing
    roots = rank.choose(analysis.found, analysis.steps, analysis.exit_code, rules)
    made.causes = causes_of(roots, rules) or [last_line(analysis)]
    first = made.causes[0].line or 0
    made.causes[0].consequences = consequences(analysis, roots, first)
    return made


def causes_of(roots: list[Found], rules: RuleSet, file: str | None = None) -> list[Cause]:
    """One cause for each different failure among the roots."""
    causes: list[Cause] = []
    for root in roots:
        incident = root.incident
        sign = signature(root.category, incident.exception, root.body, tuple(incident.tests))
        same = next((c for c in causes if c.signature == sign), None)
        if same is not None:
            same.tests.extend(t for t in incident.tests if t not in same.tests)
        elif len(causes) < MAX_CAUSES:
            causes.append(cause(root, rules, sign, file))
    return causes


def cause(root: Found, rules: RuleSet, sign: str, file: str | None = None) -> Cause:
    """One cause."""
    incident = root.incident
    return Cause(
        category=root.category,
        rule=root.rule,
        confidence=root.confidence,
        file=file,
        line=root.line,
        end_line=max(incident.end, root.line),
        text=root.text,
        rank=incident.rank,
        tests=list(incident.tests),
        signature=sign,
        fix=rules.fix(root.pattern, root.captures) if root.pattern else {},
    )


def consequences(analysis: Analysis, roots: list[Found], after: int, file: str | None = None) -> list[Consequence]:
    """What else was reported after a cause, and follows from it as far as one can tell."""
    chosen = {id(r.incident) for r in roots}
    later = [
        f
        for f in analysis.found
        if id(f.incident) not in chosen and not f.incident.handled and f.incident.fatal >= 0.3 and f.line > after
    ]
    return [Consequence(file=file, line=f.line, category=f.category, text=f.text) for f in later[:MAX_FOLLOW]]


def last_line(analysis: Analysis, file: str | None = None) -> Cause:
    """Without any evidence: the last line that the failed step printed."""
    scan = analysis.scan
    line = None
    for low, high in _last_places(analysis):
        for no in range(high, max(high - 80, low - 1), -1):
            at, raw = scan.store.line(no), scan.store.raw(no)
            if at is not None and raw is not None and at.body.strip() and not steps.is_boundary(at.text, raw):
                line = at
                break
        if line is not None:
            line = _head(analysis, line, low)
            break
    sign = signature("unknown", "", line.body if line else "")
    return Cause(
        category="unknown",
        rule="unknown",
        confidence=0.1,
        file=file,
        line=line.no if line else max(scan.lines, 1),
        text=line.text if line else "",
        signature=sign,
    )


def _head(analysis: Analysis, line: Line, low: int) -> Line:
    """Return the line that an indented one explains: `tool: what was wrong`, and below it what to do."""
    if line.body[:1] not in " \t":
        return line
    for no in range(line.no - 1, max(line.no - 6, low - 2, 0), -1):
        at = analysis.scan.store.line(no)
        if at is None or not at.body.strip() or at.stream != line.stream:
            break
        if at.body[:1] not in " \t":
            return at if _SPEAKER.match(at.body) else line
    return line


def _last_places(analysis: Analysis) -> list[tuple[int, int]]:
    """Where to look for a last word: the failed step, else the last steps that do not tidy up, else anywhere."""
    failed = [s for s in analysis.steps if s.status == "failed"]
    if failed:
        return [
            (failed[0].start, (failed[0].failed_at or failed[0].end + 1) - 1),
            (1, failed[0].failed_at or analysis.scan.lines),
        ]
    main = [s for s in analysis.steps if s.end > s.start and s.status != "passed" and not rank.tidies_up(s)]
    end = (analysis.verdict.line or analysis.scan.lines + 1) - 1
    return [*((s.start + 1, min(s.end, end)) for s in reversed(main)), (1, end), (1, analysis.scan.lines)]
