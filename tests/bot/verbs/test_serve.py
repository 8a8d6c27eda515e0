"""`bot serve` as a process."""

import os
import signal
import socket
import subprocess
import time

import pytest
import requests
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from bot.app import signature
from bot.events import CommandEvent
from bot.verbs.serve import bots


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


@pytest.fixture(scope="module")
def key():
    """The private and the public key of an App."""
    made = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    private = made.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return private.decode(), made.public_key().public_bytes(serialization.Encoding.PEM, form).decode()


@pytest.mark.parametrize("on_one_line", [False, True])
@pytest.mark.parametrize(("seconds", "several"), [(3600, False), (5, True)])
def test_as_an_app_it_works_with_a_token_of_the_installation_and_renews_it(
    fake, key, monkeypatch, seconds, several, on_one_line
):
    private, fake.app_key = key
    fake.token_seconds = seconds
    monkeypatch.setenv("BOT_APP_ID", "12")
    monkeypatch.setenv("BOT_APP_KEY", private.replace("\n", "\\n") if on_one_line else private)
    monkeypatch.setenv("GITHUB_API_URL", fake.base)
    fake.add_pull(7, "a" * 40, author="ann")
    bot = bots({}, "ci-bot[bot]", 0.0)(fake.full_name, 77)
    for _ in range(2):
        bot.handle(CommandEvent(7, fake.add_comment(7, "/help", "ann"), "ann", "/help"))
    assert len(fake.comments_of(7, "ci-bot[bot]")) == 2
    assert (len(fake.tokens) > 1) is several


def test_a_key_that_is_none_is_refused_before_it_serves_and_never_printed(tmp_path, port):
    env = {"BOT_WEBHOOK_SECRET": "s", "BOT_LOGIN": "x[bot]", "BOT_APP_ID": "12", "BOT_APP_KEY": "no-key-at-all"}
    server = start(tmp_path, port, **env)
    _, err = server.communicate(timeout=60)
    assert server.returncode == 2
    assert "BOT_APP_KEY is no private key" in err
    assert "no-key-at-all" not in err
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
