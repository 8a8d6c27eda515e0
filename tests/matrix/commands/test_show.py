"""`matrix show`, `matrix prune` and `matrix baseline` as a user calls them, on a run that really ran."""

import json
import os
import subprocess
import sys

import pytest

MATRIX = [sys.executable, "-c", "from matrix.cli import main; main()"]
SPEC = """
version: 1
suites:
  Loss:
    jobs:
      train:
        command: for i in 1 2 3; do echo "global_step $i, loss 1.$i"; done
        baseline:
          loss: "baselines/train.{card}.txt"
      sft:
        command: mkdir -p out && echo '{}' > out/config.json
        produces:
          name: sft
          path: out
      lora:
        command: echo lora
        needs: [sft]
"""


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    """A repository in which the matrix has run once."""
    root = tmp_path_factory.mktemp("show")
    (root / "matrix.yaml").write_text(SPEC)
    done = matrix(root, "run")
    assert done.returncode == 1, done.stdout + done.stderr
    return root


@pytest.fixture
def repo(template, tmp_path):
    subprocess.run(["cp", "-a", f"{template}/.", str(tmp_path)], check=True)
    return tmp_path


def matrix(root, *arguments):
    env = {**os.environ, "MATRIX_LEASE_DIR": str(root / "leases"), "MATRIX_HOSTS": "", "COLUMNS": "150"}
    env.pop("GITHUB_ACTIONS", None)
    return subprocess.run([*MATRIX, *arguments], cwd=root, env=env, capture_output=True, text=True)


def shown(root, *arguments):
    done = matrix(root, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def run_id(root):
    return next(p.name for p in (root / ".matrix" / "runs").iterdir())


def test_runs_are_listed(repo):
    text = shown(repo, "show")
    assert run_id(repo) in text
    assert "1 failed, 1 blocked, 1 passed" in text
    (run,) = json.loads(shown(repo, "show", "--json"))["runs"]
    assert run["jobs"] == {"train": "passed", "sft": "failed", "lora": "blocked"}


def test_a_run_is_shown_by_id_beginning_path_and_last(repo):
    name = run_id(repo)
    texts = {shown(repo, "show", run) for run in (name, name[:-2], "last", f".matrix/runs/{name}")}
    assert len(texts) == 1
    text = texts.pop()
    assert "blocked by this: lora" in text
    assert "hand-off 'sft' cannot be used: out: holds no weights" in text
    assert json.loads(shown(repo, "show", "last", "--json"))["schema"] == "run/1"


def test_a_job_is_shown_with_its_log(repo):
    text = shown(repo, "show", "last", "train")
    assert "global_step 3, loss 1.3" in text
    assert "no baseline for cpu yet" in text
    assert json.loads(shown(repo, "show", "last", "sft", "--json"))["name"] == "sft"


def test_triage_of_a_log_of_a_run_says_what_the_run_knows_beside_it(repo):
    said = shown(repo, "triage", f".matrix/runs/{run_id(repo)}/logs/sft/1.log")
    assert ": passed\n  of the run: handoff_missing: " in said
    assert f"more: matrix show {run_id(repo)} sft" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "1999"), "no run '1999'"),
        (("show", "last", "trian"), "did you mean 'train'?"),
        (("baseline", "update", "trian", "--from", "last"), "did you mean 'train'?"),
        (("baseline", "update", "sft", "--from", "last"), "job 'sft' has no loss baseline"),
        (("prune", "--older", "yesterday"), "bad duration 'yesterday'"),
    ],
)
def test_mistakes_are_told_in_a_sentence(repo, arguments, message):
    done = matrix(repo, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_run_whose_record_is_broken_is_listed_as_such(repo):
    (repo / ".matrix" / "runs" / run_id(repo) / "run.json").write_text("{")
    assert "unreadable" in shown(repo, "show")
    done = matrix(repo, "show", "last")
    assert done.returncode == 3
    assert "not a run/1 record" in done.stderr


def test_a_baseline_is_proposed_used_and_names_the_first_step_that_differs(repo):
    file = repo / "baselines" / "train.cpu.txt"
    assert "3 steps" in matrix(repo, "baseline", "update", "train", "--from", "last", "--dry-run").stderr
    assert not file.exists()
    assert "is new, with 3 steps" in shown(repo, "baseline", "update", "train", "--from", "last")
    assert matrix(repo, "run", "--only", "train").returncode == 0
    file.write_text(file.read_text().replace("\n2 1.2\n", "\n2 1.25\n"))
    assert matrix(repo, "run", "--only", "train").returncode == 1
    record = json.loads(shown(repo, "show", "last", "train", "--json"))
    (cause,) = record["attempts"][-1]["causes"]
    assert (cause["category"], cause["line"]) == ("loss_mismatch", 2)
    assert "step 2 is 1.2 where baselines/train.cpu.txt" in cause["text"]
    update = json.loads(shown(repo, "baseline", "update", "train", "--from", "last", "--json"))
    assert (update["changed"], update["first"], update["written"]) == (1, "step 2: 1.25 -> 1.2", True)


def test_prune_removes_what_no_job_needs_any_more(repo):
    for _ in range(2):
        assert matrix(repo, "run", "--only", "train").returncode == 0
    runs = sorted(p.name for p in (repo / ".matrix" / "runs").iterdir())
    dry = json.loads(shown(repo, "prune", "--older", "1ms", "--dry-run", "--json"))
    assert [r["id"] for r in dry["removed"]] == [runs[1]]
    assert len(list((repo / ".matrix" / "runs").iterdir())) == 3
    assert f"removed {runs[1]}" in shown(repo, "prune", "--older", "1ms")
    assert sorted(p.name for p in (repo / ".matrix" / "runs").iterdir()) == [runs[0], runs[2]]
    assert "2 runs kept" in shown(repo, "prune", "--older", "none", "--size", "none")


def test_a_run_is_found_by_its_whole_path_also_from_a_relative_matrix(repo, monkeypatch):
    """What goes on from there is handed to jobs that run in other folders."""
    from matrix.commands.running import find_run

    monkeypatch.chdir(repo)
    assert find_run("last", "matrix.yaml").is_absolute()
    assert find_run("last", None) == find_run("last", "matrix.yaml")
