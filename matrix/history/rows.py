"""A run's record as rows of the history. Pure: record in, rows out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Table

from matrix.history import schema
from matrix.junit_file import TestResult
from matrix.records import Attempt, JobRecord, RunRecord

Row = dict[str, Any]


@dataclass
class Rows:
    """The rows of one run, table by table."""

    run: Row
    jobs: list[Row] = field(default_factory=list)
    attempts: list[Row] = field(default_factory=list)
    causes: list[Row] = field(default_factory=list)
    test_results: list[Row] = field(default_factory=list)
    card_uses: list[Row] = field(default_factory=list)
    coverage: list[Row] = field(default_factory=list)

    def tables(self) -> Iterator[tuple[Table, list[Row]]]:
        """Tables and rows in the order in which they may be inserted."""
        yield schema.jobs, self.jobs
        yield schema.attempts, self.attempts
        yield schema.causes, self.causes
        yield schema.test_results, self.test_results
        yield schema.card_uses, self.card_uses
        yield schema.coverage, self.coverage


def rows_of(
    run: RunRecord, *, folder: str | None = None, tests: Mapping[tuple[str, int], list[TestResult]] | None = None
) -> Rows:
    """Turn a run record into rows. `tests` holds the results by (job, attempt); `folder` is where the logs are."""
    started = seconds(run.started)
    rows = Rows(
        run={
            "id": run.id,
            "repository": run.repository or "",
            "commit": run.exact_commit,
            "base": run.base,
            "branch": run.branch,
            "pr": run.pr,
            "author": run.author,
            "engine": run.engine,
            "host": run.host,
            "spec_sha256": run.spec.sha256,
            "started": started,
            "ended": seconds(run.ended) if run.ended else None,
            "status": run.status.value,
            "changed_files": run.changed_files,
            "folder": folder,
        }
    )
    for job in run.jobs:
        rows.jobs.append(_job_row(run, job, started))
        for attempt in job.attempts:
            _add_attempt(rows, run, job, attempt, started)
            for name, t in {_short(t.test): t for t in (tests or {}).get((job.name, attempt.n), [])}.items():
                rows.test_results.append(
                    _key(run, job, attempt)
                    | {"test": name, "outcome": t.outcome, "seconds": t.seconds, "started": started}
                )
    return rows


def seconds(iso: str) -> float:
    """Seconds since 1970 of an ISO time.

    Raises:
        ValueError: not an ISO time.

    """
    found = datetime.fromisoformat(iso)
    # Without a zone it is UTC: the same record means the same time on every host.
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _short(test: str) -> str:
    """Cut a name to the width of its column; two names that begin alike stay two."""
    if len(test) <= 500:
        return _clean(test)
    return _clean(test[:467]) + "#" + hashlib.sha256(test.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _job_row(run: RunRecord, job: JobRecord, started: float) -> Row:
    models = {c.model for a in job.attempts for c in a.cards}
    return {
        "run_id": run.id,
        "name": job.name,
        "suite": job.suite,
        "status": job.status.value,
        "allowed": job.allowed,
        "blocked_by": job.blocked_by,
        "verdict": job.verdict.value if job.verdict else None,
        "card_model": models.pop() if len(models) == 1 else None,
        "started": started,
    }


def _key(run: RunRecord, job: JobRecord, attempt: Attempt) -> Row:
    return {"run_id": run.id, "job": job.name, "attempt": attempt.n}


def _add_attempt(rows: Rows, run: RunRecord, job: JobRecord, attempt: Attempt, started: float) -> None:
    begun, ended = seconds(attempt.started), seconds(attempt.ended) if attempt.ended else None
    rows.attempts.append(
        {
            "run_id": run.id,
            "job": job.name,
            "n": attempt.n,
            "status": (attempt.status or job.status).value,
            "exit_code": attempt.exit_code,
            "signal": attempt.signal,
            "started": begun,
            "ended": ended,
            "peak_memory": attempt.peak_memory,
            "log": attempt.log,
        }
    )
    for position, cause in enumerate(attempt.causes):
        rows.causes.append(
            _key(run, job, attempt)
            | cause.model_dump(include={"category", "rule", "confidence", "file", "line", "rank", "tests", "signature"})
            | {"position": position, "text": _clean(cause.text), "started": started}
        )
    for card in attempt.cards:
        rows.card_uses.append(
            _key(run, job, attempt) | card.model_dump() | {"host": run.host, "started": begun, "ended": ended}
        )


def _clean(text: str) -> str:
    # PostgreSQL stores no NUL; a log may hold one.
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")
