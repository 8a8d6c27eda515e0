"""How long jobs took: their newest passed attempts, by job, models of cards and repository."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, Select, and_, select, union_all

from matrix.history import schema
from matrix.plan.forecast import SHORTEST, Past

LAST = 20  # newest passed attempts that count
_AT_ONCE = 50  # jobs in one statement: a database far away is not asked job by job

# Job to the models of cards that it may get: an empty set for a job without cards, None where any model will do.
Models = Mapping[str, "frozenset[str] | None"]


def durations(c: Connection, *, repository: str, models: Models, last: int = LAST) -> dict[str, Past]:
    """Return the median seconds of each job on cards of such models; of all its attempts where it never had these."""
    found = dict(_ask(c, repository, models, last, other_cards=False))
    rest = {job: None for job, wanted in models.items() if job not in found and wanted is not None}
    return found | dict(_ask(c, repository, rest, last, other_cards=True))


def _ask(c: Connection, repository: str, models: Models, last: int, *, other_cards: bool) -> Iterator[tuple[str, Past]]:
    wishes = list(models.items())
    for first in range(0, len(wishes), _AT_ONCE):
        times: dict[str, list[float]] = defaultdict(list)
        some = wishes[first : first + _AT_ONCE]
        parts = [select(_newest(repository, job, wanted, last).subquery()) for job, wanted in some]
        for job, begun, ended in c.execute(union_all(*parts)):
            times[job].append(max(ended - begun, SHORTEST))
        for job, seconds in times.items():
            yield job, Past(statistics.median(seconds), len(seconds), other_cards)


def _newest(repository: str, job: str, wanted: frozenset[str] | None, last: int) -> Select[Any]:
    r, j, a = schema.runs, schema.jobs, schema.attempts
    statement = (
        select(j.c.name, a.c.started, a.c.ended)
        .join_from(j, r, r.c.id == j.c.run_id)
        .join(a, and_(a.c.run_id == j.c.run_id, a.c.job == j.c.name))
        .where(j.c.name == job, r.c.repository == repository, a.c.status == "passed", a.c.ended.is_not(None))
        .order_by(j.c.started.desc(), a.c.n.desc())
        .limit(last)
    )
    if wanted is None:
        return statement
    return statement.where(j.c.card_model.in_(wanted) if wanted else j.c.card_model.is_(None))
