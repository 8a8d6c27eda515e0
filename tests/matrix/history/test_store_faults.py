"""What goes wrong under a history: full disks, damaged files, readers that stay, clocks that go back."""

import errno

import pytest
from sqlalchemy import event, func, select

from matrix.history import schema, spool, store
from matrix.history.queries import observations
from matrix.history.rows import rows_of
from matrix.history.spool import record
from matrix.history.store import StoreAwayError, open_for_reading, open_store
from tests.matrix.history.made import attempt, run
from tests.matrix.history.test_store import HEAD


def rows(name, hours=0):
    return rows_of(run(name, hours, [attempt(hours, failed="s1")]))


def stored(url):
    opened = open_store(url)
    with opened.begin() as c:
        found = c.execute(select(schema.runs.c.id).order_by(schema.runs.c.id)).scalars().all()
    opened.close()
    return found


@pytest.fixture
def full(monkeypatch):
    """Every new connection finds the disk full."""
    real = store._configure_sqlite
    switch = {"on": False}

    def configure(connection, record_):
        real(connection, record_)
        if switch["on"]:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {pages}")

    monkeypatch.setattr(store, "_configure_sqlite", configure)
    return switch


def big(name):
    made = rows(name)
    made.causes[0]["text"] = "x" * 200_000
    return made


def test_a_disk_that_is_full_costs_a_warning_and_the_run_is_stored_once_when_there_is_room(tmp_path, full):
    url, waiting = f"sqlite:///{tmp_path}/h.sqlite", tmp_path / "spool"
    assert record(url, rows("first"), waiting) is None
    full["on"] = True
    assert "full" in record(url, big("second"), waiting)
    assert "full" in record(url, big("third"), waiting)
    full["on"] = False
    assert stored(url) == ["first"]
    assert record(url, rows("fourth"), waiting) is None
    assert stored(url) == ["first", "fourth", "second", "third"]
    assert not list(waiting.iterdir())


def test_a_run_that_cannot_wait_is_stored_at_once_and_leaves_no_half_file(tmp_path, monkeypatch):
    url, waiting = f"sqlite:///{tmp_path}/h.sqlite", tmp_path / "spool"

    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(spool.os, "fsync", refuse)
    assert record(url, rows("first"), waiting) is None
    assert stored(url) == ["first"]
    assert not list(waiting.iterdir())
    said = record("postgresql+psycopg://nobody@127.0.0.1:1/x", rows("second"), waiting)
    assert "no space left" in said
    assert "matrix history import .matrix/runs/second" in said


def test_a_spool_that_is_no_folder_is_said_and_the_run_is_stored(tmp_path):
    (tmp_path / "spool").write_text("")
    url = f"sqlite:///{tmp_path}/h.sqlite"
    assert record(url, rows("first"), tmp_path / "spool") is None
    assert stored(url) == ["first"]


def test_a_reader_that_stays_holds_no_writer_up(tmp_path):
    url = f"sqlite:///{tmp_path}/h.sqlite"
    assert record(url, rows("first"), tmp_path / "spool") is None
    reader = open_for_reading(url)
    with reader.begin() as c:
        assert c.execute(select(func.count()).select_from(schema.runs)).scalar() == 1
        assert record(url, rows("second"), tmp_path / "spool") is None
        assert c.execute(select(func.count()).select_from(schema.runs)).scalar() == 1  # what it began with
    reader.close()
    assert stored(url) == ["first", "second"]


def test_a_writer_that_does_not_end_costs_the_others_a_warning_and_nothing_is_lost(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/h.sqlite"
    holder = open_store(url)
    real = store._configure_sqlite

    def impatient(connection, record_):
        real(connection, record_)
        connection.execute("PRAGMA busy_timeout = 10")

    monkeypatch.setattr(store, "_configure_sqlite", impatient)
    with holder.begin():
        assert "locked" in record(url, rows("first"), tmp_path / "spool")
    holder.close()
    assert record(url, rows("second"), tmp_path / "spool") is None
    assert stored(url) == ["first", "second"]


def test_a_damaged_database_is_told_with_what_to_do_and_everything_is_there_after_it(tmp_path):
    file, waiting = tmp_path / "h.sqlite", tmp_path / "spool"
    url = f"sqlite:///{file}"
    for n in range(40):
        opened = open_store(url)
        opened.write(rows(f"r{n:02}", n))
        opened.close()
    raw = bytearray(file.read_bytes())
    raw[4096:] = b"\xa5" * (len(raw) - 4096)  # all pages but the first
    file.write_bytes(raw)
    said = record(url, rows("new"), waiting)
    assert "malformed" in said
    assert f"move {file} aside" in said
    file.unlink()
    assert record(url, rows("next"), waiting) is None
    assert stored(url) == ["new", "next"]


def test_a_history_of_a_newer_program_costs_a_warning_and_the_run_waits(tmp_path):
    url, waiting = f"sqlite:///{tmp_path}/h.sqlite", tmp_path / "spool"
    opened = open_store(url)
    with opened.begin() as c:
        c.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    assert "newer version" in record(url, rows("first"), waiting)
    with opened.begin() as c:
        c.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{HEAD}'")
    opened.close()
    assert record(url, rows("second"), waiting) is None
    assert stored(url) == ["first", "second"]


def test_a_database_that_cannot_be_written_costs_a_warning(tmp_path):
    url, waiting = f"sqlite:///{tmp_path}/h.sqlite", tmp_path / "spool"
    opened = open_store(url)
    opened.close()
    locked = open_store(url)
    event.listen(locked.engine, "begin", lambda c: c.exec_driver_sql("PRAGMA query_only = ON"))
    with pytest.raises(StoreAwayError, match="readonly"):
        locked.write(rows("first"))
    locked.close()
    assert record(url, rows("first"), waiting) is None


def test_a_clock_that_goes_back_leaves_runs_and_their_order_readable(tmp_path):
    url = f"sqlite:///{tmp_path}/h.sqlite"
    backward = run("second", -5, [attempt(-5, minutes=-30)])
    for made in (rows("first"), rows_of(backward)):
        assert record(url, made, tmp_path / "spool") is None
    opened = open_store(url)
    with opened.begin() as c:
        found = observations(c, repository="o/r", job="unit", signature="s1", at=rows("first").run["started"])
    opened.close()
    assert sorted(o.run for o in found) == ["first", "second"]
