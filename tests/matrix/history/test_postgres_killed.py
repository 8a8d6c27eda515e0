"""PostgreSQL dies while runs are being stored: nothing is lost, and no run fails for it. A server of the test's own."""

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest
from sqlalchemy import func, select

from matrix.history import schema
from matrix.history.rows import rows_of
from matrix.history.spool import record, send
from matrix.history.store import open_store
from tests.matrix.history.made import attempt, run
from tests.services import need

AS = ("runuser", "-u", "postgres", "--")


@pytest.fixture
def server():
    """A PostgreSQL that can be killed and started again; yields (url, kill, start)."""
    need("MATRIX_TEST_POSTGRES")
    bins = max(Path("/usr/lib/postgresql").glob("*/bin"))
    folder = Path("/var/lib") / f"dsv4-ci-killed-{os.getpid()}"
    folder.mkdir()
    shutil.chown(folder, "postgres")
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    subprocess.run(
        [*AS, bins / "initdb", "-D", folder / "db", "-U", "matrix", "--auth=trust"], check=True, capture_output=True
    )

    def start():
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1"
        subprocess.run(
            [*AS, bins / "pg_ctl", "-D", folder / "db", "-w", "-l", folder / "log", "-o", options, "start"],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def kill():
        pid = int((folder / "db/postmaster.pid").read_text().split()[0])
        tree = psutil.Process(pid)
        processes = [tree, *tree.children(recursive=True)]
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=10)
        (folder / "db/postmaster.pid").unlink(missing_ok=True)

    start()
    yield f"postgresql+psycopg://matrix@127.0.0.1:{port}/postgres", kill, start
    subprocess.run([*AS, bins / "pg_ctl", "-D", folder / "db", "-m", "immediate", "stop"], capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.soak
def test_a_killed_database_loses_nothing_and_fails_no_run(server, tmp_path):
    url, kill, start = server
    open_store(url).close()
    spool, total, warnings = tmp_path / "spool", 60, []

    def store_runs(writer):
        for i in range(total // 3):
            warning = record(url, rows_of(run(f"r{writer}-{i}", i, [attempt(i)])), spool / str(writer))
            warnings.append(warning)
            time.sleep(0.02)

    writers = [threading.Thread(target=store_runs, args=(w,)) for w in range(3)]
    for w in writers:
        w.start()
    time.sleep(0.6)
    kill()
    time.sleep(1.5)
    start()
    for w in writers:
        w.join()
    store = open_store(url)
    for folder in spool.iterdir():
        assert send(store, folder) == []
    with store.begin() as c:
        assert c.execute(select(func.count()).select_from(schema.runs)).scalar() == total
    store.close()
    assert any(warnings), "the database was away for a while"
    assert None in warnings
