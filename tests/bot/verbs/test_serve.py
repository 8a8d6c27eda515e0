"""`bot serve` as a process."""

import os
import signal
import socket
import subprocess
import time

import pytest
import requests

from bot.app import signature


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def start(tmp_path, port, **env):
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        "HOME": os.environ.get("HOME", str(tmp_path)),
    }
    return subprocess.Popen(
        ["bot", "serve", "--port", str(port), "--queue", str(tmp_path / "q.db"), "--pace", "0"],
        env=environment | env, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("missing", ["BOT_WEBHOOK_SECRET", "BOT_LOGIN", "GITHUB_TOKEN"])
def test_without_its_secrets_it_does_not_start(tmp_path, port, missing):
    env = {"BOT_WEBHOOK_SECRET": "s", "BOT_LOGIN": "x[bot]", "GITHUB_TOKEN": "t"}
    del env[missing]
    server = start(tmp_path, port, **env)
    _, err = server.communicate(timeout=60)
    assert server.returncode == 2
    assert f"{missing} is not set" in err
    assert "Traceback" not in err


def test_a_delivery_survives_github_being_away_and_a_restart(tmp_path, port, fake):
    sha = "a" * 40
    fake.add_pull(7, sha, files=["a.py"])
    rid = fake.add_run(sha, [("unit", "failure", "ModuleNotFoundError: No module named 'x'\n")])
    env = {"BOT_WEBHOOK_SECRET": "s", "BOT_LOGIN": "ci-bot[bot]", "GITHUB_TOKEN": "t"}
    import json

    body = json.dumps(
        {"action": "completed", "workflow_run": fake.run_view(rid), "repository": {"full_name": fake.full_name}}
    )

    def up(server):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and server.poll() is None:
            try:
                return requests.get(f"http://127.0.0.1:{port}/healthz", timeout=2).status_code == 200
            except requests.ConnectionError:
                time.sleep(0.05)
        raise AssertionError("did not start")

    away = start(tmp_path, port, **env, GITHUB_API_URL="http://127.0.0.1:9")
    assert up(away)
    headers = {
        "X-GitHub-Event": "workflow_run",
        "X-GitHub-Delivery": "d",
        "X-Hub-Signature-256": signature("s", body.encode()),
    }
    assert (
        requests.post(f"http://127.0.0.1:{port}/webhook", data=body.encode(), headers=headers, timeout=10).status_code
        == 202
    )
    away.send_signal(signal.SIGKILL)
    away.communicate(timeout=30)

    import sqlite3

    with sqlite3.connect(
        tmp_path / "q.db"
    ) as db:  # the lease of the killed worker and the wait of a failed try are over
        db.execute("UPDATE deliveries SET leased = 0, due = 0")
    back = start(tmp_path, port, **env, GITHUB_API_URL=fake.base)
    try:
        deadline = time.monotonic() + 60
        while not fake.comments_of(7) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "1 of 1 job failed" in fake.comments_of(7)[0]
    finally:
        back.send_signal(signal.SIGTERM)
        back.communicate(timeout=60)
    assert back.returncode in (0, -signal.SIGTERM)
