"""From a run record on disk (`run.json`, schema run/1) to a board."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

from bot.board import (
    Board,
    Evidence,
    Finding,
    KnownFact,
    Past,
    Row,
    RunRef,
    Waiting,
    by_importance,
    fold_cascades,
    is_bad,
)
from matrix.masking import shown_line
from matrix.records import FINAL, QUARANTINED, Attempt, JobRecord, RunRecord, Status
from matrix.triage.model import Cause

ReadLines = Callable[[str, int, int], str]  # (path inside the run folder, first line, last line) -> text
_BEFORE, _AFTER, _LONGEST = 4, 6, 40  # lines of an excerpt around the evidence


def no_lines(_path: str, _first: int, _last: int) -> str:
    """Stand-in where the logs are not at hand."""
    return ""


def lines_of_folder(folder: Path) -> ReadLines:
    """Read excerpts from a run folder; never leaves the folder, never reads more than asked for."""
    top = folder.resolve()

    def read(path: str, first: int, last: int) -> str:
        full = (top / path).resolve()
        if not full.is_relative_to(top) or not full.is_file():
            return ""
        with full.open("rb") as f:
            return "".join(shown_line(line) + "\n" for line in itertools.islice(f, max(0, first - 1), last))

    return read


def log_path(attempt: Attempt, file: str | None) -> str:
    """Path of the log that holds a cause: the attempt's own, or a rank's beside it."""
    return attempt.log if file is None else f"{attempt.log.rpartition('/')[0]}/{file}".lstrip("/")


def _finding(cause: Cause, attempt: Attempt, read: ReadLines, base_url: str | None) -> Finding:
    path = log_path(attempt, cause.file)

    def evidence(text: str, line: int | None, file: str | None) -> Evidence:
        where = log_path(attempt, file)
        url = f"{base_url.rstrip('/')}/{quote(where)}" if base_url else None
        if line is None:
            return Evidence(text, where, url)
        return Evidence(text, f"{where}:{line}", f"{url}#L{line}" if url else None)

    excerpt = ""
    if cause.line is not None:
        last = min(max(cause.end_line or cause.line, cause.line + _AFTER), cause.line + _LONGEST)
        excerpt = read(path, cause.line - _BEFORE, last)
    return Finding(
        category=cause.category,
        evidence=evidence(cause.text, cause.line, cause.file),
        rule=cause.rule,
        confidence=cause.confidence,
        signature=cause.signature,
        rank=cause.rank,
        fix=cause.fix,
        tests=tuple(cause.tests),
        consequences=tuple(evidence(c.text, c.line, c.file) for c in cause.consequences),
        excerpt=excerpt,
    )


def row_of(job: JobRecord, read: ReadLines, base_url: str | None) -> Row:
    """Return the row of one job that did not pass."""
    attempt = job.attempts[-1] if job.attempts else None
    return Row(
        job=job.name,
        suite=job.suite,
        status=job.status,
        attempt=attempt.n if attempt else 1,
        findings=tuple(_finding(c, attempt, read, base_url) for c in attempt.causes) if attempt else (),
        verdict=job.verdict.value if job.verdict else "cannot-tell",
        compared=tuple(job.verdict.compared) if job.verdict else (),
        failing_tests=tuple(job.failing_tests),
        facts=known_facts(job),
        needs=tuple(job.needs),
        blocked_by=tuple(job.blocked_by),
        allowed=job.allowed,
        reason=job.reason or "",
    )


def known_facts(job: JobRecord) -> tuple[KnownFact, ...]:
    """Return what a job reported of itself, and what the history knows of its failure."""
    return tuple(KnownFact(f.name, _shown(f.value), f.source or "") for f in job.facts)


def quarantined(run: RunRecord) -> tuple[tuple[str, str], ...]:
    """Return the failures that do not count, job by job: also of jobs that passed."""
    return tuple((job.name, _shown(f.value)) for job in run.jobs for f in job.facts if f.key == QUARANTINED)


def _history(run: RunRecord, base_url: str | None) -> tuple[Past, ...]:
    """List attempts before the last one of any job, newest first: what failed then and how many passed."""
    tried = [(job, attempt) for job in run.jobs for attempt in job.attempts[:-1]]
    past = []
    for n in sorted({attempt.n for _, attempt in tried}, reverse=True):
        then = [(job, attempt) for job, attempt in tried if attempt.n == n]
        failed = tuple(job.name for job, attempt in then if attempt.status is None or is_bad(attempt.status))
        past.append(Past(run.id, n, failed, len(then) - len(failed), base_url))
    return tuple(past)


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def board_of_record(
    run: RunRecord, *, read: ReadLines = no_lines, base_url: str | None = None, web: str | None = None
) -> Board:
    """Build the board of one `matrix run`. `base_url` is where the run folder can be browsed, `web` the repository's
    page.
    """
    counts: Mapping[Status, int] = Counter(job.status for job in run.jobs)
    queued = [job for job in run.jobs if job.status is Status.PENDING]
    return Board(
        head=run.commit,
        base=run.base,
        runs=(
            RunRef(
                id=run.id,
                attempt=max((a.n for job in run.jobs for a in job.attempts), default=1),
                done=sum(job.status in FINAL for job in run.jobs),
                label=run.id,
                url=base_url,
                status=run.status,
            ),
        ),
        rows=by_importance(fold_cascades([row_of(job, read, base_url) for job in run.jobs if is_bad(job.status)])),
        waiting=tuple(
            Waiting(
                job.name,
                job.suite,
                job.status is Status.RUNNING,
                queued.index(job) + 1 if job in queued else None,
                job.reason or "",
            )
            for job in run.jobs
            if job.status not in FINAL
        ),
        counts=counts,
        history=_history(run, base_url),
        quarantined=quarantined(run),
        web=web,
    )
