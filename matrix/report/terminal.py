"""Shows a run while it goes on and sums it up at its end: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from matrix.records import FINAL, JobRecord, RunRecord, Status
from matrix.report.text import count, duration, one_line, plain
from matrix.report.view import ORDER, Evidence, Failure, cards, finished, least_left, seconds, took, view, why

STYLES = {
    Status.PASSED: "green",
    Status.FAILED: "bold red",
    Status.TIMEOUT: "bold red",
    Status.ERROR: "bold red",
    Status.CANCELLED: "yellow",
    Status.BLOCKED: "yellow",
    Status.RUNNING: "cyan",
    Status.PENDING: "dim",
    Status.SKIPPED: "dim",
}
_LIVE_ORDER = sorted(Status, key=lambda s: (s is not Status.RUNNING, ORDER.index(s)))
_DETAILED, _CAUSES, _FACTS, _TESTS = 20, 4, 10, 8  # failures shown with excerpts; causes, facts, tests of each


def make_console(*, stderr: bool = False, env: Mapping[str, str] = os.environ) -> Console:
    """Return a console that never fails on a character which its encoding lacks, and is wide where nothing wraps."""
    stream = sys.stderr if stderr else sys.stdout
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="replace")
    width = None if stream.isatty() or "COLUMNS" in env else 200
    return Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=False, width=width)


def interactive(console: Console, env: Mapping[str, str] = os.environ) -> bool:
    """Tell whether a table can be redrawn in place: a real terminal, and no CI that keeps what is written."""
    return console.is_terminal and not console.is_dumb_terminal and not env.get("CI") and not env.get("GITHUB_ACTIONS")


class Live:
    """Shows a run as it goes. Call `update` after each change of the record; use as a context manager."""

    def __init__(
        self,
        run: RunRecord,
        *,
        expected: Mapping[str, float] | None = None,
        console: Console | None = None,
        env: Mapping[str, str] = os.environ,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.run = run
        self.expected = expected or {}
        self.console = console or make_console(stderr=True, env=env)
        self._now = now
        self._shown: dict[str, tuple[Status, int, bool]] = {}
        self._live: RichLive | None = None
        if interactive(self.console, env):
            self._live = RichLive(get_renderable=self.table, console=self.console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        """Begin to show the run."""
        if self._live:
            self._live.start()
        self.update()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last state of the lines, or take the table away: the summary stands for it."""
        self.update()
        if self._live:
            self._live.stop()

    def update(self, run: RunRecord | None = None) -> None:
        """Show what has changed."""
        self.run = run or self.run
        if self._live:
            self._live.refresh()
            return
        for job in self.run.jobs:
            # The nodes of a cluster are known once the queue has let a job begin.
            placed = job.status is Status.RUNNING and bool(job.attempts and job.attempts[-1].hosts)
            state = (job.status, len(job.attempts), placed)
            if self._shown.get(job.name, (Status.PENDING, 0, False)) != state:
                self._shown[job.name] = state
                self.console.print(Text(self.line(job)), soft_wrap=True)

    def line(self, job: JobRecord) -> str:
        """Return the plain line that tells of a job's new state."""
        attempt = job.attempts[-1] if job.attempts else None
        parts = [f"{self._now():%H:%M:%SZ}", one_line(job.name), str(job.status)]
        if attempt and attempt.n > 1 and job.status is not Status.PENDING:
            parts.append(f"(attempt {attempt.n})")
        if job.status is Status.RUNNING:
            places = [*map(one_line, attempt.hosts), *filter(None, [cards(attempt)])] if attempt else []
            parts.append(f"on {', '.join(places)}" if places else "")
            parts.append(f"expected {duration(expected)}" if (expected := self.expected.get(job.name)) else "")
        elif attempt and job.status in FINAL and (time := seconds(attempt.started, attempt.ended)) is not None:
            parts.append(f"after {duration(time)}")
        reason = why(job)
        if job.status is Status.BLOCKED and reason.startswith("blocked"):
            parts.pop()
            return _unhook(" ".join([*parts, reason]))
        return _unhook(" ".join(p for p in parts if p) + (f": {reason}" if reason else ""))

    def table(self) -> RenderableType:
        """Return the table of all jobs, those that run first, as far as the terminal is high."""
        jobs = sorted(self.run.jobs, key=lambda j: _LIVE_ORDER.index(j.status))
        room = max(3, self.console.height - 4)
        shown, rest = (jobs, []) if len(jobs) <= room else (jobs[: room - 1], jobs[room - 1 :])
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", expand=True)
        table.add_column("Job", no_wrap=True, overflow="ellipsis", max_width=40)
        table.add_column("State", no_wrap=True)
        table.add_column("Card", no_wrap=True, overflow="ellipsis", max_width=24)
        table.add_column("Elapsed", no_wrap=True, justify="right")
        table.add_column("Expected", no_wrap=True, justify="right")
        table.add_column("", no_wrap=True, overflow="ellipsis", ratio=1)
        for job in shown:
            table.add_row(*self._row(job))
        left = Counter(j.status for j in rest)
        more = [Text("and " + ", ".join(f"{n} {s}" for s, n in left.items()), "dim")] if rest else []
        return Group(self._title(), table, *more)

    def _row(self, job: JobRecord) -> tuple[Text, ...]:
        attempt = job.attempts[-1] if job.attempts else None
        running = job.status is Status.RUNNING
        elapsed = seconds(attempt.started, None, now=self._now()) if attempt and running else took(job)
        expected = self.expected.get(job.name)
        late = running and elapsed is not None and expected is not None and elapsed > 1.5 * expected
        return (
            Text(one_line(job.name)),
            Text(str(job.status), STYLES[job.status]),
            Text(cards(attempt), "dim"),
            Text(duration(elapsed) if elapsed is not None else "", "yellow" if late else ""),
            Text(duration(expected) if expected else "", "dim"),
            Text(why(job), "dim"),
        )

    def _title(self) -> Text:
        time = seconds(self.run.started, self.run.ended, now=self._now())
        done = f"{finished(self.run)} of {count(len(self.run.jobs), 'job')} done"
        left = least_left(self.run, self.expected, self._now())
        parts = [
            done,
            duration(time) if time is not None else "",
            f"at least {duration(round(left))} more" if left else "",
        ]
        return Text(" · ".join([*filter(None, parts), f"run {self.run.id}"]), "bold")


def summary(run: RunRecord, folder: Path, console: Console | None = None) -> None:
    """Print what the run came to: the verdict, each failure with its evidence and what it blocked, the way on."""
    console = console or make_console()
    seen = view(run, folder)
    console.print()
    for n, failure in enumerate(seen.failures):
        _print_failure(console, failure, detailed=n < _DETAILED)
    for job in run.jobs:
        if job.status is Status.PASSED and (note := why(job)):
            console.print(
                Text.assemble(("note ", "cyan"), (one_line(job.name), "bold"), f": {_unhook(note)}"), soft_wrap=True
            )
    for notice in run.notices:
        console.print(Text(f"NOTICE {_unhook(one_line(notice, 1000))}", "bold yellow"), soft_wrap=True)
    status, _, rest = seen.headline.partition(":")
    console.print(Text.assemble((status, STYLES[run.status]), f":{rest}"), soft_wrap=True)
    if any(not f.job.allowed for f in seen.failures):
        console.print(Text.assemble(("all of them again: ", "dim"), f"matrix rerun {run.id} --failed"), soft_wrap=True)
    console.print(Text.assemble(("report: ", "dim"), _unhook(str(folder / "report.html"))), soft_wrap=True)


def _print_failure(console: Console, failure: Failure, *, detailed: bool) -> None:
    job, attempt = failure.job, failure.attempt
    facts = [plain(job.suite)]
    if attempt:
        facts += [attempt.signal or (f"exit {attempt.exit_code}" if attempt.exit_code is not None else "")]
        facts += [cards(attempt)]
    if job.allowed:
        facts.append("allowed to fail")
    head = Text.assemble((str(job.status), STYLES[job.status]), " ", (one_line(job.name), "bold"), "  ")
    head.append(_unhook(one_line(" · ".join(f for f in facts if f))), "dim")
    console.print(head, soft_wrap=True)
    for evidence in failure.evidence[:_CAUSES]:
        print_evidence(console, evidence, detailed=detailed)
    if len(failure.evidence) > _CAUSES:
        console.print(Text(f"  and {count(len(failure.evidence) - _CAUSES, 'more cause')}, see the report", "dim"))
    if not failure.evidence:
        note = why(job) or (f"see {attempt.log}" if attempt else "")
        console.print(Text(f"  {_unhook(note)}"), soft_wrap=True)
    for test in job.failing_tests[:_TESTS]:
        console.print(Text(f"  failing test: {_unhook(one_line(test))}"), soft_wrap=True)
    if len(job.failing_tests) > _TESTS:
        console.print(Text(f"  and {count(len(job.failing_tests) - _TESTS, 'more failing test')}, see the report"))
    for fact in job.facts[:_FACTS]:
        source = f"  {_unhook(one_line(fact.source))}" if fact.source else ""
        text = _unhook(one_line(fact.said()))
        console.print(Text.assemble(f"  {text}", (source, "dim")), soft_wrap=True)
    if job.verdict and job.verdict.value != "cannot-tell":
        compared = f" ({one_line('; '.join(job.verdict.compared))})" if job.verdict.compared else ""
        console.print(Text.assemble(f"  verdict: {job.verdict.value}", (_unhook(compared), "dim")), soft_wrap=True)
    if failure.blocked:
        names = ", ".join(one_line(j.name) for j in failure.blocked)
        console.print(Text.assemble(("  blocked by this: ", "yellow"), _unhook(names)), soft_wrap=True)
    if not detailed and any(e.excerpt for e in failure.evidence):
        console.print(Text.assemble(("  lines of the log: ", "dim"), _unhook(failure.show)), soft_wrap=True)
    console.print(Text.assemble(("  run it again: ", "dim"), _unhook(failure.rerun)), soft_wrap=True)
    console.print()


def print_evidence(console: Console, evidence: Evidence, *, detailed: bool) -> None:
    """Print a cause: its category and place, its text, the lines around it if `detailed`, and what to do."""
    cause = evidence.cause
    rank = f" rank {cause.rank}" if cause.rank is not None else ""
    where = _unhook(one_line(evidence.where))
    console.print(Text.assemble(("  " + one_line(cause.category), "red"), (f"{rank}  {where}", "dim")), soft_wrap=True)
    said = any(row.hit and one_line(cause.text, 80).rstrip("…") in one_line(row.text, 4000) for row in evidence.excerpt)
    if not said or not detailed:
        console.print(Text(f"    {_unhook(one_line(cause.text, 600))}"), soft_wrap=True)
    for row in evidence.excerpt if detailed else ():
        text = f"    {'>' if row.hit else ' '}{row.number:>6} │ {_unhook(plain(row.text).expandtabs(4))}"
        console.print(Text(text, "bold" if row.hit else "dim"), no_wrap=True, overflow="ellipsis", crop=True)
    if fix := cause.fix.get("en"):
        console.print(Text.assemble(("    fix: ", "green"), _unhook(one_line(fix, 600))), soft_wrap=True)


def _unhook(text: str) -> str:
    """Break what GitHub's runner takes for a command: `::` at the start of a line, `##[` anywhere in it."""
    return re.sub(r"^(?=\s*::)", "\u200b", plain(text)).replace("##[", "##\u200b[")
