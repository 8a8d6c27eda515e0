"""What harms a page: broken files, a database that is being written, odd and many requests."""

import concurrent.futures
import json
import re
import socket
import subprocess

import pytest
import requests

from matrix.history.store import open_store
from tests.matrix.page.pages import RUN, environment, matrix, serving_what_is_there

BROKEN = "20261202-000000-bad0"


@pytest.fixture
def harmed(tmp_path, request):
    """A repository whose history and one of whose records are broken."""
    (tmp_path / ".matrix/runs" / BROKEN).mkdir(parents=True)
    (tmp_path / f".matrix/runs/{BROKEN}/run.json").write_text('{"schema": "run/1", "id"')
    (tmp_path / ".matrix/runs/empty-folder").mkdir()
    (tmp_path / ".matrix/history.sqlite").write_bytes(request.param)
    with serving_what_is_there(tmp_path) as page:
        yield page


@pytest.mark.parametrize("harmed", [b"\x17 no database" * 500, b"SQLite format 3\0" + b"\xff" * 9000], indirect=True)
def test_a_broken_history_or_record_hides_nothing_else(harmed):
    text = harmed.get("/").text
    assert "Only what is here: history:" in text
    assert "unreadable" in text
    assert harmed.get(f"/runs/{BROKEN}").status_code == 404
    for path in ("/history", "/api/history", "/metrics"):
        answer = harmed.get(path)
        assert answer.status_code == 503, path
        assert "history:" in answer.text
    assert harmed.get("/api/runs").json()["note"].startswith("history:")


def test_a_history_that_is_being_written_is_read_without_waiting_and_never_written(served):
    file = served.root / ".matrix/history.sqlite"
    store = open_store(f"sqlite:///{file}")
    with store.begin() as c:  # as a run that ends
        c.exec_driver_sql("UPDATE runs SET host = 'elsewhere'")
        assert requests.get(served.base + "/history?since=90d", timeout=10).status_code == 200
        c.rollback()
    store.close()


def test_a_hundred_requests_at_once_are_all_answered(served):
    paths = [f"/runs/{RUN}", "/history?since=90d", "/", f"/runs/{RUN}/log/logs/sft/1.log", "/metrics"] * 20
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        found = list(pool.map(lambda p: served.get(p).status_code, paths))
    assert found == [200] * 100


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_reading_is_answered(served, method):
    for path in ("/", f"/runs/{RUN}", "/api/runs", "/static/live.js"):
        assert requests.request(method, served.base + path, timeout=10).status_code == 405


def test_a_head_is_a_get_without_a_body(served):
    answer = requests.head(served.base + f"/runs/{RUN}", timeout=10)
    assert (answer.status_code, answer.content) == (200, b"")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/history?since=" + "9" * 4000, 400),
        ("/history?since=%00", 400),
        ("/history?since=1d&since=", 400),
        ("/history?since=9999999999d", 400),
        (f"/runs/{RUN}/log/logs/sft/1.log?line=" + "9" * 11, 200),
        (f"/runs/{RUN}/log/logs/sft/1.log?line=-1", 200),
        (f"/runs/{RUN}/log/logs/sft/1.log?line=%C2%B2", 200),
        (f"/runs/{RUN}/jobs/" + "x" * 9000, 404),
        (f"/runs/{RUN}/jobs/%ff%fe", 404),
        (f"/runs/{RUN}/log/" + "%2e%2e%2f" * 900, 404),
        (f"/runs/{RUN}/raw/logs/%00", 404),
        ("/static/../app.py", 404),
        ("/static/%2e%2e/app.py", 404),
        ("/api/runs/" + "x" * 9000, 404),
    ],
)
def test_odd_addresses_are_refused_in_a_sentence(served, path, status):
    answer = requests.get(served.base + path, timeout=10)
    assert answer.status_code == status
    assert "Traceback" not in answer.text


def test_bytes_that_are_no_request_do_not_end_the_server(served):
    port = int(served.base.rpartition(":")[2])
    for data in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET /" + b"a" * 200_000, b"\r\n" * 1000, b""):
        with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
            s.sendall(data)
    assert served.get("/healthz").text == "ok"


def test_a_port_that_is_taken_is_said_with_what_to_write(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run(
            matrix("serve", "--port", str(port)), cwd=tmp_path, env=environment(), capture_output=True, text=True
        )
    assert done.returncode == 3
    assert done.stderr.startswith(f"matrix: cannot listen on 127.0.0.1:{port}: Address already in use")
    assert "--port 0" in done.stderr


def test_a_history_that_is_no_address_is_refused_before_anything_is_served(tmp_path):
    done = subprocess.run(
        matrix("serve", "--port", "0", "--db", "foo://x"), cwd=tmp_path, env=environment(), capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "foo" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_with_a_hostile_name_has_its_pages(tmp_path):
    from urllib.parse import quote

    name = '"><img src=x onerror=alert(1)>/../%2e%2e'
    folder = tmp_path / ".matrix/runs" / RUN
    (folder / "logs/x").mkdir(parents=True)
    (folder / "logs/x/1.log").write_bytes(b"\xff\xfe</pre><script>alert(1)</script>\x1b]8;;http://evil\x07\n")
    attempt = {"n": 1, "started": "soon", "status": "failed", "log": "logs/x/1.log", "exit_code": 1, "causes": []}
    job = {"name": name, "suite": name, "status": "failed", "attempts": [attempt], "reason": name, "needs": [name]}
    record = {"schema": "run/1", "id": RUN, "spec": {"path": name, "sha256": ""}, "engine": name, "host": name}
    record |= {"started": "soon", "ended": "never", "status": "failed", "commit": name, "branch": name, "jobs": [job]}
    (folder / "run.json").write_text(json.dumps(record))
    with serving_what_is_there(tmp_path) as page:
        for path in ("/", f"/runs/{RUN}", f"/runs/{RUN}/log/logs/x/1.log", f"/runs/{RUN}/jobs/{quote(name, safe='')}"):
            answer = page.get(path)
            assert answer.status_code in (200, 404), path
            assert "<img src=x" not in answer.text
            assert "<script>alert" not in answer.text
        assert page.get(f"/api/runs/{RUN}").json()["jobs"][0]["name"] == name


def test_whatever_bytes_a_log_has_its_page_shows_text_of_bounded_size(tmp_path):
    hostile = [
        b"\x1b[31mred\x1b[0m \x1b]8;;http://evil\x07link\x1b]8;;\x07",
        b"</pre><script>alert(1)</script><img src=x onerror=alert(1)>",
        b"\x00\x01\x08\x7f NUL and others",
        b"\xff\xfe\xc3\x28 no UTF-8",
        "\u202egnp.exe\u2066 turned \ufeff\u2028".encode(),
        b"a" * 1_000_000,
        b" 10 %\r 50 %\r100 %",
        b"::error::x",
    ] * 60
    folder = tmp_path / ".matrix/runs" / RUN
    (folder / "logs/x").mkdir(parents=True)
    (folder / "logs/x/1.log").write_bytes(b"\n".join(hostile))
    record = {"schema": "run/1", "id": RUN, "spec": {"path": "m", "sha256": ""}, "engine": "local", "host": "h"}
    record |= {"started": "2026-12-01T09:30:11+00:00", "status": "passed", "jobs": []}
    (folder / "run.json").write_text(json.dumps(record))
    with serving_what_is_there(tmp_path) as page:
        text = page.get(f"/runs/{RUN}/log/logs/x/1.log").text
        raw = page.get(f"/runs/{RUN}/raw/logs/x/1.log")
    assert len(text) < 600_000
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufeff]", text)
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "976.6 KiB" not in text
    assert "… and 972.7 KiB more in this line" in text
    assert " 10 %⏎ 50 %⏎100 %" in text
    assert raw.content.count(b"\x00") == 60
    assert raw.headers["content-disposition"] == "attachment"
    assert raw.headers["x-content-type-options"] == "nosniff"


def test_a_fault_of_the_program_is_said_on_a_page_that_does_nothing_either(tmp_path, monkeypatch):
    from starlette.testclient import TestClient

    from matrix.page.app import make_app
    from matrix.page.data import Data

    data = Data(tmp_path, f"sqlite:///{tmp_path}/none.sqlite")
    monkeypatch.setattr(data, "runs", lambda: 1 / 0)
    client = TestClient(make_app(data), base_url="http://localhost", raise_server_exceptions=False)
    answer = client.get("/")
    assert answer.status_code == 500
    assert "This page failed: ZeroDivisionError" in answer.text
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert client.get("/api/runs").json()["error"].startswith("This page failed")


def test_no_page_asks_anything_of_elsewhere(served):
    for path in ("/", f"/runs/{RUN}", f"/runs/{RUN}/jobs/sft", f"/runs/{RUN}/log/logs/sft/1.log", "/history"):
        text = served.get(path).text
        assert re.findall(r"""(?:src|href|action)=["']?(?:https?:|//)""", text) == []
        assert served.get(path).headers["content-security-policy"].startswith("default-src 'none'")
