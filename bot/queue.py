"""The queue between webhooks and the worker: deliveries are kept once, grouped by subject, leased, retried,
forgotten.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from matrix.errors import ToolError

MAX_TRIES = 8
KEEP_DONE = 7 * 86400.0  # seconds that a delivery's id is remembered: GitHub redelivers for three days
LEASE = 300.0  # seconds after which a worker that took deliveries counts as dead
FIRST_DELAY, LONGEST_DELAY = 5.0, 600.0


@dataclass(frozen=True, slots=True)
class Delivery:
    """One webhook delivery."""

    id: str
    event: str
    subject: str
    payload: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Deliveries of one subject: one look at GitHub answers them all."""

    subject: str
    deliveries: tuple[Delivery, ...]
    tries: int


class Queue(Protocol):
    """What the server needs of a queue."""

    def put(self, delivery: Delivery) -> bool:
        """Keep a delivery; False if its id was seen before."""

    def take(self) -> Batch | None:
        """Lease all that waits of the subject that waits longest; None if nothing is due."""

    def done(self, batch: Batch) -> None:
        """Forget what was handled, except the ids."""

    def fail(self, batch: Batch, error: str) -> bool:
        """Give a batch back for later; False if it was tried too often and is given up."""

    def depth(self) -> int:
        """Deliveries that wait or are being handled."""


SCHEMA = (
    """CREATE TABLE IF NOT EXISTS deliveries (
         id TEXT PRIMARY KEY, event TEXT NOT NULL, subject TEXT NOT NULL, payload TEXT, arrived REAL NOT NULL,
         due REAL NOT NULL, leased REAL, tries INTEGER NOT NULL DEFAULT 0, state TEXT NOT NULL DEFAULT 'waiting',
         error TEXT)""",
    "CREATE INDEX IF NOT EXISTS by_state ON deliveries (state, due, arrived)",
    "CREATE INDEX IF NOT EXISTS by_subject ON deliveries (subject, state)",
    "CREATE TABLE IF NOT EXISTS diagnoses (job INTEGER PRIMARY KEY, text TEXT NOT NULL, at REAL)",
)
PUT = "INSERT OR IGNORE INTO deliveries (id, event, subject, payload, arrived, due) VALUES (?, ?, ?, ?, ?, ?)"
FREE = "UPDATE deliveries SET state = 'waiting', leased = NULL WHERE state = 'taken' AND leased < ?"
# A subject is with one worker at a time.
NEXT = """SELECT subject FROM deliveries d WHERE state = 'waiting' AND due <= ? AND NOT EXISTS
            (SELECT 1 FROM deliveries t WHERE t.subject = d.subject AND t.state = 'taken')
          ORDER BY arrived LIMIT 1"""
OF_SUBJECT = """SELECT id, event, subject, payload, tries FROM deliveries
                WHERE subject = ? AND state = 'waiting' ORDER BY arrived"""
TAKE = "UPDATE deliveries SET state = 'taken', leased = ?, tries = tries + 1 WHERE subject = ? AND state = 'waiting'"
FORGET = "DELETE FROM deliveries WHERE state IN ('done', 'dead') AND arrived < ?"


class SqliteQueue:
    """A queue in one SQLite file, for one host; several workers and processes may use it."""

    def __init__(self, path: Path, *, clock: object = None) -> None:
        self._path = path
        self._now = clock if callable(clock) else time.time
        self._local = threading.local()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._write() as db:
                for statement in SCHEMA:
                    db.execute(statement)
        except (sqlite3.Error, OSError) as e:
            raise ToolError(f"{path}: cannot keep a queue there: {e}") from None

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        db: sqlite3.Connection | None = getattr(self._local, "db", None)
        if db is None:
            db = self._local.db = sqlite3.connect(self._path, timeout=30, isolation_level=None)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT")

    def put(self, delivery: Delivery) -> bool:
        """Keep a delivery; False if its id was seen before."""
        now = self._now()
        with self._write() as db:
            row = (delivery.id, delivery.event, delivery.subject, delivery.payload, now, now)
            made = db.execute(PUT, row)
            return made.rowcount == 1

    def take(self) -> Batch | None:
        """Lease all that waits of the subject that waits longest. A subject is with one worker at a time."""
        now = self._now()
        with self._write() as db:
            db.execute(FREE, (now - LEASE,))
            first = db.execute(NEXT, (now,)).fetchone()
            if first is None:
                return None
            rows = db.execute(OF_SUBJECT, first).fetchall()
            db.execute(TAKE, (now, first[0]))
        return Batch(first[0], tuple(Delivery(*row[:4]) for row in rows), max(row[4] for row in rows) + 1)

    def done(self, batch: Batch) -> None:
        """Forget what was handled, except the ids, and ids that are old."""
        with self._write() as db:
            db.executemany(
                "UPDATE deliveries SET state = 'done', payload = NULL, leased = NULL WHERE id = ?",
                [(d.id,) for d in batch.deliveries],
            )
            db.execute(FORGET, (self._now() - KEEP_DONE,))

    def fail(self, batch: Batch, error: str) -> bool:
        """Give a batch back for later, later each time; False if it is given up."""
        dead = batch.tries >= MAX_TRIES
        due = self._now() + min(LONGEST_DELAY, FIRST_DELAY * 2 ** (batch.tries - 1))
        with self._write() as db:
            db.executemany(
                "UPDATE deliveries SET state = ?, due = ?, leased = NULL, error = ? WHERE id = ?",
                [("dead" if dead else "waiting", due, error[:500], d.id) for d in batch.deliveries],
            )
        return not dead

    def depth(self) -> int:
        """Deliveries that wait or are being handled."""
        with self._write() as db:
            return int(db.execute("SELECT count(*) FROM deliveries WHERE state IN ('waiting', 'taken')").fetchone()[0])

    def diagnoses(self) -> MutableMapping[int, str]:
        """Say what was read in finished logs, kept in the same file."""
        return _Diagnoses(self)

    def close(self) -> None:
        """Close this thread's connection."""
        if db := getattr(self._local, "db", None):
            db.close()
            self._local.db = None


class _Diagnoses(MutableMapping[int, str]):
    """Diagnoses by job id; a finished job's log never changes."""

    def __init__(self, queue: SqliteQueue) -> None:
        self._queue = queue

    def __getitem__(self, job: int) -> str:
        with self._queue._write() as db:  # noqa: SLF001 - one file, two tables
            row = db.execute("SELECT text FROM diagnoses WHERE job = ?", (job,)).fetchone()
        if row is None:
            raise KeyError(job)
        return str(row[0])

    def __setitem__(self, job: int, text: str) -> None:
        with self._queue._write() as db:  # noqa: SLF001
            db.execute("INSERT OR REPLACE INTO diagnoses VALUES (?, ?, ?)", (job, text, time.time()))
            db.execute("DELETE FROM diagnoses WHERE at < ?", (time.time() - 30 * 86400,))

    def __delitem__(self, job: int) -> None:
        with self._queue._write() as db:  # noqa: SLF001
            db.execute("DELETE FROM diagnoses WHERE job = ?", (job,))

    def __iter__(self) -> Iterator[int]:
        with self._queue._write() as db:  # noqa: SLF001
            return iter([int(r[0]) for r in db.execute("SELECT job FROM diagnoses")])

    def __len__(self) -> int:
        with self._queue._write() as db:  # noqa: SLF001
            return int(db.execute("SELECT count(*) FROM diagnoses").fetchone()[0])
