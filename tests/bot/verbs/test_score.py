"""`bot score` over votes in a database and in a branch."""

import json
import subprocess

import pytest

from matrix.history.feedback import Feedback, add, write_lines
from matrix.history.store import open_store


def votes(category, right, wrong, start=0, rule="r-1", **kw):
    return [
        Feedback(
            f"reaction-{start + n}", 1_780_000_000.0 + n, f"user{start + n}", "u#1", right=n < right, category=category,
            rule=rule, **kw,
        )
        for n in range(right + wrong)
    ]  # fmt: skip


@pytest.fixture
def score(tmp_path):
    def run(items, *args, url=f"sqlite:///{tmp_path}/h.sqlite"):
        if items is not None:
            store = open_store(url)
            with store.begin() as c:
                add(c, items)
            store.close()
        given = ["--db", url] if url else []
        return subprocess.run(["bot", "score", *given, *args], capture_output=True, text=True, cwd=tmp_path, timeout=60)

    return run


def test_precision_by_category_and_rule_with_intervals(score):
    items = votes("disk_full", 18, 2) + votes("segfault", 1, 1, start=100, rule="r-2")
    document = json.loads(score(items, "--json").stdout)
    disk, seg = document["categories"]
    assert (disk["name"], disk["right"], disk["n"], disk["precision"]) == ("disk_full", 18, 20, 0.9)
    assert (round(disk["low"], 4), round(disk["high"], 4)) == (0.6990, 0.9721)  # Wilson 1927, z = 1.96
    assert (disk["enough"], seg["enough"]) == (True, False)
    assert [r["name"] for r in document["rules"]] == ["r-1", "r-2"]
    lines = score(None).stdout.splitlines()
    assert any("disk_full" in line and "90%" in line and "70% to 97%" in line for line in lines)
    assert any("segfault" in line and "too few to say" in line for line in lines)


def test_the_last_word_of_a_person_counts_once(score):
    same = {"author": "ann", "url": "u#1", "category": "oom", "rule": "r"}
    items = [Feedback("a", 1.0, right=True, **same), Feedback("b", 2.0, right=False, **same)]
    (oom,) = json.loads(score(items, "--json").stdout)["categories"]
    assert (oom["right"], oom["n"]) == (0, 1)


def test_since_leaves_older_votes_out(score):
    assert json.loads(score(votes("oom", 3, 0), "--since", "2027-01-01", "--json").stdout)["votes"] == 0


def test_nothing_said_is_said(score):
    done = score([])
    assert done.returncode == 0
    assert "too few to say" in done.stdout


def test_votes_of_the_branch_are_read_from_git(score, tmp_path):
    def git(*args):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *args], cwd=tmp_path, check=True)

    git("init", "-q", "-b", "matrix-feedback")
    (tmp_path / "feedback.jsonl").write_text(write_lines(votes("oom", 2, 1)) + "not ours\n{}\n[]\n")
    git("add", "feedback.jsonl")
    git("commit", "-qm", "x")
    document = json.loads(score(None, "--json", url=None).stdout)
    assert [(c["name"], c["right"], c["n"]) for c in document["categories"]] == [("oom", 2, 3)]


def test_without_database_and_branch_it_says_what_to_do(score):
    done = score(None, url=None)
    assert done.returncode == 2
    assert "git fetch origin matrix-feedback" in done.stderr
