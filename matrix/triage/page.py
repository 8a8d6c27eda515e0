"""A page that shows a log with its causes marked, jump links to them, and everything else folded away."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from matrix.triage.excerpt import Shown, around, source
from matrix.triage.model import Cause, LogReport
from matrix.triage.ruleset import RuleSet

NEAR_CAUSE, NEAR_CONSEQUENCE, ENDS = (60, 30), (3, 3), 25


def page(report: LogReport, rules: RuleSet) -> str:
    """One HTML page, whole in itself."""
    logs = []
    for path, file in _files(report):
        causes = [c for c in report.causes if c.file == file]
        follow = {i.line: i.category for c in report.causes for i in c.consequences if i.file == file}
        total = report.lines if file is None else 0
        logs.append(
            {
                "name": file or Path(report.path).name,
                "lines": _marked(around(path, _ranges(causes, follow, total)), causes, follow),
            }
        )
    titles = {
        c.category: rules.categories[c.category].title["en"] for c in report.causes if c.category in rules.categories
    }
    return str(_template().render(report=report, logs=logs, titles=titles))


def _files(report: LogReport) -> list[tuple[str, str | None]]:
    names = dict.fromkeys([c.file for c in report.causes] + [i.file for c in report.causes for i in c.consequences])
    if not names:
        return [] if Path(report.path).is_dir() or report.path == "-" else [(report.path, None)]
    return [(source(report, name), name) for name in names]


def _ranges(causes: list[Cause], follow: dict[int, str], total: int) -> list[tuple[int, int]]:
    ranges = [(1, ENDS)]
    if total:
        ranges.append((total - ENDS, total))
    for cause in causes:
        low = cause.line or 1
        high = max(low, min(cause.end_line or 0, low + 400))
        ranges += [(low - NEAR_CAUSE[0], high + NEAR_CAUSE[1])]
    ranges.extend((no - NEAR_CONSEQUENCE[0], no + NEAR_CONSEQUENCE[1]) for no in follow)
    return ranges


def _marked(lines: list[Shown], causes: list[Cause], follow: dict[int, str]) -> list[dict[str, Any]]:
    at = {c.line: c.category for c in causes}
    return [
        {"no": s.no, "last": s.last, "text": s.text, "cause": at.get(s.no), "follow": follow.get(s.no)} for s in lines
    ]


@functools.lru_cache(maxsize=1)
def _template() -> Any:
    import jinja2  # noqa: PLC0415 - only pages need it

    folder = Path(__file__).parent / "templates"
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("log.html")
