import json
import re
import subprocess
import sys

import pytest

# Fails from a commit on; says "by chance" as often as $FLAKE says, in the same words.
JOB = """
import os, random
broken = {broken}
if broken or random.random() < float(os.environ.get("FLAKE", "0")):
    raise RuntimeError("expert 7 received 0 tokens")
"""
MATRIX = """
suites:
  s:
    jobs:
      weights:
        command: mkdir -p out && echo 1 > out/w
        produces: {path: out, kind: files}
      train:
        command: python job.py
        needs: weights
"""


def git(root, *args):
    command = ["git", "-C", root, "-c", "user.name=t", "-c", "user.email=t@t", *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def history(tmp_path):
    def make(n, broken_at):
        git(tmp_path, "init", "-q", "-b", "main")
        (tmp_path / "matrix.yaml").write_text(MATRIX)
        commits = []
        for i in range(n + 1):  # commit 0 is the good one
            (tmp_path / "job.py").write_text(JOB.format(broken=i >= broken_at) + f"# {i}\n")
            git(tmp_path, "add", ".")
            git(tmp_path, "commit", "-qm", f"commit {i}")
            commits.append(git(tmp_path, "rev-parse", "HEAD"))
        return tmp_path, commits

    return make


def bisect(root, *args, env=None):
    command = [sys.executable, "-m", "matrix", "bisect", "train", *args]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, env=env)


def test_the_commit_that_broke_a_job_is_found_with_its_runs(history, tmp_path):
    root, commits = history(6, broken_at=4)
    done = bisect(root, "--good", commits[0], "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["commit"] == commits[4]
    assert {r["said"] for r in answer["evidence"][commits[4]]} == {"failed"}
    assert {r["said"] for r in answer["evidence"][commits[3]]} == {"passed"}
    run = root / answer["evidence"][commits[4]][0]["run"]
    assert json.loads((run / "run.json").read_text())["jobs"][1]["status"] == "failed"
    assert re.search(r"; about \d+ more runs?, about \d+s", done.stderr), "how long it will take"
    assert git(root, "worktree", "list").count("\n") == 0
    assert git(root, "status", "--porcelain") == ""
    again = bisect(root, "--good", commits[0])
    assert commits[4] in again.stdout
    assert f"({answer['runs']} runs; log2 of 6 commits is 2.6)" in again.stdout, "results are taken from the cache"


def test_a_bad_commit_that_passes_and_unknown_revisions_are_said(history):
    root, commits = history(2, broken_at=99)
    done = bisect(root, "--good", commits[0])
    assert done.returncode == 2
    assert "passed at the bad commit" in done.stderr
    for args, words in (
        (["--good", "nonsense"], "nonsense"),
        (["--good", "HEAD"], "the same commit"),
        (["--good", "HEAD", "--bad", commits[0]], "does not come before"),
    ):
        done = bisect(root, *args)
        assert done.returncode == 2
        assert words in done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.soak
def test_a_flaky_job_leads_to_its_commit_among_64(history, monkeypatch):
    import os

    root, commits = history(64, broken_at=41)
    done = bisect(root, "--good", commits[0], "--json", env={**os.environ, "FLAKE": "0.2"})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["commit"] == commits[41]
