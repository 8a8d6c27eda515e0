"""What a workflow of GitHub Actions shows of a run: error annotations on its log, and the job summary."""

from __future__ import annotations

import html
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from matrix.records import JobRecord, RunRecord
from matrix.report.text import duration, one_line, plain
from matrix.report.view import Evidence, Failure, View, took, view, why

MAX_ANNOTATIONS = 10  # of one kind that GitHub shows for a step
MAX_SUMMARY = 900_000  # bytes; GitHub drops a step's summary above 1 MiB
_MARKDOWN = re.compile(r"[\\`*_{}\[\]()#+\-.!|~@:^$/=]")


def write(run: RunRecord, folder: Path, env: Mapping[str, str] = os.environ, out: TextIO | None = None) -> None:
    """Write annotations to `out` (standard output) and append to $GITHUB_STEP_SUMMARY; nothing outside of GitHub."""
    seen = view(run, folder)
    if env.get("GITHUB_ACTIONS") == "true":
        for line in error_lines(seen):
            print(line, file=out or sys.stdout, flush=True)
    if target := env.get("GITHUB_STEP_SUMMARY"):
        with Path(target).open("a", encoding="utf-8", errors="replace") as f:
            f.write(summary(seen))


def error_lines(seen: View) -> list[str]:
    """Return one `::error` line a failure, `::warning` for one that is allowed, escaped for the runner."""
    lines = []
    for failure in seen.failures[:MAX_ANNOTATIONS]:
        job, first = failure.job, failure.evidence[0] if failure.evidence else None
        title = f"{job.name}: {first.cause.category if first else job.status}"
        message = (first.cause.text if first else why(job)) or f"{job.name} is {job.status}"
        if first:
            message += f"\n{first.where}"
        if failure.blocked:
            message += "\nblocked by this: " + ", ".join(j.name for j in failure.blocked)
        message += f"\nrun it again: {failure.rerun}"
        level = "warning" if job.allowed else "error"
        lines.append(command(level, message, title=one_line(title, 200)))
    notices = seen.run.notices[:MAX_ANNOTATIONS]
    return [*lines, *(command("warning", notice, title="notice") for notice in notices)]


def command(name: str, message: str, **properties: str) -> str:
    r"""Return a workflow command in which neither message nor properties can begin another.

    >>> command("error", "50%\n::set-env name=A::b", title="a,b:c")
    '::error title=a%2Cb%3Ac::50%25%0A::set-env name=A::b'
    """
    shown = ",".join(f"{key}={_property(plain(value))}" for key, value in properties.items())
    return f"::{name}{' ' + shown if shown else ''}::{_data(plain(message))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def summary(seen: View) -> str:
    """Return the job summary in Markdown, no longer than GitHub takes. All text of the run is inert in it."""
    run = seen.run
    facts = " · ".join(f"{key} {_code(value)}" for key, value in (("run", run.id), ("commit", run.commit)) if value)
    parts = [f"## {_inert(seen.headline)}\n\n{facts}\n\n"]
    parts += [f"**Notice:** {_inert(notice)}\n\n" for notice in run.notices[:50]]
    rows = "".join(_row(job) for job in seen.jobs[:500])
    parts.append("<table>\n<tr><th>Job</th><th>State</th><th>Took</th><th>Why</th></tr>\n" + rows + "</table>\n\n")
    size = sum(len(p.encode("utf-8", "replace")) for p in parts)
    for n, failure in enumerate(seen.failures):
        part = _failure(failure)
        size += len(part.encode("utf-8", "replace"))
        if size > MAX_SUMMARY:
            parts.append(f"{len(seen.failures) - n} more failures are in the report.\n")
            break
        parts.append(part)
    return "".join(parts)


def _row(job: JobRecord) -> str:
    time, reason = took(job), why(job)
    cells = (
        _code(job.name),
        str(job.status) + (" (allowed)" if job.allowed else ""),
        duration(time) if time is not None else "",
        _code(reason) if reason else "",
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>\n"


def _failure(failure: Failure) -> str:
    text = f"### {_code(failure.job.name)}\n\n" + "".join(_evidence(e) for e in failure.evidence[:5])
    if failure.job.failing_tests:
        text += "".join(f"- {_code(test)}\n" for test in failure.job.failing_tests[:50]) + "\n"
    if failure.blocked:
        text += "Blocked by this: " + ", ".join(_code(j.name) for j in failure.blocked) + "\n\n"
    return text + f"Run it again: {_code(failure.rerun)}\n\n"


def _evidence(evidence: Evidence) -> str:
    cause = evidence.cause
    text = f"**{_inert(cause.category)}** {_code(evidence.where)}\n\n{_code(cause.text)}\n\n"
    if evidence.excerpt:
        rows = "\n".join(f"{'>' if r.hit else ' '}{r.number:>6} | {plain(r.text)[:500]}" for r in evidence.excerpt)
        text += f"<pre>{html.escape(rows)}</pre>\n\n"
    if fix := cause.fix.get("en"):
        text += f"{_inert(one_line(fix, 600))}\n\n"
    return text


def _inert(text: str) -> str:
    """Return text on one line as entities wherever HTML or Markdown could see more in it than text."""
    return _MARKDOWN.sub(lambda m: f"&#{ord(m[0])};", html.escape(one_line(text, 1000), quote=False))


def _code(text: str) -> str:
    return f"<code>{_inert(text)}</code>"
