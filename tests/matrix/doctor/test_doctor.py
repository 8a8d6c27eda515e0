"""`matrix doctor`: what each check says of places that are as they should be, and of such that are not."""

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from matrix.doctor import cards, host, repository
from matrix.doctor.checks import CHECKS
from matrix.doctor.model import Finding, Place, State, examine, exit_code


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("MATRIX_LEASE_DIR", str(tmp_path / "leases"))
    monkeypatch.delenv("MATRIX_HISTORY", raising=False)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    return Place(tmp_path, env, 10)


def git(folder, *args):
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(folder), *who, *args], check=True, capture_output=True)


def test_the_command_answers_in_one_document_and_its_exit_code_is_that_of_the_document(tmp_path):
    env = {**os.environ, "MATRIX_LEASE_DIR": str(tmp_path / "leases"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", "from matrix.cli import main; main()", "doctor", "--json"],
        capture_output=True, text=True, cwd=tmp_path, env=env | {"PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    document = json.loads(done.stdout)
    assert document["exit_code"] == done.returncode
    assert [c["name"] for c in document["checks"]] == [name for name, _ in CHECKS]
    assert all(c["advice"] for c in document["checks"] if c["state"] == "bad")


def test_a_check_that_hangs_or_fails_costs_only_itself(tmp_path):
    forever = threading.Event()

    def hangs(_):
        forever.wait(60)

    def fails(_):
        raise RuntimeError("odd")

    def well(_):
        return Finding("well", State.OK, "fine")

    def asks(place):
        place.ask("sleep", "30")

    began = time.monotonic()
    checks = [("hangs", hangs), ("fails", fails), ("asks", asks), ("well", well)]
    place = Place(tmp_path, dict(os.environ), 0.2)
    found = examine(checks, place, spare=1.0)
    forever.set()
    assert time.monotonic() - began < 20
    assert [f.state for f in found] == [State.UNKNOWN, State.UNKNOWN, State.UNKNOWN, State.OK]
    assert "odd" in found[1].finding
    assert "sleep did not answer" in found[2].finding


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ([State.OK, State.ABSENT, State.WARNING], 0),
        ([State.OK, State.UNKNOWN], 3),
        ([State.UNKNOWN, State.BAD], 1),
    ],
)
def test_exit_codes(states, code):
    assert exit_code([Finding("x", s, "", "do so") for s in states]) == code


def test_git_without_repository_without_commit_shallow_and_well(place, tmp_path):
    assert "no repository" in repository.git(place).finding
    git(tmp_path, "init", "-q", "-b", "main")
    assert "no commit" in repository.git(place).finding
    for n in range(2):
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", str(n))
    assert repository.git(place).state is State.OK
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{tmp_path}", str(tmp_path / "thin"))
    assert "shallow" in repository.git(Place(tmp_path / "thin", place.env, 10)).finding


def test_a_clock_before_the_newest_commit_is_wrong(place, tmp_path):
    git(tmp_path, "init", "-q")
    future = f"{int(time.time()) + 90000} +0000"
    env = {**os.environ, "GIT_COMMITTER_DATE": future}
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(tmp_path), *who, "commit", "-q", "--allow-empty", "-m", "x"], check=True, env=env)
    assert host.clock(place).state is State.BAD


def test_a_matrix_that_wants_more_cards_than_are_here_is_told_with_the_way_to_try_it(place, tmp_path, monkeypatch):
    monkeypatch.setattr(repository, "find_cards", lambda *_: ())
    (tmp_path / "matrix.yaml").write_text("suites:\n  a:\n    jobs:\n      b: {command: x, cards: 2}\n")
    found = repository.matrix(place)
    assert found.state is State.WARNING
    assert "1 job with more cards than this host's 0" in found.finding
    assert "matrix run --cards 2" in found.advice
    (tmp_path / "matrix.yaml").write_text(
        "pretend_cards: '2'\nsuites:\n  a:\n    jobs:\n      b: {command: x, cards: 2}\n"
    )
    assert repository.matrix(place).state is State.OK


def test_nothing_of_a_name_that_anybody_may_take_on_the_public_index_is_advised():
    for part in ("matrix", "bot", "dsv4"):
        for path in (Path(__file__).parents[3] / part).rglob("*.py"):
            assert "dsv4-ci[" not in path.read_text(encoding="utf-8"), path


def test_a_matrix_with_a_mistake_is_told_with_its_line(place, tmp_path):
    assert repository.matrix(place).state is State.ABSENT
    (tmp_path / "matrix.yaml").write_text("suites:\n  a:\n    jobs:\n      b: {comand: x}\n")
    found = repository.matrix(place)
    assert found.state is State.BAD
    assert "matrix.yaml:4" in found.finding


def test_the_lease_folder_is_tried(place, tmp_path):
    assert host.lease_folder(place).state is State.OK
    (tmp_path / "leases").chmod(0o755)
    assert "keeps other users out" in host.lease_folder(place).finding


def test_a_lease_folder_that_is_a_file_is_bad(place, tmp_path):
    (tmp_path / "leases").write_text("")
    assert host.lease_folder(place).state is State.BAD


def test_a_history_that_is_none_is_bad_and_passwords_are_not_shown(place, tmp_path):
    assert repository.database(place).state is State.ABSENT
    bad = Place(tmp_path, {**place.env, "MATRIX_HISTORY": "postgresql+psycopg://me:secret@127.0.0.1:9/x"}, 10)
    found = repository.database(bad)
    assert found.state is State.BAD
    assert "secret" not in f"{found.finding} {found.advice}"


def test_a_hosts_file_with_a_mistake_is_told(place, tmp_path, monkeypatch):
    path = tmp_path / "hosts.yaml"
    path.write_text("hosts:\n  a: {card: 4}\n")
    monkeypatch.setenv("MATRIX_HOSTS", str(path))
    assert cards.cards(place).state is State.BAD
    path.write_text("hosts:\n  a: {cards: 4}\n")
    assert "a: 4" in cards.cards(place).finding


class Api(BaseHTTPRequestHandler):
    """GitHub's answers to three tokens."""

    def do_GET(self):
        token = (self.headers["Authorization"] or "").removeprefix("Bearer ")
        body, status, scopes = b"{}", 200, {"classic": "repo, workflow", "weak": "gist"}.get(token)
        if token == "old":
            status = 401
        elif self.path.startswith("/repos/"):
            body = json.dumps({"permissions": {"push": token == "classic"}}).encode()
        self.send_response(status)
        if scopes:
            self.send_header("X-OAuth-Scopes", scopes)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def api():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("token", "state", "says"),
    [
        ("classic", State.OK, "write"),
        ("fine", State.WARNING, "read only"),
        ("weak", State.BAD, "needs repo"),
        ("old", State.BAD, "refused"),
    ],
)
def test_what_a_token_may_do(place, tmp_path, api, token, state, says):
    env = {**place.env, "GITHUB_TOKEN": token, "GITHUB_API_URL": api, "GITHUB_REPOSITORY": "o/r"}
    found = repository.token(Place(tmp_path, env, 10))
    assert (found.state, says in found.finding) == (state, True), found
    assert token not in found.finding.split()


def test_without_a_token_nothing_is_asked(place):
    assert repository.token(place).state is State.ABSENT


def test_every_finding_that_is_not_well_says_what_to_do():
    with pytest.raises(ValueError, match="say what to do"):
        Finding("x", State.WARNING, "something")
    assert Finding("x", State.OK, "fine").advice is None


def test_who_waits_is_told_which_checks_have_not_answered(tmp_path):
    heard = []
    checks = [(name, lambda _, n=name: Finding(n, State.OK, "fine")) for name in ("a", "b")]
    examine(checks, Place(tmp_path, {}, 5.0), tell=heard.append)
    assert heard[0] == ["a", "b"]
    assert len(heard) == 2
    assert len(heard[1]) == 1


def test_rules_of_the_repository_that_cannot_be_read_are_told(place, tmp_path):
    (tmp_path / "matrix.yaml").write_text("suites: {}\n")
    assert repository.rules(place).state is State.OK
    file = tmp_path / ".matrix/rules/foo.yaml"
    file.parent.mkdir(parents=True)
    file.write_text("category: foo\n")
    found = repository.rules(place)
    assert found.state is State.BAD
    assert "foo.yaml:1" in found.finding
    assert "matrix rules check" in found.advice


def test_a_quarantine_that_is_past_its_day_or_has_a_mistake_is_told(place, tmp_path):
    (tmp_path / "matrix.yaml").write_text("suites: {}\n")
    assert repository.quarantine(place).state is State.OK
    file = tmp_path / ".matrix/quarantine.yaml"
    file.parent.mkdir(exist_ok=True)
    entry = "quarantine:\n- {test: tests/a.py, owner: ann, reason: r, issue: i, expires: 2020-01-01}\n"
    file.write_text(entry)
    found = repository.quarantine(place)
    assert found.state is State.WARNING
    assert "ann: mend it" in found.advice
    file.write_text(entry.replace("owner", "ownr"))
    assert repository.quarantine(place).state is State.BAD
