"""The store: one SQLite file by default, PostgreSQL by URL. Opens, migrates and writes; queries stand beside it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from alembic import command as alembic
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, delete, event, insert, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    DBAPIError,
    IntegrityError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.pool import NullPool

from matrix.errors import ToolError, UsageError
from matrix.history import schema
from matrix.history.rows import Rows
from matrix.masking import mask

MIGRATIONS = Path(__file__).parent / "migrations"
_PATIENCE = 5  # seconds for a server that takes the connection and says nothing: without a limit, a run would never end


class StoreAwayError(ToolError):
    """The database cannot be reached or stays locked. Never the reason that a run fails: callers spool and go on.

    `broken`: it is there and damaged, so waiting does not help.
    """

    def __init__(self, message: str, advice: str | None = None, *, broken: bool = False) -> None:
        super().__init__(message, advice)
        self.broken = broken


class Store:
    """An open history.

    Raises:
        UsageError: the URL cannot be read.
        StoreAwayError: the database cannot be reached.

    """

    def __init__(self, url: str, *, read_only: bool = False) -> None:
        self.read_only = read_only
        try:
            parsed = make_url(url)
            if parsed.get_backend_name() == "sqlite":
                if parsed.database and parsed.database != ":memory:":
                    Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
                self.engine = create_engine(parsed, poolclass=NullPool, connect_args={"timeout": 30})
                event.listen(self.engine, "connect", _for_reading if read_only else _configure_sqlite)
                event.listen(self.engine, "begin", _begin if read_only else _begin_immediate)
            else:
                patience = {} if "connect_timeout" in parsed.query else {"connect_timeout": _PATIENCE}
                self.engine = create_engine(parsed, pool_pre_ping=True, pool_size=2, connect_args=patience)
        except OSError as e:
            raise StoreAwayError(
                f"history: {(e.strerror or str(e)).lower()}: {e.filename}", f"database: {mask(url)}"
            ) from None
        except (ArgumentError, ModuleNotFoundError, ValueError) as e:
            raise UsageError(
                f"history: cannot use {mask(url)!r}: {mask(str(e))}",
                "write sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE (which needs the extra `postgres`)",
            ) from None

    @contextmanager
    def begin(self) -> Iterator[Connection]:
        """Open a transaction that is committed at the end, or rolled back whole."""
        try:
            with self.engine.begin() as connection:
                yield connection
        except DatabaseError as e:
            if (
                not isinstance(e, OperationalError) and type(e) is not DatabaseError
            ):  # this one: the file is none, or broken
                raise
            said = _first_line(e)
            if "malformed" in said or "not a database" in said:
                advice = f"move {self.engine.url.database} aside: a new history is made and runs can be imported again"
                raise StoreAwayError(f"history: {said}", advice, broken=True) from e
            raise StoreAwayError(f"history: {said}", f"database: {self.engine.url!r}") from e

    def current(self) -> bool | None:
        """Whether the database is of this version; None where it is empty."""
        with self.begin() as connection:
            found = MigrationContext.configure(connection).get_current_revision()
        return None if found is None else found == ScriptDirectory(str(MIGRATIONS)).get_current_head()

    def migrate(self, revision: str = "head") -> None:
        """Bring the database to a revision: up to the newest by default, down when an older one is named."""
        with self.begin() as connection:
            if self.engine.dialect.name == "postgresql":
                # Several runners may meet an empty database at once: one of them migrates, the others wait.
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(7251430)")
            current = MigrationContext.configure(connection).get_current_revision()
            config = Config()
            config.set_main_option("script_location", str(MIGRATIONS))
            config.attributes["connection"] = connection
            script = ScriptDirectory.from_config(config)
            if revision == "head" and current == script.get_current_head():
                return
            if current is not None and current not in {r.revision for r in script.walk_revisions()}:
                raise StoreAwayError(
                    f"history: it was written by a newer version of this program (revision {current})",
                    "update this one, or name another history",
                )
            older = {r.revision for r in script.iterate_revisions(current, "base")} if current else set()
            if revision == "base" or revision in older:
                alembic.downgrade(config, revision)
            else:
                alembic.upgrade(config, revision)

    def write(self, rows: Rows) -> None:
        """Store one run whole, in place of what was known of it: the same run may be sent twice.

        Where its folder is archived stays known: whoever sends a run again, from an artifact, does not know that.

        Raises:
            StoreAwayError: the database cannot be reached.
            ToolError: the database refused the rows.

        """
        for tries_left in (2, 1, 0):
            try:
                self._write(rows)
            except StoreAwayError:
                raise
            except SQLAlchemyError as e:
                # Somebody who stores the same run at this moment makes way: the later one stands in its place.
                if isinstance(e, IntegrityError) and tries_left:
                    continue
                raise ToolError(f"history: the database refused run {rows.run['id']}: {_first_line(e)}") from e
            return

    def _write(self, rows: Rows) -> None:
        with self.begin() as connection:
            same = schema.runs.c.id == rows.run["id"]
            kept = rows.run.get("archive") or connection.scalar(select(schema.runs.c.archive).where(same))
            connection.execute(delete(schema.runs).where(same))
            connection.execute(insert(schema.runs), [rows.run | {"archive": kept}])
            for table, values in rows.tables():
                if values:
                    connection.execute(insert(table), values)

    def close(self) -> None:
        """Give the connections back."""
        self.engine.dispose()


def open_store(url: str) -> Store:
    """Open a history and bring it up to date.

    Raises:
        UsageError: the URL cannot be read.
        StoreAwayError: the database cannot be reached.

    """
    store = Store(url)
    store.migrate()
    return store


def open_for_reading(url: str) -> Store | None:
    """Open a history so that nothing is written and no writer has to wait; None where nothing was ever written.

    Raises:
        UsageError: the URL cannot be read.
        StoreAwayError: the database cannot be reached, or is of another version.

    """
    file = url.removeprefix("sqlite:///") if url.startswith("sqlite:///") else None
    if file is not None and not Path(file).is_file():
        return None
    store = Store(url, read_only=True)
    try:
        current = store.current()
    except StoreAwayError:
        store.close()
        raise
    if current:
        return store
    store.close()
    if current is None:
        return None
    raise StoreAwayError(
        "history: it is of another version of this program", "`matrix history query` brings an older one up to date"
    )


def _configure_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    # The driver must not open transactions of its own: `_begin_immediate` does.
    connection.isolation_level = None
    connection.execute("PRAGMA busy_timeout = 30000")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")


def _for_reading(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None
    connection.execute("PRAGMA busy_timeout = 30000")
    connection.execute("PRAGMA query_only = ON")


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


def _begin_immediate(connection: Connection) -> None:
    # A deferred transaction that reads, then writes, fails as locked under several writers; this one waits its turn.
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _first_line(e: SQLAlchemyError) -> str:
    return mask(str(e.orig if isinstance(e, DBAPIError) else e).strip().splitlines()[0])


__all__ = ["Engine", "Store", "StoreAwayError", "open_for_reading", "open_store"]
