"""`matrix run` and `matrix rerun` as a user calls them."""

import io
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree as ET

import pytest

import matrix
from matrix.cli import main
from matrix.records import load
from matrix.run import starting

MATRIX = [sys.executable, "-c", "from matrix.cli import main; main()"]


class Done(NamedTuple):
    """What a command came to."""

    code: int
    stdout: str
    stderr: str


class Repository:
    """A folder with a matrix, and leases of its own. Commands run in this process, which has loaded all already."""

    def __init__(self, root, monkeypatch) -> None:
        self.root = root / "repo"
        self.root.mkdir()
        self.monkeypatch = monkeypatch
        monkeypatch.chdir(self.root)
        for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "MATRIX_HISTORY", "MATRIX_HOSTS", "CUDA_VISIBLE_DEVICES"):
            monkeypatch.delenv(name, raising=False)
        self.setenv("MATRIX_LEASE_DIR", str(root / "leases"))
        self.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # of the pytest jobs: they would start slowly

    def setenv(self, name, value):
        self.monkeypatch.setenv(name, value)

    def write(self, jobs, name="matrix.yaml"):
        (self.root / name).write_text(json.dumps({"version": 1, "suites": {"s": {"jobs": jobs}}}))

    def matrix(self, *arguments, code=None):
        out, err = io.StringIO(), io.StringIO()
        self.monkeypatch.setattr(sys, "argv", ["matrix", *arguments])
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main()
        done = Done(ended.value.code, out.getvalue(), err.getvalue())
        if code is not None:
            assert done.code == code, done.stdout + done.stderr
        return done

    def run(self, *arguments, code=None):
        """Run with --json; the record."""
        return json.loads(self.matrix("run", "--json", *arguments, code=code).stdout)

    def start(self, *arguments):
        """Run in a process of its own, which can be killed."""
        return subprocess.Popen([*MATRIX, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def last(self):
        return max((self.root / ".matrix" / "runs").iterdir())

    def record(self):
        return load(self.last() / "run.json")


@pytest.fixture
def repo(tmp_path, monkeypatch):
    return Repository(tmp_path, monkeypatch)


def statuses(record):
    jobs = record["jobs"] if isinstance(record, dict) else [j.model_dump() for j in record.jobs]
    return {j["name"]: str(j["status"]) for j in jobs}


def job(record, name):
    return next(j for j in record["jobs"] if j["name"] == name)


def wait_for(condition, limit=30.0):
    until = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < until, "did not come true"
        time.sleep(0.02)


def test_a_passing_run_exits_0_and_leaves_its_folder(repo):
    repo.write({"a": {"command": "echo hello"}})
    record = repo.run(code=0)
    assert record["status"] == "passed"
    folder = repo.last()
    assert folder.name == record["id"]
    attempt = job(record, "a")["attempts"][0]
    assert (folder / attempt["log"]).read_text().endswith("Z hello\n")
    assert (attempt["exit_code"], attempt["signal"], attempt["causes"]) == (0, None, [])
    assert load(folder / "run.json").model_dump(mode="json", by_alias=True) == record


def test_a_failing_job_fails_the_run_with_a_cause_at_its_line(repo):
    repo.write({"a": {"command": ["python", "-c", "import no_such_module"]}})
    record = repo.run(code=1)
    (cause,) = job(record, "a")["attempts"][0]["causes"]
    assert cause["category"] == "module_not_found"
    log = (repo.last() / "logs/a/1.log").read_text().splitlines()
    assert "No module named 'no_such_module'" in log[cause["line"] - 1]
    assert job(record, "a")["verdict"]["value"] == "cannot-tell"


def test_a_run_leaves_its_reports_and_says_how_to_go_on(repo):
    repo.write({"good": {"command": "true"}, "bad": {"command": ["python", "-c", "import no_such_module"]}})
    done = repo.matrix("run", code=1)
    folder = repo.last()
    assert f"matrix rerun {folder.name} bad" in done.stdout
    assert "ModuleNotFoundError" in done.stdout
    assert "good passed" in done.stderr
    assert "no_such_module" in (folder / "report.html").read_text()
    cases = {c.get("name"): c for c in ET.parse(folder / "junit.xml").iter("testcase")}
    assert set(cases) == {"good", "bad"}
    assert next(child.tag for child in cases["bad"]) == "failure"


def test_a_chain_breaks_at_its_root(repo):
    repo.write(
        {
            "pt": {"command": "mkdir out; echo x > out/x", "produces": [{"name": "w", "path": "out", "kind": "files"}]},
            "sft": {"command": "cat $MATRIX_HANDOFF_W/x", "needs": "w", "produces": [{"name": "v", "path": "nothing"}]},
            "lora": {"command": "true", "needs": "v", "produces": [{"name": "u", "path": "out2"}]},
            "eval": {"command": "true", "needs": "u"},
        }
    )
    record = repo.run(code=1)
    assert statuses(record) == {"pt": "passed", "sft": "failed", "lora": "blocked", "eval": "blocked"}
    assert job(record, "sft")["attempts"][0]["causes"][0]["category"] == "handoff_missing"
    assert job(record, "sft")["attempts"][0]["exit_code"] == 0
    for name in ("lora", "eval"):
        assert job(record, name)["blocked_by"] == ["sft"]
        assert job(record, name)["verdict"]["value"] == "follows"
        assert job(record, name)["attempts"] == []


def test_a_left_over_of_an_earlier_run_is_no_hand_off(repo):
    (repo.root / "out").mkdir()
    (repo.root / "out" / "x").write_text("old")
    os.utime(repo.root / "out" / "x", (1, 1))
    repo.write({"pt": {"command": "true", "produces": [{"name": "w", "path": "out", "kind": "files"}]}})
    cause = job(repo.run(code=1), "pt")["attempts"][0]["causes"][0]
    assert cause["category"] == "handoff_missing"
    assert "earlier run" in cause["text"]


def test_a_hand_off_may_come_from_outside(repo):
    (repo.root / "given").mkdir()
    (repo.root / "given" / "x").write_text("from outside")
    repo.write(
        {
            "pt": {"command": "false", "produces": [{"name": "w", "path": "out", "kind": "files"}]},
            "sft": {"command": "cat $MATRIX_HANDOFF_W/x", "needs": "w"},
        }
    )
    record = repo.run("--only", "sft", "--handoff", "w=given", code=0)
    assert statuses(record) == {"pt": "skipped", "sft": "passed"}
    assert "from outside" in (repo.last() / "logs/sft/1.log").read_text()


@pytest.mark.parametrize("text", ["w", "w=", "=x"])
def test_a_bad_hand_off_is_wrong_use(repo, text):
    repo.write({"pt": {"command": "true"}})
    done = repo.matrix("run", "--handoff", text, code=2)
    assert "NAME=PATH" in done.stderr


def test_tests_must_have_run(repo):
    tests = {
        "passes": ("def test_a(): pass", []),
        "empty": ("", ["nothing_ran"]),
        "skips": ("import pytest\n@pytest.mark.skip\ndef test_a(): pass", ["nothing_ran"]),
        "fails": ("def test_a(): assert 1 == 2", ["test_assertion"]),
        "too_few": ("def test_a(): pass", ["nothing_ran"]),
    }
    for name, (text, _) in tests.items():
        (repo.root / f"test_{name}.py").write_text(text)
    jobs = {name: {"pytest": f"test_{name}.py"} for name in tests}
    jobs["too_few"]["expects"] = {"tests": 2}
    repo.write(jobs)
    record = repo.run(code=1)
    for name, (_, categories) in tests.items():
        assert [c["category"] for c in job(record, name)["attempts"][0]["causes"]] == categories
    assert statuses(record) == {name: "failed" if bad else "passed" for name, (_, bad) in tests.items()}
    assert job(record, "fails")["failing_tests"] == ["test_fails.py::test_a"]


@pytest.mark.parametrize(("steps", "status"), [(3, "passed"), (4, "failed")])
def test_training_must_have_reached_its_step(repo, steps, status):
    log = "for i in 1 2 3; do echo step: $i, loss: 2.$i; done"
    repo.write({"t": {"command": log, "expects": {"steps": steps}}})
    record = repo.run()
    assert record["status"] == status
    if status == "failed":
        (cause,) = job(record, "t")["attempts"][0]["causes"]
        assert cause["category"] == "nothing_ran"
        assert "the last step with a loss is 3" in cause["text"]


def test_a_missing_input_is_said_before_anything_runs(repo):
    repo.write({"t": {"command": "touch ran", "inputs": {"paths": ["data/x"], "hub": ["a/b"]}}})
    repo.setenv("HF_HOME", str(repo.root / "hf"))
    record = repo.run(code=1)
    attempt = job(record, "t")["attempts"][0]
    assert [c["category"] for c in attempt["causes"]] == ["input_missing", "input_missing"]
    assert "data/x is not there" in attempt["causes"][0]["text"]
    assert not (repo.root / "ran").exists()


def test_an_override_changes_a_copy_only(repo):
    config = repo.root / "c.yaml"
    config.write_text("train:\n  steps: 100 # as it is\n")
    repo.write({"t": {"command": "cat c.yaml", "overrides": {"c.yaml": {"train.steps": 2, "train.new.key": "x"}}}})
    repo.run(code=0)
    log = (repo.last() / "logs/t/1.log").read_text()
    assert "steps: 2" in log
    assert "key: x" in log
    assert config.read_text() == "train:\n  steps: 100 # as it is\n"


def test_facts_of_a_job_are_kept_with_their_source(repo):
    line = '{"key": "throughput", "value": [1, 2]}'
    repo.write({"t": {"command": f"echo nonsense >> $MATRIX_FACTS; echo '{line}' >> $MATRIX_FACTS"}})
    facts = job(repo.run(code=0), "t")["facts"]
    assert facts[0] == {"key": "throughput", "value": [1, 2], "source": "logs/t/1/facts.jsonl:2"}
    assert facts[1]["key"] == "facts_unreadable"


def test_a_hang_is_ended_with_stacks(repo):
    repo.write(
        {"t": {"command": ["python", "-c", "def here():\n  import time; time.sleep(60)\nhere()"], "timeout": "1s"}}
    )
    record = repo.run(code=1)
    assert statuses(record) == {"t": "timeout"}
    cause = job(record, "t")["attempts"][0]["causes"][0]
    log = (repo.last() / "logs/t/1.log").read_text()
    assert cause["category"] == "job_timeout"
    assert "limit of 1 s" in log.splitlines()[cause["line"] - 1]
    assert "here (" in log or "in here" in log


def test_an_allowed_failure_does_not_fail_the_run(repo):
    repo.write(
        {
            "a": {"command": "true"},
            "b": {"command": "false", "allow_failure": {"reason": "upstream bug", "until": "2999-01-01"}},
            "c": {"command": "false", "allow_failure": {"reason": "was fixed", "until": "2020-01-01"}},
        }
    )
    record = repo.run("--only", "a", "b", code=0)
    assert job(record, "b")["allowed"] is True
    assert job(record, "b")["reason"] == "upstream bug"
    assert repo.run(code=1)["status"] == "failed"


def test_a_job_whose_supervisor_dies_is_tried_again(repo):
    """The host did that; a wrong result is not tried again, whatever `retries` says."""
    kill = "echo try >> tries; [ $(wc -l < tries) = 3 ] || kill -9 $PPID; sleep 0.2"
    repo.write(
        {
            "host": {"command": kill, "retries": 5},
            "wrong": {"command": ["python", "-c", "assert 1 == 2"], "retries": 5},
        }
    )
    record = repo.run(code=1)
    assert len(job(record, "wrong")["attempts"]) == 1
    host = job(record, "host")
    assert [a["status"] for a in host["attempts"]] == ["error", "error", "passed"]
    assert [c["category"] for c in host["attempts"][0]["causes"]] == ["runner_lost"]
    assert host["status"] == "passed"


def test_cards_never_overlap_and_each_job_sees_its_own(repo):
    jobs = {
        f"j{i}": {"command": "echo cards=$CUDA_VISIBLE_DEVICES; sleep 0.3", "cards": cards}
        for i, cards in enumerate([1, 2, 1, 4, 2, 1])
    }
    repo.write(jobs)
    record = repo.run("--cards", "4", code=0)
    for name, spec in jobs.items():
        cards = job(record, name)["attempts"][0]["cards"]
        assert len(cards) == spec["cards"]
        shown = ",".join(str(c["index"]) for c in cards)
        assert f"cards={shown}\n" in (repo.last() / f"logs/{name}/1.log").read_text()


def test_a_wide_job_is_not_starved_by_another_runner(repo, monkeypatch):
    monkeypatch.setattr(starting, "RESERVE_AFTER", 0.5)
    # The two cards of the other runner come free at different moments, so that never both are.
    seconds = ["1.25", *["0.5"] * 30]
    repo.write({f"n{i}": {"command": f"sleep {s}", "cards": 1} for i, s in enumerate(seconds)}, "narrow.yaml")
    repo.write({"wide": {"command": "true", "cards": 2}})
    other = repo.start("run", "narrow.yaml", "--cards", "2")
    wait_for(lambda: list(repo.root.glob(".matrix/runs/*/logs/n*/1.log")))
    repo.run("--cards", "2", code=0)
    assert other.poll() is None  # it has still work, and was not waited for
    other.send_signal(signal.SIGINT)
    other.wait(30)


def test_more_cards_than_there_are_is_wrong_use(repo):
    repo.write({"t": {"command": "true", "cards": 3}})
    done = repo.matrix("run", "--cards", "2", code=2)
    assert "asks for 3 cards; --cards 2 gives 2" in done.stderr


def test_the_hint_for_a_host_without_cards_names_all_that_the_chosen_jobs_need_with_their_model(repo):
    two = {"command": "true", "cards": {"count": 2, "model": "H20"}}
    repo.write(
        {"one": {"command": "true", "cards": {"count": 1, "model": "H20"}}, "two": two, "cpu": {"command": "true"}}
    )
    done = repo.matrix("run", code=2)
    assert "--cards H20:2" in done.stderr
    repo.matrix("run", "--cards", "H20:2", code=0)
    wrong = repo.matrix("run", "--only", "one", "--cards", "A100:1", code=2)
    assert "one asks for 1 card of model H20; --cards A100:1 gives 0" in wrong.stderr


def test_rerun_of_a_root_runs_what_it_had_blocked_and_says_so(repo):
    repo.write(
        {
            "pt": {"command": "cp seed out", "produces": [{"name": "w", "path": "out", "kind": "files"}]},
            "sft": {"command": "cat out", "needs": "w"},
        }
    )
    repo.run(code=1)
    (repo.root / "seed").write_text("x")
    done = repo.matrix("rerun", "last", "pt", code=0)
    assert statuses(repo.record()) == {"pt": "passed", "sft": "passed"}
    assert "run again too, as they were blocked: sft" in done.stderr


@pytest.mark.parametrize("verb", [("run",), ("rerun", "last")])
def test_mistakes_in_the_rules_of_the_repository_are_all_told_before_a_job_starts(repo, verb):
    repo.write({"a": {"command": "echo x >> ran; exit 1"}})
    if verb[0] == "rerun":
        repo.run(code=1)
    before = (repo.root / "ran").read_text() if verb[0] == "rerun" else None
    rules = repo.root / ".matrix/rules"
    rules.mkdir(parents=True)
    (rules / "foo.yaml").write_text("category: foo\n")
    (rules / "bar.yaml").write_text("- bar\n")
    done = repo.matrix(*verb, code=2)
    for said in (
        "foo.yaml:1: title: Field required",
        "foo.yaml:1: references: Field required",
        "bar.yaml:1: a rule file",
    ):
        assert said in done.stderr
    assert ((repo.root / "ran").read_text() if before else None) == before


def test_rerun_adds_attempts_to_the_same_run(repo):
    repo.write({"good": {"command": "echo x >> good"}, "bad": {"command": "test -e mended"}})
    repo.run(code=1)
    (repo.root / "mended").touch()
    repo.matrix("rerun", "last", "--failed", code=0)
    record = repo.record()
    assert [len(j.attempts) for j in record.jobs] == [1, 2]
    assert record.status == "passed"
    assert len(list((repo.root / ".matrix/runs").iterdir())) == 1
    repo.matrix("rerun", record.id, "good", code=0)
    assert (repo.root / "good").read_text() == "x\nx\n"
    done = repo.matrix("rerun", "last", "--failed", code=2)
    assert "no failed job" in done.stderr


def test_rerun_of_a_blocked_job_runs_what_it_waits_for(repo):
    repo.write(
        {
            "pt": {"command": "cp seed out", "produces": [{"name": "w", "path": "out", "kind": "files"}]},
            "sft": {"command": "cat out", "needs": "w"},
        }
    )
    repo.run(code=1)
    (repo.root / "seed").write_text("x")
    repo.matrix("rerun", "last", "sft", code=0)
    assert statuses(repo.record()) == {"pt": "passed", "sft": "passed"}


def test_that_all_jobs_run_for_want_of_a_floor_is_said(repo):
    def git(*args):
        subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b", *args], check=True, capture_output=True)

    repo.write({"a": {"command": "true", "paths": "a/**"}, "b": {"command": "true", "paths": "b/**"}})
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "x")
    (repo.root / "a").mkdir()
    (repo.root / "a/new.py").touch()
    done = repo.matrix("run", "--changed-since", "HEAD", code=0)
    assert "name those beside `suites`, such as floor:" in done.stderr
    assert "floor" not in repo.matrix("run", "--only", "a", code=0).stderr


def test_a_rerun_of_mended_files_is_told_and_counts_for_no_commit(repo):
    def git(*args):
        subprocess.run(["git", "-c", "user.name=A", "-c", "user.email=a@b", *args], check=True, capture_output=True)

    repo.write({"a": {"command": "test -e mended"}})
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "broken")
    repo.run(code=1)
    assert repo.record().exact_commit
    (repo.root / "mended").touch()
    git("add", "mended")
    git("commit", "-qm", "mended")
    done = repo.matrix("rerun", "last", "--failed", code=0)
    assert "its results count for no commit" in done.stderr
    assert repo.record().exact_commit is None
    assert repo.record().uncommitted.startswith("attempts at ")


def test_a_changed_matrix_is_no_resume(repo):
    repo.write({"a": {"command": "true"}})
    repo.run(code=0)
    repo.write({"a": {"command": "false"}})
    done = repo.matrix("run", "--resume", "last", code=2)
    assert "has changed since" in done.stderr


def test_one_runner_at_a_time_works_in_a_run(repo):
    repo.write({"a": {"command": "sleep 60"}})
    child = repo.start("run")
    wait_for(lambda: list(repo.root.glob(".matrix/runs/*/logs/a/1.log")))
    done = repo.matrix("run", "--resume", "last", code=2)
    assert "is going on" in done.stderr
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 1


def test_ctrl_c_cancels_and_leaves_nothing(repo):
    repo.write({"a": {"command": "echo $$ > pid; trap 'echo got TERM; exit 0' TERM; while :; do sleep 0.1; done"}})
    repo.write(
        {
            "a": {"command": "echo $$ > pid; trap 'echo got TERM; exit 0' TERM; while :; do sleep 0.1; done"},
            "b": {"command": "true", "needs": "w"},
            "w": {"command": "sleep 60", "produces": [{"name": "w", "path": "x"}]},
        }
    )
    child = repo.start("run")
    wait_for(lambda: (repo.root / "pid").exists() and "running" in str(repo.record().job("w").status))
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 1
    assert statuses(repo.record()) == dict.fromkeys("abw", "cancelled")
    assert "got TERM" in (repo.last() / "logs/a/1.log").read_text()
    assert not Path("/proc", (repo.root / "pid").read_text().strip()).exists()


COUNTS = [pytest.param(i, marks=[pytest.mark.soak] if i >= 2 else []) for i in range(20)]


@pytest.mark.parametrize("turn", COUNTS)
def test_a_killed_run_is_finished_by_resume_without_repeating_what_passed(repo, turn):
    """SIGKILL at some moment; every line of `ran` is one execution."""
    names = [f"j{i}" for i in range(6)]
    repo.write({n: {"command": f"sleep 0.1; echo {n} >> ran", "cards": i % 2} for i, n in enumerate(names)})
    child = repo.start("run", "--cards", "2")
    wait_for(lambda: list(repo.root.glob(".matrix/runs/*/run.json")))
    time.sleep((turn * 0.37) % 1.5)
    child.kill()
    child.wait()
    before = repo.record()
    passed = [j.name for j in before.jobs if j.status == "passed"]
    ran = lambda: (repo.root / "ran").read_text().split() if (repo.root / "ran").exists() else []  # noqa: E731
    counted = {n: ran().count(n) for n in passed}
    repo.matrix("run", "--resume", "last", code=0)
    assert set(statuses(repo.record()).values()) == {"passed"}
    assert {n: ran().count(n) for n in passed} == counted == dict.fromkeys(passed, 1)
    assert len(list((repo.root / ".matrix/runs").iterdir())) == 1


@pytest.mark.parametrize("code", [0, 3])
def test_a_job_that_ended_before_its_runner_could_say_so_is_judged_and_not_run_again(repo, code):
    """The runner is stopped, so that it sees nothing; the supervisor writes the result; then the runner is killed."""
    repo.write({"a": {"command": f"echo x >> ran; while [ ! -e go ]; do sleep 0.05; done; exit {code}"}})
    child = repo.start("run")
    wait_for((repo.root / "ran").exists)
    child.send_signal(signal.SIGSTOP)
    (repo.root / "go").touch()
    wait_for(lambda: list(repo.root.glob(".matrix/runs/*/logs/a/1/result.json")))
    child.kill()
    child.wait()
    assert statuses(repo.record()) == {"a": "running"}
    repo.matrix("run", "--resume", "last", code=1 if code else 0)
    record = repo.record()
    assert statuses(record) == {"a": "failed" if code else "passed"}
    assert [a.exit_code for a in record.jobs[0].attempts] == [code]
    assert (repo.root / "ran").read_text() == "x\n"


def test_a_companion_is_checked_out_and_named_in_the_record(repo, tmp_path):
    other = tmp_path / "companion"
    other.mkdir()
    git = ["git", "-C", str(other), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    (other / "x").write_text("theirs")
    for words in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    repo.write({"t": {"command": "cat $MATRIX_COMPANION_COMPANION/x", "with": f"{other}@main"}})
    record = repo.run(code=0)
    assert "theirs" in (repo.last() / "logs/t/1.log").read_text()
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
    assert record["companions"] == {f"{other}@main": head}


def test_a_run_inside_a_job_keeps_to_its_own_processes(repo):
    """A matrix that runs a matrix: tags add up, and ending the outer job ends the inner one."""
    inner = repo.root / "inner"
    inner.mkdir()
    jobs = {"i": {"command": "echo $MATRIX_TAG; echo $$ > ../pid; sleep 60"}}
    (inner / "matrix.yaml").write_text(json.dumps({"version": 1, "suites": {"s": {"jobs": jobs}}}))
    repo.write(
        {
            "o": {
                "command": f"{shlex.join(MATRIX)} run inner & until [ -s pid ]; do sleep 0.05; done; exit 1",
                "env": {"PYTHONPATH": str(Path(matrix.__file__).parents[1])},
            }
        }
    )
    repo.run(code=1)
    assert (repo.root / "pid").exists()
    assert not Path("/proc", (repo.root / "pid").read_text().strip()).exists()


def test_cards_that_only_the_site_knows_are_leased(repo, monkeypatch):
    """Of other makers than NVIDIA: the site's file says what this host has."""
    hosts = repo.root / "hosts.yaml"
    hosts.write_text(f"hosts:\n  {socket.gethostname().split('.')[0]}: {{cards: 2, model: P800}}\n")
    repo.setenv("MATRIX_HOSTS", str(hosts))
    monkeypatch.setattr("matrix.host.gpus.has_driver", lambda: False)
    repo.write({"t": {"command": "echo $CUDA_VISIBLE_DEVICES", "cards": {"count": 2, "model": "P800"}}})
    cards = job(repo.run(code=0), "t")["attempts"][0]["cards"]
    assert [(c["index"], c["model"]) for c in cards] == [(0, "P800"), (1, "P800")]


def test_a_mistyped_baseline_is_told_loudly_and_recorded(repo):
    (repo.root / "baselines").mkdir()
    (repo.root / "baselines/sft-H20.txt").write_text("")
    repo.write({"sft": {"command": "echo step 1 loss 2.0", "baseline": {"loss": "baselines/stf-{card}.txt"}}})
    said = "no card has baselines/stf-{card}.txt; did you mean baselines/sft-H20.txt?"
    done = repo.matrix("run", code=0)
    assert said in repo.record().notices[0]
    assert said in " ".join((done.stdout + done.stderr).split())
    for verb in ("list", "plan"):
        done = repo.matrix(verb, code=0)
        assert said in " ".join((done.stdout + done.stderr).split())
