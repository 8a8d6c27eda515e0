"""Pages of runs that go on, that nobody finished, and of a repository in which nothing has happened."""

import json
import signal
import subprocess
import time

from tests.matrix.page.pages import environment, in_chromium, matrix, serving_what_is_there

SPEC = (
    "suites:\n  s:\n    jobs:\n"
    "      waits: {command: 'for i in $(seq 600); do if test -e go; then exit 0; fi; sleep 0.1; done; exit 1'}\n"
)


def begin(root):
    (root / "matrix.yaml").write_text(SPEC)
    runner = subprocess.Popen(
        matrix("run"), cwd=root, env=environment() | {"MATRIX_LEASE_DIR": str(root / "leases")},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    for _ in range(600):
        for record in root.glob(".matrix/runs/*/run.json"):
            if json.loads(record.read_bytes())["jobs"][0]["status"] == "running":
                return runner, record.parent.name
        time.sleep(0.05)
    raise AssertionError("the run did not begin")


def test_the_page_of_a_run_follows_it_without_losing_the_readers_place(tmp_path):
    with serving_what_is_there(tmp_path) as page:
        runner, run = begin(tmp_path)
        try:
            seen = in_chromium("live.mjs", url=f"{page.base}/runs/{run}", go=str(tmp_path / "go"), job="waits")
        finally:
            (tmp_path / "go").touch()
            runner.wait(60)
    assert seen["first"].startswith("running: 1 running")
    assert seen["last"].startswith("passed: 1 passed")
    assert seen["said"] == seen["last"]
    assert seen["title"].startswith("passed")
    assert seen["same"], "the page was loaded again"
    assert seen["focused"] == "waits"


def test_a_run_whose_runner_was_killed_is_not_said_to_go_on(tmp_path):
    runner, run = begin(tmp_path)
    with serving_what_is_there(tmp_path) as page:
        before = page.get(f"/runs/{run}").text
        runner.send_signal(signal.SIGKILL)
        runner.wait(60)
        after = page.get(f"/runs/{run}").text
        (row,) = page.get("/api/runs").json()["runs"]
    assert "goes on" in before
    assert 'data-going="true"' in before
    assert f"its runner is gone: <code>matrix run --resume {run}</code>" in after
    assert 'data-going="false"' in after
    assert row["going"] is False
    (tmp_path / "go").touch()


def test_where_nothing_has_happened_every_page_says_so(tmp_path):
    with serving_what_is_there(tmp_path) as page:
        assert "No run yet" in page.get("/").text
        assert "Nothing is remembered yet" in page.get("/history").text
        assert page.get("/api/runs").json() == {"runs": [], "note": None}
        assert page.get("/api/history").json()["results"] == 0
        assert page.get("/metrics").ok
    assert list(tmp_path.iterdir()) == []  # it only reads
