"""Questions to the history. Each is one or two statements that an index serves; values come back, never rows."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import cache

from sqlalchemy import Connection, Row, Select, and_, bindparam, func, or_, select

from matrix.history import schema
from matrix.history.attribute import WINDOW, Observation

_MOST = 2000  # observations that a verdict looks at, those nearest in time


def observations(c: Connection, *, repository: str, job: str, signature: str | None, at: float) -> list[Observation]:
    """Return what is known of a job, and of a signature in any job, within the window of a verdict around a time."""
    asked = {"repository": repository, "job": job, "at": at, "since": at - WINDOW, "until": at + WINDOW}
    found: dict[tuple[str, str, int], Observation] = {}
    for row in c.execute(_of_job(), asked):
        found[row.run_id, row.job, row.n] = _observation(row)
    if signature:
        for row in c.execute(_of_signature(), asked | {"signature": signature}):
            found[row.run_id, row.job, row.n] = _observation(row)
    return list(found.values())


@cache
def _of_job() -> Select[tuple[object, ...]]:
    # Built once: putting such a statement together takes longer than its answer.
    j = schema.jobs
    window = j.c.started.between(bindparam("since"), bindparam("until"))
    return _attempts(select(j.c.run_id, j.c.name).where(j.c.name == bindparam("job"), window))


@cache
def _of_signature() -> Select[tuple[object, ...]]:
    causes = schema.causes
    window = causes.c.started.between(bindparam("since"), bindparam("until"))
    return _attempts(select(causes.c.run_id, causes.c.job).where(causes.c.signature == bindparam("signature"), window))


def _attempts(which: Select[tuple[str, str]]) -> Select[tuple[object, ...]]:
    runs, attempts, causes = schema.runs, schema.attempts, schema.causes
    keys = which.subquery()
    first = and_(
        causes.c.run_id == attempts.c.run_id,
        causes.c.job == attempts.c.job,
        causes.c.attempt == attempts.c.n,
        causes.c.position == 0,
    )
    return (
        select(
            attempts.c.run_id,
            attempts.c.job,
            attempts.c.n,
            attempts.c.status,
            attempts.c.started,
            causes.c.signature,
            runs.c.commit,
            runs.c.base,
            runs.c.pr,
            runs.c.author,
            runs.c.changed_files,
            runs.c.branch,
            runs.c.host,
        )
        .select_from(keys)
        .join(attempts, and_(attempts.c.run_id == keys.c[0], attempts.c.job == keys.c[1]))
        .join(runs, runs.c.id == attempts.c.run_id)
        .outerjoin(causes, first)
        .where(runs.c.repository == bindparam("repository"), attempts.c.status.in_(("passed", "failed", "timeout")))
        .order_by(func.abs(attempts.c.started - bindparam("at")))
        .limit(_MOST)
    )


def _observation(row: Row[tuple[object, ...]]) -> Observation:
    passed = row.status == "passed"
    return Observation(
        run=row.run_id,
        job=row.job,
        at=row.started,
        passed=passed,
        signature=None if passed else row.signature,
        commit=row.commit,
        base=row.base,
        pr=row.pr,
        author=row.author,
        changed=frozenset(row.changed_files or ()),
        branch=row.branch,
        host=row.host or None,
    )


@dataclass(frozen=True, slots=True)
class Flake:
    """A test that fails now and then, with the 95 % interval of its rate (Wilson)."""

    test: str
    failed: int
    ran: int
    commits_both: int  # commits on which it both passed and failed
    low: float
    high: float
    only_pr: int | None = None  # never seen but in this pull request: the flake may come with it


def flaky_tests(c: Connection, *, since: float, repository: str | None = None) -> list[Flake]:
    """Return the tests that both passed and failed on one commit since a time, worst first."""
    t, runs = schema.test_results, schema.runs
    bad = t.c.outcome.in_(("failed", "error"))
    failing = select(t.c.test).where(bad, t.c.started >= since).distinct().subquery()
    statement = (
        select(
            t.c.test,
            runs.c.commit,
            runs.c.pr,
            func.count().filter(bad).label("failed"),
            func.count().filter(t.c.outcome == "passed").label("passed"),
        )
        .select_from(failing)
        .join(t, t.c.test == failing.c.test)
        .join(runs, runs.c.id == t.c.run_id)
        .where(t.c.started >= since)
        .group_by(t.c.test, runs.c.commit, runs.c.pr)
    )
    if repository is not None:
        statement = statement.where(runs.c.repository == repository)
    by_test: dict[str, dict[str | None, tuple[int, int]]] = defaultdict(dict)
    pulls: dict[str, set[int | None]] = defaultdict(set)
    for test, commit, pr, failed, passed in c.execute(statement):
        before = by_test[test].get(commit, (0, 0))
        by_test[test][commit] = (before[0] + failed, before[1] + passed)
        pulls[test].add(pr)
    flakes = []
    for test, commits in by_test.items():
        only = next(iter(pulls[test])) if len(pulls[test]) == 1 else None
        if flake := _flake(test, [(commit, *counts) for commit, counts in commits.items()], only):
            flakes.append(flake)
    return sorted(flakes, key=lambda f: (-f.failed / f.ran, f.test))


def _flake(test: str, rows: list[tuple[str | None, int, int]], only_pr: int | None) -> Flake | None:
    both = sum(1 for commit, failed, passed in rows if commit and failed and passed)
    if not both:
        return None
    # A commit on which the test never passed is a break, not a flake: it would inflate the rate.
    failed = sum(f for commit, f, p in rows if commit and p)
    ran = sum(f + p for commit, f, p in rows if commit and p)
    low, high = wilson(failed, ran)
    return Flake(test, failed, ran, both, low, high, only_pr)


def wilson(hits: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Interval of a share (Wilson 1927), at 95 % by default. An empty sample says nothing: (0, 1)."""
    if n == 0:
        return 0.0, 1.0
    share, square = hits / n, z * z
    middle = (share + square / (2 * n)) / (1 + square / n)
    half = z / (1 + square / n) * math.sqrt(share * (1 - share) / n + square / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


@dataclass(frozen=True, slots=True)
class Sightings:
    """How often a failure was seen, and where."""

    times: int
    pulls: int
    first: float | None
    last: float | None


def sightings(
    c: Connection, *, signature: str, since: float, repository: str | None = None, other_than: str | None = None
) -> Sightings:
    """Count a signature since a time: "seen 7 times since Monday, in 3 pull requests".

    `other_than` leaves a run out, that of the failure at hand.
    """
    causes, runs = schema.causes, schema.runs
    statement = (
        select(func.count(), func.count(runs.c.pr.distinct()), func.min(causes.c.started), func.max(causes.c.started))
        .join_from(causes, runs, runs.c.id == causes.c.run_id)
        .where(causes.c.signature == signature, causes.c.started >= since)
    )
    if repository is not None:
        statement = statement.where(runs.c.repository == repository)
    if other_than is not None:
        statement = statement.where(runs.c.id != other_than)
    row = c.execute(statement).one()
    return Sightings(row[0], row[1], row[2], row[3])


def failures_by(c: Connection, column: str, *, since: float) -> list[tuple[str, int]]:
    """Count failures since a time by `category` or `verdict`, most frequent first."""
    counted = schema.causes.c.category if column == "category" else schema.jobs.c.verdict
    table = schema.causes if column == "category" else schema.jobs
    statement = (
        select(counted, func.count())
        .where(table.c.started >= since, counted.is_not(None))
        .group_by(counted)
        .order_by(func.count().desc(), counted)
    )
    return [(name, n) for name, n in c.execute(statement)]


def runs_since(c: Connection, *, since: float, most: int = 100) -> list[Row[tuple[object, ...]]]:
    """Newest runs since a time: id, started, status, commit, pr, branch."""
    r = schema.runs
    statement = select(r.c.id, r.c.started, r.c.status, r.c.commit, r.c.pr, r.c.branch)
    return list(c.execute(statement.where(r.c.started >= since).order_by(r.c.started.desc()).limit(most)))


def forget_logs(c: Connection, *, folders: list[str]) -> int:
    """Note that the logs of these runs are gone; the results stay. Returns how many runs are concerned."""
    gone = schema.runs.update().where(or_(*(schema.runs.c.folder == f for f in folders))).values(folder=None)
    return c.execute(gone).rowcount if folders else 0


@dataclass(frozen=True, slots=True)
class Kept:
    """A remembered run, and where its logs are: `archive` is their name in the archive, None where they are gone."""

    status: str
    started: float
    archive: str | None

    def said(self, run: str) -> str:
        """Say what is left of a run whose folder is not here."""
        logs = "its logs are gone"
        if self.archive:
            logs = f"its logs are in the archive: matrix history fetch {run}"
        return f"run {run} {self.status}; its results are remembered, {logs}"


def kept(c: Connection, *, run: str) -> Kept | None:
    """Return what is known of a run; None where nothing is."""
    r = schema.runs
    row = c.execute(select(r.c.status, r.c.started, r.c.archive).where(r.c.id == run)).one_or_none()
    return None if row is None else Kept(row[0], row[1], row[2])


def forget_archived(c: Connection, *, name: str) -> None:
    """Note that the folder of a run is no longer in the archive; the results stay."""
    c.execute(schema.runs.update().where(schema.runs.c.archive == name).values(archive=None))


def newest_coverage(c: Connection, *, since: float, repository: str | None = None) -> dict[str, object]:
    """Return the totals of the newest run that covered anything, and its files with most lines missing."""
    r, v = schema.runs, schema.coverage
    runs = select(r.c.id).join(v, v.c.run_id == r.c.id).where(r.c.started >= since)
    if repository is not None:
        runs = runs.where(r.c.repository == repository)
    newest = c.execute(runs.order_by(r.c.started.desc()).limit(1)).scalar()
    if newest is None:
        return {}
    rows = c.execute(
        select(v.c.file, v.c.statements, v.c.covered, v.c.changed, v.c.changed_covered)
        .where(v.c.run_id == newest)
        .order_by((v.c.statements - v.c.covered).desc(), v.c.file)
    ).all()
    sums = [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)]
    totals = dict(zip(("lines", "covered", "changed lines", "changed lines covered"), sums, strict=True))
    return {"run": newest, **totals, "files": [list(row[:3]) for row in rows[:100]]}
