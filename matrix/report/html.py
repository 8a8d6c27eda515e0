"""Writes report.html: one file that opens from disk, without scripts, in light and dark."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from urllib.parse import quote

from jinja2 import BaseLoader, ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from matrix.files import replace
from matrix.records import RunRecord
from matrix.report import svg, text
from matrix.report.view import cards, took, view, why
from matrix.triage.titles import title

NAME = "report.html"


def write(run: RunRecord, folder: Path) -> Path:
    """Write report.html of a run into its folder and return its path."""
    path = folder / NAME
    replace(path, render(run, folder))
    return path


def render(run: RunRecord, folder: Path) -> str:
    """Return the page as text. Everything that comes from the run is escaped."""
    pictures = {"timeline": svg.timeline(run), "graph": svg.graph(run)}
    return environment().get_template("report.html.j2").render(view=view(run, folder), run=run, **pictures)


def _link(path: str) -> str:
    return quote(path.encode("utf-8", "replace"), safe="/")


def _prose(value: str) -> Markup:
    """Escape a sentence of a rule page, and set what stands between backticks as code."""
    return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text.plain(value)))))  # noqa: S704 -- escaped above


@cache
def environment(*more: BaseLoader) -> Environment:
    """Return the environment of templates: the reports', and those that `more` finds."""
    made = Environment(
        loader=ChoiceLoader([*more, PackageLoader("matrix.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Whatever is printed goes through here first, so that no control character reaches the page.
        finalize=lambda value: text.plain(value) if type(value) is str else value,
    )
    made.filters |= {
        "link": _link,
        "prose": _prose,
        "duration": text.duration,
        "when": text.when,
        "size": text.size,
    }
    made.globals |= {"took": took, "why": why, "cards": cards, "count": text.count, "title": title}
    return made
