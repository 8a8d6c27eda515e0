"""What `matrix show` prints: the runs that are there, one run, one job of a run."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from matrix.records import BAD, Attempt, JobRecord, RunRecord, Status
from matrix.report import terminal
from matrix.report.text import duration, one_line, plain, size, when
from matrix.report.view import ORDER, cards, rerun_command, seconds, tail, took, view, why

_WITH_COMMIT = 100  # columns from which on commits are listed
_TAIL = 25  # lines of a log that are shown where nothing points into it


@dataclass(frozen=True, slots=True)
class Listed:
    """A run that is there; without a record if it cannot be read."""

    id: str
    run: RunRecord | None
    going: bool = False


def print_runs(console: Console, runs: Sequence[Listed]) -> None:
    """Print a line a run."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("Run", "State", "Started", "Took"):
        table.add_column(name, no_wrap=True, overflow="ellipsis")
    table.add_column("Jobs")  # the one that is folded where the terminal is narrow
    wide = console.width >= _WITH_COMMIT
    if wide:
        table.add_column("Commit", no_wrap=True)
    for listed in runs:
        run = listed.run
        if run is None:
            table.add_row(Text(one_line(listed.id)), Text("unreadable", "yellow"))
            continue
        counts = Counter(j.status for j in run.jobs)
        time = seconds(run.started, run.ended)
        row = [
            Text(one_line(listed.id)),
            _state(listed),
            Text(_day(run.started)),
            Text(duration(time) if time is not None else ""),
            Text(", ".join(f"{counts[s]} {s}" for s in ORDER if counts[s])),
        ]
        table.add_row(*row, *([Text(one_line(run.commit or "")[:10], "dim")] if wide else []))
    console.print(table)


def _day(iso: str) -> str:
    """Write a time to the minute: `matrix show RUN` has the rest."""
    return re.sub(r":\d\d UTC$", " UTC", one_line(when(iso)))


def _state(listed: Listed) -> Text:
    """Name a run's status; one that no runner works on any more was broken off."""
    assert listed.run is not None
    if listed.run.status is Status.RUNNING and not listed.going:
        return Text("broken off", "yellow")
    return Text(str(listed.run.status), terminal.STYLES[listed.run.status])


def print_run(console: Console, run: RunRecord, folder: Path) -> None:
    """Print all jobs of a run, then what `matrix run` said at its end."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for name in ("Job", "State", "Took", "Tries", "Suite"):
        table.add_column(
            name, no_wrap=True, overflow="ellipsis", justify="right" if name in ("Took", "Tries") else "left"
        )
    for job in view(run, folder).jobs:
        time = took(job)
        table.add_row(
            Text(one_line(job.name)),
            Text(str(job.status), terminal.STYLES[job.status]),
            Text(duration(time) if time is not None else ""),
            Text(str(len(job.attempts) or "")),
            Text(one_line(job.suite), "dim"),
        )
    console.print(table)
    terminal.summary(run, folder, console)


def print_job(console: Console, run: RunRecord, job: JobRecord, folder: Path) -> None:
    """Print all that is known of a job: its attempts, its causes with their excerpts, its facts, the way on."""
    console.print(
        Text.assemble((one_line(job.name), "bold"), "  ", (str(job.status), terminal.STYLES[job.status]), "  "),
        Text(one_line(job.suite), "dim"),
        soft_wrap=True,
    )
    if reason := job.reason or (why(job) if job.status is Status.BLOCKED else ""):
        console.print(Text("  " + one_line(reason)), soft_wrap=True)
    for attempt in job.attempts:
        console.print(Text("  " + _attempt(attempt)), soft_wrap=True)
    failure = next((f for f in view(run, folder).failures if f.job is job), None)
    if failure and failure.evidence:
        console.print()
        for evidence in failure.evidence:
            terminal.print_evidence(console, evidence, detailed=True)
    elif job.attempts:
        _print_tail(console, folder, job.attempts[-1].log)
    for test in job.failing_tests:
        console.print(Text(f"  failing test: {one_line(test)}"), soft_wrap=True)
    for fact in job.facts:
        console.print(Text(f"  {one_line(fact.said())}"), soft_wrap=True)
    if job.verdict:
        compared = f" ({one_line('; '.join(job.verdict.compared))})" if job.verdict.compared else ""
        console.print(Text(f"  verdict: {job.verdict.value}{compared}"), soft_wrap=True)
    if failure and failure.blocked:
        console.print(
            Text("  blocked by this: " + ", ".join(one_line(j.name) for j in failure.blocked)), soft_wrap=True
        )
    if job.status in BAD or job.attempts:
        console.print(Text.assemble(("  run it again: ", "dim"), rerun_command(run, job.name)), soft_wrap=True)


def _attempt(attempt: Attempt) -> str:
    time = seconds(attempt.started, attempt.ended)
    parts = [
        f"attempt {attempt.n}",
        str(attempt.status or ""),
        attempt.signal or (f"exit {attempt.exit_code}" if attempt.exit_code is not None else ""),
        duration(time) if time is not None else "",
        cards(attempt),
        f"peak {size(attempt.peak_memory)}" if attempt.peak_memory else "",
        one_line(attempt.log),
    ]
    return " · ".join(p for p in parts if p)


def _print_tail(console: Console, folder: Path, log: str) -> None:
    rows = tail(folder, log, _TAIL)
    if not rows:
        return
    console.print(Text(f"\n  the end of {one_line(log)}:", "dim"), soft_wrap=True)
    for text in rows:
        console.print(Text(f"    │ {plain(text).expandtabs(4)}"), no_wrap=True, overflow="ellipsis", crop=True)
