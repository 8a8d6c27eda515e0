"""Questions over many runs, for the page: what fails when, how cards do, what time goes into, how right we are."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, and_, func, select

from matrix.history import schema
from matrix.history.queries import wilson


@dataclass(frozen=True, slots=True)
class Day:
    """Failures of one day (UTC) by name of category or verdict."""

    day: str
    counts: dict[str, int]


def failures_by_day(c: Connection, column: str, *, since: float) -> list[Day]:
    """Count failures of each day by `category` (of first causes) or `verdict`."""
    if column == "category":
        t = schema.causes
        statement = select(t.c.started, t.c.category).where(t.c.started >= since, t.c.position == 0)
    else:
        j = schema.jobs
        statement = select(j.c.started, j.c.verdict).where(j.c.started >= since, j.c.verdict.is_not(None))
    days: dict[str, Counter[str]] = defaultdict(Counter)
    for started, name in c.execute(statement):
        days[datetime.fromtimestamp(started, UTC).date().isoformat()][name] += 1
    return [Day(day, dict(days[day].most_common())) for day in sorted(days)]


@dataclass(frozen=True, slots=True)
class CardHealth:
    """How one card did: attempts on it, those that failed, hours of use, when it was used last."""

    uuid: str
    model: str
    host: str
    attempts: int
    failed: int
    low: float  # 95 % interval of the rate of failure
    high: float
    hours: float
    last: float


def card_health(c: Connection, *, since: float) -> list[CardHealth]:
    """Tell how each card did, the worst (by the lower end of the interval) first."""
    u, a = schema.card_uses, schema.attempts
    bad = a.c.status.in_(("failed", "timeout", "error"))
    statement = (
        select(
            u.c.uuid, func.max(u.c.model), func.max(u.c.host), func.count(), func.count().filter(bad),
            func.sum(u.c.ended - u.c.started), func.max(u.c.started),
        )
        .join_from(u, a, and_(a.c.run_id == u.c.run_id, a.c.job == u.c.job, a.c.n == u.c.attempt))
        .where(u.c.started >= since)
        .group_by(u.c.uuid)
    )  # fmt: skip
    found = []
    for uuid, model, host, n, failed, seconds, last in c.execute(statement):
        low, high = wilson(failed, n)
        found.append(CardHealth(uuid, model, host, n, failed, low, high, (seconds or 0.0) / 3600, last))
    return sorted(found, key=lambda h: (-h.low, h.uuid))


@dataclass(frozen=True, slots=True)
class Trend:
    """Seconds of a job's passed attempts: the median of the older half of those looked at, and of the newer."""

    job: str
    runs: int
    before: float
    now: float

    @property
    def change(self) -> float:
        """Return the change as a share: 0.1 is ten percent slower."""
        return self.now / self.before - 1 if self.before else 0.0


def duration_trends(c: Connection, *, since: float, least: int = 4) -> list[Trend]:
    """Compare the newer half of each job's passed attempts with the older one, the most changed first."""
    a = schema.attempts
    statement = (
        select(a.c.job, a.c.ended - a.c.started)
        .where(a.c.status == "passed", a.c.started >= since, a.c.ended.is_not(None))
        .order_by(a.c.started)
    )
    times: dict[str, list[float]] = defaultdict(list)
    for job, seconds in c.execute(statement):
        times[job].append(seconds)
    found = [
        Trend(job, len(t), statistics.median(t[: len(t) // 2]), statistics.median(t[len(t) // 2 :]))
        for job, t in times.items()
        if len(t) >= least
    ]
    return sorted(found, key=lambda trend: -abs(trend.change))


@dataclass(frozen=True, slots=True)
class CardHours:
    """Card-hours of a pull request (None: of branches) by what came of them."""

    pr: int | None
    useful: float  # of attempts that passed
    failed: float
    hangs: float  # of attempts that reached their limit
    retries: float  # of attempts that another one followed
    # Cards that jobs needed, times how long they waited for them and for hand-offs, or until they were known to be
    # blocked. Nobody held these cards for it, so this is no part of the whole.
    waited: float

    @property
    def whole(self) -> float:
        """Return all that cards were held for."""
        return self.useful + self.failed + self.hangs + self.retries


def card_hours(c: Connection, *, since: float) -> list[CardHours]:
    """Tell where card-hours went, by pull request, the most first."""
    u, a, r = schema.card_uses, schema.attempts, schema.runs
    last = (
        select(a.c.run_id, a.c.job, func.max(a.c.n).label("n"))
        .where(a.c.started >= since)
        .group_by(a.c.run_id, a.c.job)
    ).subquery()
    statement = (
        select(r.c.pr, a.c.status, last.c.n > a.c.n, func.sum(u.c.ended - u.c.started))
        .join_from(u, a, and_(a.c.run_id == u.c.run_id, a.c.job == u.c.job, a.c.n == u.c.attempt))
        .join(last, and_(last.c.run_id == a.c.run_id, last.c.job == a.c.job))
        .join(r, r.c.id == u.c.run_id)
        .where(u.c.started >= since, u.c.ended.is_not(None))
        .group_by(r.c.pr, a.c.status, last.c.n > a.c.n)
    )
    sums: dict[int | None, Counter[str]] = defaultdict(Counter)
    for pr, status, again, seconds in c.execute(statement):
        kind = {"passed": "useful", "timeout": "hangs"}.get(status, "retries" if again else "failed")
        sums[pr][kind] += (seconds or 0.0) / 3600  # type: ignore[assignment]
    for pr, hours in _waited(c, since=since):
        sums[pr]["waited"] += hours  # type: ignore[assignment]
    kinds = ("useful", "failed", "hangs", "retries", "waited")
    found = [CardHours(pr, *(float(s[k]) for k in kinds)) for pr, s in sums.items()]
    return sorted(found, key=lambda h: (-h.whole, -h.waited, h.pr or 0))


def _waited(c: Connection, *, since: float) -> Iterator[tuple[int | None, float]]:
    """Yield pull request and card-hours of each job that waited for its first attempt, or that was blocked.

    How many cards a blocked job would have had is what it had when it ran last; one that never ran is not counted.
    """
    u, a, j, r = schema.card_uses, schema.attempts, schema.jobs, schema.runs
    uses = (
        select(u.c.job, r.c.pr, r.c.started, func.count(), func.min(u.c.started))
        .join(r, r.c.id == u.c.run_id)
        .where(u.c.attempt == 1, r.c.started >= since)
        .group_by(u.c.run_id, u.c.job, r.c.pr, r.c.started)
        .order_by(r.c.started)
    )
    cards: dict[str, int] = {}
    for job, pr, began, n, start in c.execute(uses):
        cards[job] = n
        yield pr, n * max(0.0, start - began) / 3600
    blocked = (
        select(j.c.run_id, j.c.name, j.c.blocked_by, r.c.pr, r.c.started, r.c.ended)
        .join(r, r.c.id == j.c.run_id)
        .where(j.c.status == "blocked", r.c.started >= since)
    )
    rows = [row for row in c.execute(blocked) if row[1] in cards]
    ends = (
        select(a.c.run_id, a.c.job, func.max(a.c.ended))
        .join(j, j.c.run_id == a.c.run_id)
        .where(j.c.status == "blocked", a.c.started >= since)
        .group_by(a.c.run_id, a.c.job)
    )
    ended = {(run, job): end for run, job, end in c.execute(ends)} if rows else {}
    for run, job, by, pr, began, end in rows:
        known = max((ended[run, name] for name in by if ended.get((run, name))), default=end)
        yield pr, cards[job] * max(0.0, (known or began) - began) / 3600


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How often readers said that a diagnosis of a category was right."""

    category: str
    right: int
    answers: int
    low: float
    high: float


def accuracy(c: Connection, *, since: float) -> list[Accuracy]:
    """Tell how often diagnoses were right by what readers answered, all of them first, then by category."""
    f = schema.feedback
    statement = (
        select(f.c.category, func.count().filter(f.c.right), func.count())
        .where(f.c.at >= since, f.c.category.is_not(None))
        .group_by(f.c.category)
    )
    rows = [(str(name), right, n) for name, right, n in c.execute(statement)]
    if not rows:
        return []
    rows.sort(key=lambda row: (-row[2], row[0]))
    rows.insert(0, ("all", sum(r for _, r, _ in rows), sum(n for _, _, n in rows)))
    return [Accuracy(name, right, n, *wilson(right, n)) for name, right, n in rows]
