"""The evidence chain in plain words, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from matrix.triage.excerpt import around, source
from matrix.triage.model import Cause, LogReport
from matrix.triage.ruleset import RuleSet, fill

BEFORE, AFTER = 6, 3  # lines shown about a cause
SHOWN = 8  # consequences shown

_STATUS = {
    "passed": "passed: nothing in it is a failure",
    "unknown": "cannot tell: the log is empty, cut off before the end, or does not say how it ended",
    "failed": "failed",
}


def explain(report: LogReport, rules: RuleSet) -> str:
    """Say what failed first and why that is thought, with the lines around it."""
    return "\n".join(_log(report, rules)) + "\n"


def _log(report: LogReport, rules: RuleSet) -> Iterator[str]:
    code = f" (exit code {report.exit_code})" if report.exit_code is not None else ""
    yield f"{report.path}: {_STATUS[report.status]}{code}, {report.lines:,} lines"
    if report.failing_tests:
        yield f"  failing tests: {', '.join(report.failing_tests[:20])}"
    for number, cause in enumerate(report.causes, 1):
        yield ""
        yield from _cause(report, cause, number, rules)


def _cause(report: LogReport, cause: Cause, number: int, rules: RuleSet) -> Iterator[str]:
    category = rules.categories.get(cause.category)
    where = f"{cause.file}:{cause.line}" if cause.file else f"line {cause.line}"
    rank = f", rank {cause.rank}" if cause.rank is not None else ""
    title = f": {category.title['en']}" if category and cause.category != "unknown" else ""
    yield f"{number}. {cause.category}{title}"
    yield f"   at {where}{rank}"
    if cause.category == "unknown":
        yield "   No rule names this failure; by the log's structure this is the line to start reading at."
    else:
        yield f"   because rule {cause.rule} fits that line (confidence {cause.confidence:.0%})"
    if cause.line is not None:
        yield ""
        yield from _lines(report, cause)
    if cause.tests:
        yield f"   tests: {', '.join(cause.tests[:10])}"
    if fix := cause.fix.get("en"):
        yield f"   do: {fix}"
    for step in category.steps["en"] if category and cause.category != "unknown" else ():
        yield f"     - {fill(step, {}, {name: words['en'] for name, words in category.captures.items()} if category else {})}"
    if cause.consequences:
        yield "   what follows from it, and is no failure of its own:"
        for item in cause.consequences[:SHOWN]:
            place = f"{item.file}:{item.line}" if item.file else f"line {item.line}"
            yield f"     {place}: {item.text.strip()[:160]}"
        if len(cause.consequences) > SHOWN:
            yield f"     and {len(cause.consequences) - SHOWN} more"
    yield f"   signature {cause.signature}: the same failure in another run has the same"


def _lines(report: LogReport, cause: Cause) -> Iterator[str]:
    line = cause.line or 1
    for shown in around(source(report, cause.file), [(line - BEFORE, line + AFTER)]):
        if shown.text is not None:
            mark = ">" if shown.no == line else " "
            yield f"   {mark} {shown.no:>7} | {shown.text[:200]}"
    yield ""
