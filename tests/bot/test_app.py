"""The webhook server over real HTTP, with real payloads, against GitHub's double."""

import gzip
import json
import threading
import time
from pathlib import Path

import pytest
import requests
import uvicorn
from test_sync import LOG, LOGIN, A, diagnose, report

from bot.app import is_signed, make_app, signature
from bot.events import CommandEvent, JobEvent, PullEvent, RunEvent, read_event
from bot.queue import SqliteQueue
from bot.service import Bot

SECRET = "It's a Secret to Everybody"
PAYLOADS = json.loads(
    gzip.decompress((Path(__file__).parents[1] / "data" / "github" / "webhooks.json.gz").read_bytes())
)


@pytest.fixture
def server(tmp_path, fake, connect):
    queue = SqliteQueue(tmp_path / "q.db")
    app = make_app(queue, lambda repository, installation: Bot(connect(), LOGIN, diagnose), LOGIN, SECRET)
    config = uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 20
    while not running.started and time.monotonic() < deadline:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{running.servers[0].sockets[0].getsockname()[1]}"
    running.should_exit = True
    thread.join(20)
    queue.close()


def deliver(server, name, payload, ident="d-1", secret=SECRET, **headers):
    body = json.dumps(payload).encode()
    sent = {"X-GitHub-Event": name, "X-GitHub-Delivery": ident, "X-Hub-Signature-256": signature(secret, body)}
    r = requests.post(f"{server}/webhook", data=body, headers={**sent, **headers}, timeout=20)
    return r.status_code, r.json()["outcome"]


def run_payload(fake, rid, action="completed"):
    return {"action": action, "workflow_run": fake.run_view(rid), "repository": {"full_name": fake.full_name}}


def settle(server, seconds=20):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if requests.get(f"{server}/healthz", timeout=5).json()["queue"] == 0:
            return
        time.sleep(0.02)
    raise AssertionError("the queue did not drain")


def test_githubs_published_vector():
    want = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert signature(SECRET, b"Hello, World!") == want
    assert is_signed(SECRET, b"Hello, World!", want)


@pytest.mark.parametrize(
    "header",
    [None, "", "sha256=", "sha1=757107ea", "sha256=" + "0" * 64, "sha256=\u00e9", "757107ea0eb2509fc211221cce984b8a"],
)
def test_a_wrong_or_missing_signature_is_refused(server, header):
    body = b'{"a": 1}'
    headers = {"X-GitHub-Event": "ping", "X-GitHub-Delivery": "x"}
    if header is not None:
        headers["X-Hub-Signature-256"] = header.encode("latin-1", "replace")
    assert requests.post(f"{server}/webhook", data=body, headers=headers, timeout=20).status_code == 401


def test_one_changed_byte_is_refused(server):
    body = json.dumps({"a": 1}).encode()
    headers = {"X-GitHub-Event": "ping", "X-GitHub-Delivery": "x", "X-Hub-Signature-256": signature(SECRET, body)}
    assert requests.post(f"{server}/webhook", data=body + b" ", headers=headers, timeout=20).status_code == 401


def test_a_delivery_becomes_a_comment_and_a_replay_nothing(server, fake):
    fake.add_pull(7, A, files=["a.py"])
    rid = fake.add_run(A, [("unit", "failure", LOG)])
    assert deliver(server, "workflow_run", run_payload(fake, rid)) == (202, "queued")
    settle(server)
    assert "1 of 1 job failed" in report(fake)
    writes = len(fake.writes())
    assert deliver(server, "workflow_run", run_payload(fake, rid)) == (200, "duplicate")
    settle(server)
    assert len(fake.writes()) == writes
    text = requests.get(f"{server}/metrics", timeout=5).text
    assert 'bot_deliveries_total{event="workflow_run",outcome="queued"} 1.0' in text
    assert 'bot_batches_total{outcome="done"} 1.0' in text


def test_a_burst_is_coalesced_and_ends_right(server, fake):
    fake.add_pull(7, A, files=["a.py"])
    rid = fake.add_run(A, [(f"job {i}", None, "") for i in range(20)])
    for i in range(20):
        fake.finish(rid, {f"job {i}": ("failure", LOG)})
        assert deliver(server, "workflow_run", run_payload(fake, rid, "in_progress"), f"d-{i}")[0] == 202
    settle(server)
    assert "20 of 20 jobs failed" in report(fake)
    posts = [w for w in fake.writes() if w[0] == "POST" and "comments" in w[1]]
    assert len(posts) == 1


def test_bad_bodies_are_refused_and_the_server_lives(server):
    body = b"{not json"
    headers = {
        "X-GitHub-Event": "workflow_run",
        "X-GitHub-Delivery": "x",
        "X-Hub-Signature-256": signature(SECRET, body),
    }
    assert requests.post(f"{server}/webhook", data=body, headers=headers, timeout=20).status_code == 400
    assert deliver(server, "workflow_run", [1, 2]) == (200, "ignored")
    assert deliver(server, "workflow_run", {}, ident="../../x") == (400, "no-delivery-id")
    assert requests.get(f"{server}/healthz", timeout=5).json()["ok"] is True
    assert requests.get(f"{server}/webhook", timeout=5).status_code == 405


@pytest.mark.parametrize("name", sorted(PAYLOADS))
def test_real_payloads_of_every_event_are_taken(server, name):
    for i, payload in enumerate(PAYLOADS[name]):
        status, outcome = deliver(server, name, payload, f"{name.replace(chr(95), chr(45))}-{i}")
        assert (status, outcome) in ((202, "queued"), (200, "ignored"))


def test_real_payloads_are_read():
    kinds = {name: [type(read_event(name, p, LOGIN)).__name__ for p in payloads] for name, payloads in PAYLOADS.items()}
    assert set(kinds["workflow_run"]) == {"RunEvent"}
    assert set(kinds["workflow_job"]) == {"JobEvent", "NoneType"}
    assert kinds["pull_request"][-1] == "PullEvent"
    assert set(kinds["ping"]) == {"NoneType"}
    assert set(kinds["issue_comment"]) == {"NoneType"}  # none holds a command


def comment_payload(body, **over):
    payload = json.loads(json.dumps(PAYLOADS["issue_comment"][0]))
    payload["comment"]["body"] = body
    payload["issue"]["pull_request"] = {"url": "x"}
    payload.update(over)
    return payload


def test_a_comment_with_a_command_is_one_unless_it_is_ours_a_bots_or_on_an_issue():
    assert isinstance(read_event("issue_comment", comment_payload("/rerun"), LOGIN), CommandEvent)
    assert read_event("issue_comment", comment_payload("/rerun", action="deleted"), LOGIN) is None
    mine = comment_payload("/rerun")
    mine["comment"]["user"]["login"] = LOGIN
    assert read_event("issue_comment", mine, LOGIN) is None
    other = comment_payload("/rerun")
    other["comment"]["user"]["type"] = "Bot"
    assert read_event("issue_comment", other, LOGIN) is None
    issue = comment_payload("/rerun")
    del issue["issue"]["pull_request"]
    assert read_event("issue_comment", issue, LOGIN) is None


@pytest.mark.parametrize("name", ["workflow_run", "workflow_job", "pull_request", "issue_comment"])
def test_payloads_with_parts_missing_are_nothing_not_an_error(name):
    for payload in (
        {},
        None,
        [],
        {"action": "completed"},
        {"action": "created", "comment": {}, "issue": {}},
        {name: 1},
    ):
        event = read_event(name, payload, LOGIN)
        assert event is None or isinstance(event, (RunEvent, JobEvent, PullEvent))
