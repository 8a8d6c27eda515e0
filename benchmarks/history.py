"""Time of the history's questions on many results: history.py [--results N] [--db URL]

Fills a database (SQLite in a temporary folder unless a URL is given) with runs of 40 jobs and 100 tests a job, then
asks for flaky tests of the last week, the times expected of all jobs, and the verdicts of a run in which all 40 jobs
failed. Prints medians of five.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy
from sqlalchemy import insert

from matrix.history import queries, schema
from matrix.history.durations import durations
from matrix.history.remember import judge
from matrix.history.rows import Rows, rows_of
from matrix.history.store import Store, open_store
from matrix.junit_file import TestResult
from matrix.records import Attempt, JobRecord, RunRecord, SpecRef, Status
from matrix.triage.model import Cause

JOBS, TESTS = 40, 100
NOW = datetime(2026, 12, 1, tzinfo=UTC)


def made_run(r: random.Random, n: int, at: datetime, *, fail: float) -> tuple[RunRecord, Rows]:
    jobs, tests = [], {}
    for j in range(JOBS):
        bad = r.random() < fail
        signature = f"{r.randrange(200):016x}"
        causes = [
            Cause(category="worker_exception", rule="r", confidence=0.9, line=1, text="boom", signature=signature)
        ]
        status = Status.FAILED if bad else Status.PASSED
        attempt = Attempt(n=1, started=at.isoformat(), ended=(at + timedelta(minutes=5)).isoformat(), status=status,
                          log=f"logs/j{j}/1.log", causes=causes if bad else [])  # fmt: skip
        jobs.append(JobRecord(name=f"j{j}", suite="s", status=status, attempts=[attempt]))
        tests[f"j{j}", 1] = [
            TestResult(f"t{j}.py::test_{k}", "failed" if k < 3 and r.random() < 0.03 else "passed", 0.1)
            for k in range(TESTS)
        ]
    run = RunRecord(
        id=f"r{n}",
        spec=SpecRef(path="m", sha256="0"),
        engine="local",
        host="h",
        repository="o/r",
        commit=f"c{n // 2}",
        pr=n % 50 or None,
        author=f"a{n % 17}",
        started=at.isoformat(),
        status=Status.FAILED,
        jobs=jobs,
    )
    return run, rows_of(run, tests=tests)


def fill(store: Store, results: int) -> None:
    r = random.Random(0)
    runs = results // (JOBS * TESTS)
    for first in range(0, runs, 10):
        with store.begin() as c:
            tables: dict[str, list[dict[str, object]]] = {}
            for n in range(first, min(first + 10, runs)):
                _, rows = made_run(r, n, NOW - timedelta(days=60) * (1 - n / runs), fail=0.05)
                tables.setdefault("runs", []).append(rows.run)
                for table, values in rows.tables():
                    tables.setdefault(table.name, []).extend(values)
            for name, values in tables.items():
                if values:
                    c.execute(insert(schema.metadata.tables[name]), values)


def median(what: Callable[[], object], times: int = 5) -> float:
    seen = []
    for _ in range(times):
        start = time.perf_counter()
        what()
        seen.append(time.perf_counter() - start)
    return statistics.median(seen)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=int, default=1_000_000)
    parser.add_argument("--db")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = args.db or f"sqlite:///{folder}/h.sqlite"
        store = open_store(url)
        start = time.perf_counter()
        fill(store, args.results)
        print(f"{args.results:,} test results in {time.perf_counter() - start:.0f} s, {store.engine.dialect.name}, "
              f"SQLAlchemy {sqlalchemy.__version__}, Python {sys.version.split()[0]}")  # fmt: skip

        def flakes() -> None:
            with store.begin() as c:
                queries.flaky_tests(c, since=(NOW - timedelta(days=7)).timestamp())

        run, _ = made_run(random.Random(1), 10**6, NOW, fail=1.0)
        print(f"flaky tests of a week     {median(flakes):.3f} s")
        models = {f"j{j}": frozenset[str]() for j in range(JOBS)}

        def times() -> None:
            with store.begin() as c:
                durations(c, repository="o/r", models=models)

        print(f"expected times of 40 jobs  {median(times):.3f} s")
        print(f"verdicts of 40 failed jobs {median(lambda: judge(run, Path(folder), url=url)):.3f} s")
        store.close()


if __name__ == "__main__":
    main()
