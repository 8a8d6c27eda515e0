import json
import re
import socket
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from matrix import cli
from matrix.history.rows import rows_of
from matrix.history.store import open_store
from matrix.records import Attempt, CardRecord, JobRecord, RunRecord, SpecRef, Status

MATRIX = """
suites:
  unit:
    jobs:
      tests: {pytest: tests, shards: 2, expect: 2m, paths: "src/**"}
  integration:
    defaults: {cards: {count: 2, model: H20}}
    jobs:
      pt: {command: x, produces: out/pt, expect: 5m}
      sft: {command: x, needs: pt, expect: 1m, allow_failure: {reason: r, until: 2020-01-01}}
      big: {command: x, cards: 8, expect: 3m}
"""


@pytest.fixture
def repository(tmp_path, monkeypatch):
    (tmp_path / "matrix.yaml").write_text(MATRIX)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.delenv("MATRIX_HOSTS", raising=False)
    return tmp_path


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def matrix(monkeypatch, capsys):
    """The command itself, in this process: starting Python for each would take most of the time."""

    def run(folder, *arguments):
        monkeypatch.chdir(folder)
        monkeypatch.setattr("sys.argv", ["matrix", *arguments])
        with pytest.raises(SystemExit) as left:
            cli.main()
        out, err = capsys.readouterr()
        return Done(int(left.value.code or 0), out, err)

    return run


@pytest.fixture
def document(matrix):
    def run(folder, *arguments):
        done = matrix(folder, *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_list_finds_the_nearest_matrix_upward_and_shows_every_job(repository, matrix):
    done = matrix(repository / "deep" / "er", "list")
    assert done.returncode == 0
    for word in ("tests@shard=1of2", "tests@shard=2of2", "pt", "2 × H20", "5m", "(may fail)", "5 jobs"):
        assert word in done.stdout


def test_list_as_json_is_one_document(repository, document):
    found = document(repository, "list", "--only", "sft")
    assert found["schema"] == "list/1"
    assert [(j["name"], j["reason"]) for j in found["jobs"]] == [("pt", "needed by sft"), ("sft", "named by sft")]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--only", "sft", "big"),
        ("--only", "sft,big"),
        ("--only", "sft", "--only", "big"),
        ("matrix.yaml", "--only", "sft", "big"),
    ],
)
def test_names_may_follow_only_in_several_ways(repository, arguments, document):
    assert [j["name"] for j in document(repository, "list", *arguments)["jobs"]] == ["pt", "sft", "big"]


def test_plan_says_what_runs_where_when_and_why(repository, document):
    found = document(repository, "plan", "--cards", "H20:8")
    at = {j["name"]: j for j in found["jobs"]}
    assert found["schema"] == "plan/1"
    assert found["host"]["cards"] == 8
    assert at["sft"]["start"] >= at["pt"]["end"]
    assert len(at["big"]["cards"]) == 8
    assert found["makespan"] == max(j["end"] for j in found["jobs"])
    assert found["makespan"] >= found["bound"] >= 360
    assert at["pt"]["expected_from"] == "expect"
    assert any("sft" in note and "count again" in note for note in found["notes"])


def test_plan_names_what_cannot_run_here_and_what_hangs_on_it(repository, document):
    found = document(repository, "plan")
    if found["host"]["cards"]:
        pytest.skip("this host has cards")
    assert {i["name"] for i in found["impossible"]} == {"pt", "sft", "big"}
    assert {j["name"] for j in found["jobs"]} == {"tests@shard=1of2", "tests@shard=2of2"}


def test_plan_uses_the_hosts_of_the_site(repository, monkeypatch, matrix, document):
    hosts = repository / "site.yaml"
    hosts.write_text("hosts: {small: {cards: 4, model: H20}, large: {cards: 8, model: H20}}")
    monkeypatch.setenv("MATRIX_HOSTS", str(hosts))
    assert document(repository, "plan")["host"] == {"name": "large", "cards": 8, "source": str(hosts)}
    assert document(repository, "plan", "--only", "sft")["host"]["name"] == "small"
    assert document(repository, "plan", "--only", "sft", "--host", "large")["host"]["name"] == "large"
    assert "no host 'larg'" in matrix(repository, "plan", "--host", "larg").stderr


def test_a_matrix_that_asks_for_more_than_the_site_has_is_a_bad_spec(repository, monkeypatch, matrix):
    hosts = repository / "site.yaml"
    hosts.write_text("hosts: {small: {cards: 4, model: H20}}")
    monkeypatch.setenv("MATRIX_HOSTS", str(hosts))
    done = matrix(repository, "plan")
    assert done.returncode == 2
    assert (
        "matrix.yaml:11: suites.integration.jobs.big.cards: asks for 8 cards, and no host has more than 4"
        in done.stderr
    )


def test_plan_learns_from_runs(repository, document):
    run = repository / ".matrix" / "runs" / "20261201-093011-7f3a"
    run.mkdir(parents=True)
    attempt = {
        "n": 1,
        "started": "2026-12-01T09:30:00Z",
        "ended": "2026-12-01T09:30:42Z",
        "status": "passed",
        "log": "l",
        "cards": [{"uuid": "u", "index": 0, "model": "pretended"}],
    }
    record = {
        "schema": "run/1", "id": run.name, "spec": {"path": "matrix.yaml", "sha256": "0"}, "engine": "local", "host": "h",
        "started": "2026-12-01T09:30:00Z", "status": "passed",
        "jobs": [{"name": "pt", "suite": "integration", "status": "passed", "attempts": [attempt]}],
    }  # fmt: skip
    (run / "run.json").write_text(json.dumps(record))
    pt = next(j for j in document(repository, "plan", "--cards", "8")["jobs"] if j["name"] == "pt")
    assert (pt["expected"], pt["expected_from"]) == (42, "history")


def test_changes_choose_and_the_plan_says_why(repository, document):
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for arguments in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "one"]):
        subprocess.run(["git", *arguments], cwd=repository, check=True)
    (repository / "src").mkdir()
    (repository / "src" / "a.py").write_text("x")
    found = document(repository, "plan", "--changed-since", "HEAD", "--cards", "8")
    assert {j["selected_because"] for j in found["jobs"] if j["name"].startswith("tests")} == {"src/a.py changed"}
    (repository / "src" / "a.py").unlink()
    found = document(repository, "plan", "--changed-since", "HEAD", "--cards", "8")
    assert {j["name"] for j in found["jobs"]} == {"pt", "sft", "big"}
    assert {s["reason"] for s in found["skipped"]} == {
        "no changed file concerns it, by its paths, which alone were asked"
    }


@pytest.mark.parametrize("verb", ["list", "plan", "run"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "suites: {s: {jobs: {j: {comand: x}}}}",
            "matrix.yaml:1: suites.s.jobs.j.comand: unknown key 'comand': did you mean 'command'?",
        ),
        ("suites:\n\ts: 1", "matrix.yaml:2: not YAML: a tab: indent with spaces"),
        (MATRIX.replace("needs: pt", "needs: qt"), "nobody produces 'qt': did you mean 'pt'?"),
    ],
    ids=["unknown key", "tab", "needs"],
)
def test_a_bad_spec_ends_with_2_in_one_line_and_nothing_runs(repository, verb, text, message, matrix):
    (repository / "matrix.yaml").write_text(text)
    done = matrix(repository, verb)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
    assert not (repository / ".matrix").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("list", "nowhere.yaml"), "nowhere.yaml: no such file"),
        (("list", "--only", "nobody"), "no job 'nobody'"),
        (("list", "--tag", "none"), "no job has the tag 'none'"),
        (("plan", "--changed-since", "x"), "is not in a git repository"),
        (("plan", "--handoff", "pt"), "write NAME=PATH"),
        (("plan", "--cards", "four"), "--cards"),
        (("list", "--cards", "4"), "no host has more than 4"),
    ],
)
def test_wrong_use_ends_with_2_and_says_what_to_write(repository, arguments, message, matrix):
    done = matrix(repository, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_schema_prints_a_json_schema(repository, matrix):
    done = matrix(repository, "schema")
    assert done.returncode == 0
    assert json.loads(done.stdout)["$schema"].startswith("https://json-schema.org/")


def test_without_a_matrix_the_message_says_where_one_was_looked_for(tmp_path, matrix):
    done = matrix(tmp_path, "list")
    assert done.returncode == 2
    assert "no matrix.yaml in" in done.stderr


def passed(job, model, at, seconds, *, repository="o/r"):
    cards = [CardRecord(uuid="u", index=0, model=model)] if model else []
    begun = datetime(2026, 12, 1, tzinfo=UTC) + timedelta(hours=at)
    ended = begun + timedelta(seconds=seconds)
    a = Attempt(n=1, started=begun.isoformat(), ended=ended.isoformat(), status=Status.PASSED, cards=cards, log="l")
    return RunRecord(
        id=f"{job}-{model}-{at}-{repository}", spec=SpecRef(path="matrix.yaml", sha256="0"), engine="local", host="h",
        repository=repository, started=begun.isoformat(), status=Status.PASSED,
        jobs=[JobRecord(name=job, suite="s", status=Status.PASSED, attempts=[a])],
    )  # fmt: skip


@pytest.fixture
def history(tmp_path, monkeypatch):
    """A history that all hosts write; the runs of the folder are others."""
    url = f"sqlite:///{tmp_path}/shared.sqlite"
    store = open_store(url)
    monkeypatch.setenv("MATRIX_HISTORY", url)
    monkeypatch.setenv("MATRIX_REPOSITORY", "o/r")
    yield lambda *args, **more: store.write(rows_of(passed(*args, **more)))
    store.close()


def test_plan_learns_from_the_history_of_all_hosts_by_model_of_the_cards(repository, document, history):
    for at, seconds in enumerate([900, 901, *range(10, 30)]):
        history("sft", "H20", at, seconds)
    history("sft", "A100", 99, 700)
    history("sft", "H20", 98, 700, repository="o/fork")
    history("pt", "A100", 0, 50)
    history("tests@shard=1of2", None, 0, 33)
    at = {j["name"]: j for j in document(repository, "plan", "--cards", "H20:8")["jobs"]}
    told = {name: (j["expected"], j["expected_from"], j["expected_from_runs"]) for name, j in at.items()}
    assert told["sft"] == (19.5, "history", 20), "the newest 20 on such cards, in this repository"
    assert told["pt"] == (50, "history on other cards", 1)
    assert told["tests@shard=1of2"] == (33, "history", 1)
    assert told["big"] == (180, "expect", 0)


def test_plan_prints_the_time_it_takes_and_what_no_plan_can_beat(repository, matrix, history):
    history("pt", "H20", 0, 240)
    said = matrix(repository, "plan", "--cards", "H20:8").stdout
    assert "history, 1 run" in " ".join(said.split())
    assert re.search(r"5 jobs in about \S+, 1\.\d\d × the bound of \S+", said)


def test_a_history_that_is_away_or_silent_costs_a_plan_two_seconds_and_a_line(repository, monkeypatch, document):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        monkeypatch.setenv("MATRIX_HISTORY", f"postgresql+psycopg://m@127.0.0.1:{port}/m")
        found = document(repository, "plan", "--cards", "H20:8")
    assert [n for n in found["notes"] if "history" in n] == [
        "history: no answer within 2 s; expected times come from the runs of this folder"
    ]
    assert {j["expected_from"] for j in found["jobs"]} == {"expect"}
    monkeypatch.setenv("MATRIX_HISTORY", "postgresql+psycopg://m@127.0.0.1:1/m")
    [note] = [n for n in document(repository, "plan", "--cards", "H20:8")["notes"] if "history" in n]
    assert "\n" not in note
    assert "refused" in note
