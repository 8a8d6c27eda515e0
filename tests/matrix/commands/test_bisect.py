import json
import random
import re
import subprocess
import sys

import pytest

from matrix.errors import UsageError
from matrix.run import bisecting

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
    root, commits = history(3, broken_at=2)
    done = bisect(root, "--good", commits[0], "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["commit"] == commits[2]
    assert {r["said"] for r in answer["evidence"][commits[2]]} == {"failed"}
    assert {r["said"] for r in answer["evidence"][commits[1]]} == {"passed"}
    run = root / answer["evidence"][commits[2]][0]["run"]
    assert json.loads((run / "run.json").read_text())["jobs"][1]["status"] == "failed"
    assert re.search(r"; about \d+ more runs?, about \d+s", done.stderr), "how long it will take"
    assert git(root, "worktree", "list").count("\n") == 0
    assert git(root, "status", "--porcelain") == ""
    again = bisect(root, "--good", commits[0])
    assert commits[2] in again.stdout
    assert f"({answer['runs']} runs; log2 of 3 commits is 1.6)" in again.stdout, "results are taken from the cache"


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


def test_commits_that_cannot_be_tested_are_left_out_and_may_be_the_one(history):
    """One has no such job, one a matrix with a mistake: the break may be in either of them as well."""
    root, _ = history(1, broken_at=99)
    commits = [git(root, "rev-parse", "HEAD")]
    for i, (matrix, broken) in enumerate(
        [("suites: {", False), (MATRIX.replace("train:", "other:"), True), (MATRIX, True)]
    ):
        (root / "matrix.yaml").write_text(matrix)
        (root / "job.py").write_text(JOB.format(broken=broken) + f"# more {i}\n")
        git(root, "commit", "-qam", f"more {i}")
        commits.append(git(root, "rev-parse", "HEAD"))
    done = bisect(root, "--good", commits[0], "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["commit"], answer["or"]) == (commits[3], commits[1:3])
    said = bisect(root, "--good", commits[0]).stdout
    assert f"or one right before it that cannot be tested: {commits[1]} {commits[2]}" in said
    assert f"  {commits[0][:10]} passed: " in said


@pytest.fixture
def follow(history, monkeypatch):
    """A search in this process; `fails(number of the commit)` stands for the job."""

    def start(n, fails, good=0):
        root, commits = history(n, broken_at=99)
        monkeypatch.chdir(root)

        def run(b, commit, tell):
            failed = fails(commits.index(commit))
            result = bisecting.Result("failed" if failed else "passed", "run", "s" if failed else None, "boom")
            b.results.setdefault(commit, []).append(result)
            return result

        monkeypatch.setattr(bisecting, "_run", run)
        b = bisecting.begin(root, root / "matrix.yaml", "train", commits[good], commits[-1], None)
        found = bisecting.follow(b, lambda line: None, 200)
        return found and commits.index(found), sum(map(len, b.results.values()))

    return start


def test_a_flaky_job_leads_to_its_commit_among_64_with_few_runs(follow):
    r = random.Random(7)
    found, runs = follow(64, lambda i: i >= 41 or r.random() < 0.2)
    assert found == 41
    assert runs <= 40


def test_a_break_that_is_older_than_the_good_commit_is_no_later_commits(follow):
    with pytest.raises(UsageError, match="fails alike at the good commit"):
        follow(3, lambda i: True)


def test_a_flake_that_no_commit_brought_is_nobodys(follow):
    r = random.Random(5)
    first = iter([True])  # at the bad commit
    with pytest.raises(UsageError, match="no commit broke train: it fails by chance"):
        follow(3, lambda i: next(first, None) or r.random() < 0.2)


@pytest.mark.soak
def test_a_flaky_job_that_is_really_run_leads_to_its_commit_among_64(history, monkeypatch):
    import os

    root, commits = history(64, broken_at=41)
    done = bisect(root, "--good", commits[0], "--json", env={**os.environ, "FLAKE": "0.2"})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["commit"] == commits[41]
