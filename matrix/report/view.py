"""What every report shows of a run: the verdict line, each failure with its evidence and what it blocked."""

from __future__ import annotations

import itertools
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from io import BufferedReader
from pathlib import Path

from matrix.records import BAD, FINAL, QUARANTINED, Attempt, JobRecord, RunRecord, Status
from matrix.report.seek import skip_lines
from matrix.report.text import count, duration, one_line
from matrix.triage.model import Cause

BEFORE, AFTER, MAX_EXCERPT, MAX_WIDTH = 3, 4, 16, 2000  # lines around the evidence, lines in all, bytes of a line
# What a runner (this one, and GitHub's) puts before each line.
_STAMP = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6,7}Z ")
_RUNNER = "[matrix] "  # what the runner says in a log, such as the stacks of a job that hangs, is shown whole
NOTES = frozenset({"loss_baseline", QUARANTINED})  # facts that a reader should see even of a job that passed
ORDER = (
    Status.ERROR,
    Status.FAILED,
    Status.TIMEOUT,
    Status.CANCELLED,
    Status.BLOCKED,
    Status.RUNNING,
    Status.PENDING,
    Status.PASSED,
    Status.SKIPPED,
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a log: its 1-based number, its text, and whether it is the evidence."""

    number: int
    text: str
    hit: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """A cause, the place of its evidence (path in the run folder, perhaps with `:line`) and the lines around it."""

    cause: Cause
    log: str
    where: str
    excerpt: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """A job that did not pass by its own fault, with the jobs that could not run because of it."""

    job: JobRecord
    attempt: Attempt | None
    evidence: tuple[Evidence, ...]
    blocked: tuple[JobRecord, ...]
    rerun: str

    @property
    def show(self) -> str:
        """Return the command that shows the lines of the log."""
        return self.rerun.replace("matrix rerun", "matrix show", 1)


@dataclass(frozen=True, slots=True)
class View:
    """A run as reports show it."""

    run: RunRecord
    headline: str
    failures: tuple[Failure, ...]  # those that count first, then allowed ones
    jobs: tuple[JobRecord, ...]  # all, the worst first


def view(run: RunRecord, folder: Path) -> View:
    """Gather what reports show. `folder` is the run's, for excerpts of its logs."""
    bad = [j for j in run.jobs if j.status in BAD]
    roots = {j.name: _roots(j, {b.name: b for b in bad}) for j in bad}
    failures = []
    for job in bad:
        if roots[job.name] != {job.name}:
            continue
        attempt = job.attempts[-1] if job.attempts else None
        followers = tuple(j for j in bad if j is not job and job.name in roots[j.name])
        evidence = tuple(_evidence(c, attempt, folder) for c in attempt.causes) if attempt else ()
        failures.append(Failure(job, attempt, evidence, followers, rerun_command(run, job.name)))
    failures.sort(key=lambda f: (f.job.allowed, ORDER.index(f.job.status)))
    jobs = sorted(run.jobs, key=lambda j: ORDER.index(j.status))
    return View(run, headline(run), tuple(failures), tuple(jobs))


def _roots(job: JobRecord, bad: dict[str, JobRecord]) -> set[str]:
    """Return the names of the jobs that a blocked job waits for in the end; its own if none of them is known."""
    roots, seen, waiting = set(), {job.name}, [job]
    while waiting:
        current = waiting.pop()
        above = [n for n in current.blocked_by if n in bad] if current.status is Status.BLOCKED else []
        if not above:
            roots.add(current.name)
        waiting += [bad[n] for n in above if n not in seen]
        seen.update(above)
    return roots or {job.name}


def headline(run: RunRecord) -> str:
    """Return the verdict in a line: what the run came to, and how many jobs came to what."""
    counted = Counter(j.status for j in run.jobs if not j.allowed or j.status not in BAD)
    allowed = sum(1 for j in run.jobs if j.allowed and j.status in BAD)
    parts = [f"{counted[s]} {s}" for s in ORDER if counted[s]]
    if allowed:
        parts.append(f"{allowed} allowed to fail")
    took = seconds(run.started, run.ended) if run.ended else None
    return f"{run.status}: {', '.join(parts) or 'no job'} of {count(len(run.jobs), 'job')}" + (
        f" in {duration(took)}" if took is not None else ""
    )


def rerun_command(run: RunRecord, job: str) -> str:
    """Return the exact command that runs one job of a run again."""
    return f"matrix rerun {shlex.quote(run.id)} {shlex.quote(job)}"


def seconds(started: str, ended: str | None, *, now: datetime | None = None) -> float | None:
    """Return the time between two ISO times, or until `now` if there is no second one; None if one is no time."""
    try:
        begin = _time(started)
        end = _time(ended) if ended else now
    except ValueError:
        return None
    return max(0.0, (end - begin).total_seconds()) if end else None


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def took(job: JobRecord) -> float | None:
    """Return how long a job ran, all its attempts together, None if it never did."""
    parts = [s for a in job.attempts if (s := seconds(a.started, a.ended)) is not None]
    return sum(parts) if parts else None


def least_left(run: RunRecord, expected: Mapping[str, float], now: datetime) -> float:
    """Return the seconds that a run takes at least from now on: the longest chain of what is not over, as known.

    A job whose time is not known counts as none, and nobody waits for a card: so it is a bound, not a guess.
    """
    left: dict[str, float] = {}
    jobs = {j.name: j for j in run.jobs if j.status not in FINAL}
    for _ in range(len(jobs) + 1):  # a chain is at most as long as there are jobs
        before = dict(left)
        for job in jobs.values():
            running = job.attempts[-1] if job.attempts and job.status is Status.RUNNING else None
            gone = (seconds(running.started, None, now=now) or 0.0) if running else 0.0
            own = max(0.0, expected.get(job.name, 0.0) - gone)
            left[job.name] = own + max((left.get(n, 0.0) for n in job.needs if n in jobs), default=0.0)
        if left == before:
            break
    return max(left.values(), default=0.0)


def cards(attempt: Attempt | None) -> str:
    """Write the cards of an attempt, as in `H20 #2,3`."""
    by_model: dict[str, list[str]] = {}
    for card in attempt.cards if attempt else []:
        by_model.setdefault(one_line(card.model), []).append(str(card.index))
    return ", ".join(f"{model} #{','.join(indices)}" for model, indices in by_model.items())


def why(job: JobRecord) -> str:
    """Return in a line why a job is what it is: its first cause, who blocks it, or the reason that was noted."""
    if job.status is Status.BLOCKED and job.blocked_by:
        return "blocked by " + ", ".join(job.blocked_by)
    if job.status is Status.PASSED:
        return one_line("; ".join([*filter(None, [job.reason]), *(str(f.value) for f in job.facts if f.key in NOTES)]))
    causes = job.attempts[-1].causes if job.attempts and job.status in BAD else []
    if causes:
        more = f" (and {count(len(causes) - 1, 'more cause')})" if len(causes) > 1 else ""
        text = f": {causes[0].text}" if causes[0].text else ""
        return one_line(causes[0].category + text) + more
    return one_line(job.reason or "")


def _evidence(cause: Cause, attempt: Attempt | None, folder: Path) -> Evidence:
    assert attempt is not None
    log = log_path(folder, attempt.log, cause.file)
    where = f"{log}:{cause.line}" if cause.line is not None else log
    lines = tuple(excerpt(folder, log, cause.line, cause.end_line)) if cause.line is not None else ()
    return Evidence(cause, log, where, lines)


def log_path(folder: Path, log: str, file: str | None) -> str:
    """Return the path in the run folder of a log; `file` names one of several that lie in it, or beside it."""
    if file is None:
        return log
    return f"{log.rstrip('/')}/{file}" if (folder / log).is_dir() else f"{log.rpartition('/')[0]}/{file}".lstrip("/")


def excerpt(folder: Path, log: str, line: int, end_line: int | None = None) -> Iterator[Line]:
    """Yield the lines around a line of a log; nothing if it is not there or lies outside the run folder."""
    top = folder.resolve()
    path = (top / log).resolve()
    if not path.is_relative_to(top) or not path.is_file():
        return
    last = min(max(end_line or line, line + AFTER), line + MAX_EXCERPT)
    first = max(1, line - BEFORE)
    with path.open("rb") as f:
        skip_lines(f, first - 1)
        for number, raw in enumerate(itertools.islice(_lines(f), line + MAX_EXCERPT - first + 1), first):
            text = _STAMP.sub("", raw.decode("utf-8", "replace").rstrip("\r\n"))
            if number > last and not text.startswith(_RUNNER):
                return
            yield Line(number, text, number == line)


def tail(folder: Path, log: str, count: int) -> list[str]:
    """Return the last lines of a log; none if it is not there or lies outside the run folder."""
    top = folder.resolve()
    path = (top / log).resolve()
    if not path.is_relative_to(top) or not path.is_file():
        return []
    with path.open("rb") as f:
        length = f.seek(0, 2)
        f.seek(max(0, length - count * MAX_WIDTH))
        lines = f.read(count * MAX_WIDTH).split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    return [raw[:MAX_WIDTH].decode("utf-8", "replace").rstrip("\r") for raw in lines[-count:]]


def _lines(f: BufferedReader) -> Iterator[bytes]:
    """Yield lines of which at most MAX_WIDTH bytes are kept, however long they are."""
    while raw := f.readline(MAX_WIDTH):
        rest = raw
        while rest and not rest.endswith(b"\n"):
            rest = f.readline(1 << 16)
        yield raw


def finished(run: RunRecord) -> int:
    """Return how many jobs are over."""
    return sum(1 for j in run.jobs if j.status in FINAL)
