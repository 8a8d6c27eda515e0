"""How often a job failed in one way at commits at which it was well."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, and_, func, select

from matrix.history import schema

_WEIGHT = 50  # runs that the past counts at most: rates change


def seen_at(c: Connection, *, repository: str, job: str, signature: str, commits: Sequence[str]) -> tuple[int, int]:
    """Return how often the job failed with a signature at these commits, and in how many runs it did or passed."""
    r, a, causes = schema.runs, schema.attempts, schema.causes
    alike = causes.c.signature == signature
    first = and_(
        causes.c.run_id == a.c.run_id, causes.c.job == a.c.job, causes.c.attempt == a.c.n, causes.c.position == 0
    )
    statement = (
        select(func.count().filter(alike), func.count().filter(a.c.status == "passed"))
        .select_from(a)
        .join(r, r.c.id == a.c.run_id)
        .outerjoin(causes, first)
        .where(a.c.job == job, r.c.repository == repository, r.c.commit.in_(commits))
    )
    failed, passed = c.execute(statement).one()
    ran = failed + passed
    return (failed, ran) if ran <= _WEIGHT else (round(failed * _WEIGHT / ran), _WEIGHT)
