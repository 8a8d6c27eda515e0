"""What the page reads: run folders under `.matrix/runs`, and the history. Nothing is ever written."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from matrix.errors import MatrixError, ToolError
from matrix.history import overview, queries
from matrix.history.store import open_for_reading
from matrix.records import JobRecord, RunRecord, load
from matrix.report.view import headline
from matrix.run.folder import LOCK, RECORD, runs_folder

_RUN = re.compile(r"[0-9A-Za-z][\w.-]{0,99}", re.ASCII)
MOST_RUNS = 100


@dataclass(frozen=True, slots=True)
class Listed:
    """A run in the list; `here` tells whether its folder is, `going` whether it goes on."""

    id: str
    status: str
    started: str
    headline: str
    commit: str | None
    branch: str | None
    pr: int | None
    here: bool
    going: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """The newest runs, and why there may be more."""

    runs: list[Listed]
    note: str | None


@dataclass(frozen=True, slots=True)
class Past:
    """What is remembered over many runs."""

    results: int
    runs: int
    flaky: list[queries.Flake]
    categories: list[overview.Day]
    verdicts: list[overview.Day]
    cards: list[overview.CardHealth]
    trends: list[overview.Trend]
    hours: list[overview.CardHours]
    accuracy: list[overview.Accuracy]


class NotThereError(Exception):
    """No such run, job or log."""


class Data:
    """Everything of one repository that can be looked at."""

    def __init__(self, root: Path, url: str) -> None:
        self.root, self.url = root, url

    def runs(self) -> Listing:
        """List the newest runs: those with a folder here, and others that the history knows."""
        folder = runs_folder(self.root)
        names = sorted((p.parent.name for p in folder.glob(f"*/{RECORD}")), reverse=True)[:MOST_RUNS]
        found = []
        for name in names:
            try:
                run = load(folder / name / RECORD)
            except ToolError:
                found.append(Listed(name, "unreadable", "", "its record cannot be read", None, None, None, here=False))
                continue
            found.append(
                Listed(
                    name,
                    run.status,
                    run.started,
                    headline(run),
                    run.commit,
                    run.branch,
                    run.pr,
                    here=True,
                    going=self.at_work(run, folder / name),
                )
            )
        note = None
        try:
            with self.history() as c:
                rows = queries.runs_since(c, since=0, most=MOST_RUNS) if c is not None else []
        except MatrixError as e:
            rows, note = [], e.message  # what is here can be shown all the same
        for row in rows:
            if row.id not in names:
                at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(row.started))
                found.append(Listed(row.id, row.status, at, row.status, row.commit, row.branch, row.pr, here=False))
        return Listing(sorted(found, key=lambda r: r.started, reverse=True)[:MOST_RUNS], note)

    def run(self, name: str) -> tuple[RunRecord, Path]:
        """Return a run and its folder.

        Raises:
            NotThereError: there is no such run here.

        """
        folder = runs_folder(self.root) / name
        if not _RUN.fullmatch(name) or not (folder / RECORD).is_file():
            raise NotThereError(self._remembered(name) or f"no run {name!r} here")
        try:
            return load(folder / RECORD), folder
        except ToolError as e:
            raise NotThereError(e.message) from None

    def at_work(self, run: RunRecord, folder: Path) -> bool:
        """Whether a run goes on. One without an end whose runner is gone does not; elsewhere that cannot be told."""
        if run.ended is not None or run.host != socket.gethostname().split(".")[0]:
            return run.ended is None
        try:
            pid = int((folder / LOCK).read_text(encoding="ascii"))
        except (OSError, ValueError):
            return False
        return Path(f"/proc/{pid}").exists()

    def job(self, name: str, job: str) -> tuple[RunRecord, JobRecord, Path]:
        """Return a job of a run.

        Raises:
            NotThereError: there is no such job.

        """
        run, folder = self.run(name)
        found = next((j for j in run.jobs if j.name == job), None)
        if found is None:
            raise NotThereError(f"no job {job!r} in run {name}")
        return run, found, folder

    def log(self, name: str, path: str) -> Path:
        """Return the path of a log of a run: a file under its folder `logs`, nothing else.

        Raises:
            NotThereError: there is no such log.

        """
        _, folder = self.run(name)
        top = (folder / "logs").resolve()
        try:
            found = (folder / path).resolve()
        except (OSError, ValueError):
            found = folder
        if not found.is_relative_to(top) or not found.is_file():
            raise NotThereError(f"no log {path!r} in run {name}")
        return found

    def _remembered(self, name: str) -> str | None:
        """Say what is left of a run whose folder is not here: a result outlives its log."""
        try:
            with self.history() as c:
                known = queries.kept(c, run=name) if c is not None else None
        except MatrixError:
            return None
        return known.said(name) if known else None

    @contextmanager
    def history(self) -> Iterator[Connection | None]:
        """Open the history; None where there is none yet."""
        store = open_for_reading(self.url)
        if store is None:
            yield None
            return
        try:
            with store.begin() as c:
                yield c
        finally:
            store.close()

    def past(self, since: float) -> Past | None:
        """Return what is remembered since a time; None where nothing is.

        Raises:
            MatrixError: the history cannot be read.

        """
        with self.history() as c:
            if c is None:
                return None
            return Past(
                results=c.exec_driver_sql("SELECT count(*) FROM test_results").scalar_one(),
                runs=c.exec_driver_sql("SELECT count(*) FROM runs").scalar_one(),
                flaky=queries.flaky_tests(c, since=since),
                categories=overview.failures_by_day(c, "category", since=since),
                verdicts=overview.failures_by_day(c, "verdict", since=since),
                cards=overview.card_health(c, since=since),
                trends=overview.duration_trends(c, since=since),
                hours=overview.card_hours(c, since=since),
                accuracy=overview.accuracy(c, since=since),
            )


__all__ = ["Data", "Listed", "Listing", "MatrixError", "NotThereError", "Past"]
