import multiprocessing
import os
import socket

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event, func, inspect, select

from matrix.errors import UsageError
from matrix.history import schema
from matrix.history.rows import rows_of
from matrix.history.spool import put, record, send
from matrix.history.store import MIGRATIONS, Store, StoreAwayError, open_for_reading, open_store
from matrix.junit_file import TestResult as Result
from matrix.records import Attempt, CardRecord, JobRecord, RunRecord, SpecRef, Status
from matrix.triage.model import Cause

HEAD = ScriptDirectory(str(MIGRATIONS)).get_current_head()


def run_record(run_id="20261201-093011-7f3a", *, cause_text="boom"):
    cause = Cause(category="segfault", rule="segv", confidence=0.9, line=3, text=cause_text, signature="00ff")
    attempt = Attempt(
        n=1, started="2026-12-01T09:30:12Z", ended="2026-12-01T09:30:15Z", exit_code=-11, status=Status.FAILED,
        log="logs/a/1.log", causes=[cause], cards=[CardRecord(uuid="GPU-1", index=0, model="H20")],
    )  # fmt: skip
    jobs = [
        JobRecord(name="a", suite="s", status=Status.FAILED, attempts=[attempt]),
        JobRecord(name="b", suite="s", status=Status.BLOCKED, blocked_by=["a"]),
    ]
    return RunRecord(
        id=run_id, spec=SpecRef(path="matrix.yaml", sha256="ab"), engine="local", host="h", commit="c" * 40, pr=7,
        started="2026-12-01T09:30:11Z", ended="2026-12-01T09:30:16Z", status=Status.FAILED, jobs=jobs,
    )  # fmt: skip


def rows(run_id="20261201-093011-7f3a", **kw):
    tests = {("a", 1): [Result("t.py::x", "failed", 0.5), Result("t.py::y", "passed", 0.1)]}
    return rows_of(run_record(run_id, **kw), folder="/runs", tests=tests)


def count(store, table):
    with store.begin() as c:
        return c.execute(select(func.count()).select_from(table)).scalar()


def test_a_run_is_stored_with_everything_below_it(url):
    store = open_store(url)
    store.write(rows())
    assert [count(store, t) for t in (schema.runs, schema.jobs, schema.attempts, schema.causes)] == [1, 2, 1, 1]
    assert [count(store, t) for t in (schema.test_results, schema.card_uses)] == [2, 1]
    store.close()


def test_a_run_that_is_sent_twice_is_there_once_and_the_newer_stands(url):
    store = open_store(url)
    store.write(rows(cause_text="first"))
    store.write(rows(cause_text="second"))
    with store.begin() as c:
        assert c.execute(select(schema.causes.c.text)).scalars().all() == ["second"]
    store.close()


def test_where_a_run_is_archived_stays_known_when_it_is_sent_again(url):
    store = open_store(url)
    first = rows()
    first.run["archive"] = "o/r/2026-12/x.tar.zst"
    store.write(first)
    store.write(rows())
    with store.begin() as c:
        assert c.scalar(select(schema.runs.c.archive)) == "o/r/2026-12/x.tar.zst"
    store.close()


def test_text_with_nul_is_stored_on_every_database(url):
    store = open_store(url)
    store.write(rows(cause_text="a\0b"))
    with store.begin() as c:
        assert c.execute(select(schema.causes.c.text)).scalar() == "a\N{REPLACEMENT CHARACTER}b"
    store.close()


def test_migrations_lead_to_the_schema_of_the_code(url):
    store = open_store(url)
    with store.begin() as c:
        assert compare_metadata(MigrationContext.configure(c), schema.metadata) == []
    store.close()


REVISIONS = [s.revision for s in ScriptDirectory(str(MIGRATIONS)).walk_revisions()][1:]


@pytest.mark.parametrize("revision", REVISIONS)
def test_migrations_go_down_and_up_and_keep_the_data(url, revision):
    store = open_store(url)
    store.write(rows())
    kept = (schema.runs, schema.jobs, schema.attempts, schema.causes, schema.test_results, schema.card_uses)
    before = [count(store, t) for t in kept]
    store.migrate(revision)
    with store.begin() as c:
        assert ("feedback" in inspect(c).get_table_names()) == (revision != "0001")
    store.migrate()
    assert [count(store, t) for t in kept] == before
    assert min(before) > 0
    store.migrate("base")
    with store.begin() as c:
        assert inspect(c).get_table_names() == ["alembic_version"]
    store.close()


def write_many(url, writer, each, errors):
    try:
        store = open_store(url)
        for i in range(each):
            store.write(rows(f"r{writer}-{i}"))
        store.close()
    except Exception as e:  # noqa: BLE001  # whatever it is, the parent must see it
        errors.put(f"{writer}: {e!r}")


def write_from_processes(url, writers, each):
    context = multiprocessing.get_context("spawn")
    errors = context.Queue()
    processes = [context.Process(target=write_many, args=(url, w, each, errors)) for w in range(writers)]
    for p in processes:
        p.start()
    for p in processes:
        p.join()
    store = open_store(url)
    stored = count(store, schema.runs)
    store.close()
    return stored, [errors.get() for _ in range(errors.qsize())]


def test_writers_that_meet_an_empty_database_at_once_lose_nothing(url):
    assert write_from_processes(url, 5, 4) == (20, [])


@pytest.mark.soak
def test_sixteen_writers_for_long_lose_nothing(url):
    assert write_from_processes(url, 16, 400) == (6400, [])


def test_a_database_that_is_away_costs_a_warning_and_the_run_is_sent_later(tmp_path):
    spool, db = tmp_path / "spool", tmp_path / "db" / "h.sqlite"
    db.parent.mkdir()
    warning = record("postgresql+psycopg://nobody@127.0.0.1:1/x", rows("early"), spool)
    assert "waits in" in warning
    assert record(f"sqlite:///{db}", rows("late"), spool) is None
    store = open_store(f"sqlite:///{db}")
    assert count(store, schema.runs) == 2
    assert not list(spool.iterdir())
    store.close()


def test_a_damaged_file_in_the_spool_is_kept_aside_and_does_not_stop_the_others(tmp_path):
    spool = tmp_path / "spool"
    put(rows("good"), spool)
    (spool / "bad.json").write_text('{"run": ')
    os.utime(spool / "bad.json", (1, 1))
    store = open_store(f"sqlite:///{tmp_path}/h.sqlite")
    refused = send(store, spool)
    assert count(store, schema.runs) == 1
    assert len(refused) == 1
    assert [p.name for p in spool.iterdir()] == ["bad.refused"]
    store.close()


@pytest.mark.parametrize("bad", ["nonsense", "oracle://x/y", "sqlite+nothing:///x", "postgresql://u:sesame@h:port/x"])
def test_a_url_that_cannot_be_used_is_the_users_mistake(bad):
    with pytest.raises(UsageError, match="history: cannot use") as e:
        Store(bad)
    assert "sesame" not in e.value.message


def test_a_history_of_a_newer_program_is_left_alone(url):
    store = open_store(url)
    with store.begin() as c:
        c.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    store.close()
    with pytest.raises(StoreAwayError, match="newer version"):
        open_store(url)


def test_a_folder_that_cannot_be_made_is_said_in_a_line():
    with pytest.raises(StoreAwayError, match="history: no such file"):
        open_store("sqlite:////proc/none/h.sqlite")


def test_a_server_that_does_not_answer_is_away():
    with pytest.raises(StoreAwayError):
        open_store("postgresql+psycopg://nobody@127.0.0.1:1/x")


def test_a_reader_gets_what_was_written_and_changes_nothing(url):
    assert open_for_reading(url) is None
    store = open_store(url)
    store.write(rows())
    reader = open_for_reading(url)
    with store.begin() as c:  # a writer that has not ended yet
        c.exec_driver_sql("DELETE FROM runs")
        assert count(reader, schema.jobs) == 2
        c.rollback()
    if url.startswith("sqlite"):
        with pytest.raises(StoreAwayError), reader.begin() as c:
            c.exec_driver_sql("DELETE FROM runs")
    reader.close()
    store.migrate("base")
    store.close()
    assert open_for_reading(url) is None


def test_a_reader_says_that_a_history_is_of_another_version(url):
    store = open_store(url)
    with store.begin() as c:
        c.exec_driver_sql("UPDATE alembic_version SET version_num = 'later'")
    with pytest.raises(StoreAwayError, match="another version"):
        open_for_reading(url)
    with store.begin() as c:
        c.exec_driver_sql(f"UPDATE alembic_version SET version_num = '{HEAD}'")
    store.close()


@pytest.mark.parametrize("content", [b"no database at all" * 99, b"SQLite format 3\0" + b"\xff" * 9000])
def test_a_file_that_is_no_database_is_said_in_a_line(tmp_path, content):
    file = tmp_path / "history.sqlite"
    file.write_bytes(content)
    for opens in (open_store, open_for_reading):
        with pytest.raises(StoreAwayError, match=r"^history: "):
            opens(f"sqlite:///{file}")
    assert file.read_bytes() == content


def test_a_server_that_says_nothing_is_away_after_some_seconds():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store = Store(f"postgresql+psycopg://m@127.0.0.1:{silent.getsockname()[1]}/m?connect_timeout=2")
        with pytest.raises(StoreAwayError, match="timeout"), store.begin():
            pass
        store = Store(f"postgresql+psycopg://m@127.0.0.1:{silent.getsockname()[1]}/m")
    waits = []
    event.listen(store.engine, "do_connect", lambda *args: waits.append(args[3]["connect_timeout"]))
    with pytest.raises(StoreAwayError), store.begin():
        pass
    assert waits == [5]
