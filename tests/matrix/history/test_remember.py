import subprocess

import pytest

from matrix.history.origin import named_files, origin
from matrix.history.remember import judge, judge_and_record
from matrix.history.rows import rows_of
from matrix.history.store import open_store
from matrix.records import JobRecord, Status
from tests.matrix.history.made import attempt, run


@pytest.fixture
def remembered(tmp_path):
    url = f"sqlite:///{tmp_path}/h.sqlite"
    store = open_store(url)
    for i in range(12):
        store.write(rows_of(run(f"base{i}", i - 20, [attempt(i - 20)])))
    store.close()
    return url


def mine(tmp_path, traceback, **kw):
    log = tmp_path / "logs/unit/1.log"
    log.parent.mkdir(parents=True)
    log.write_text(traceback)
    return run(
        "mine", 0, [attempt(0, failed="s1", **kw)], pr=7, author="bob", base="c-base11", changed=["src/model/moe.py"]
    )


def test_a_traceback_in_a_changed_file_is_this_change(tmp_path, remembered):
    record = mine(tmp_path, 'Traceback\n  File "/w/src/model/moe.py", line 3\n\n\nValueError: boom\n')
    assert judge(record, tmp_path, url=remembered) is None
    assert record.jobs[0].verdict.value == "this-change"
    assert "src/model/moe.py" in record.jobs[0].verdict.compared[0]


def test_a_traceback_elsewhere_cannot_be_told(tmp_path, remembered):
    record = mine(tmp_path, 'Traceback\n  File "/w/src/other/moe.py", line 3\n\n\nValueError: boom\n')
    judge(record, tmp_path, url=remembered)
    assert record.jobs[0].verdict.value == "cannot-tell"


def test_a_blocked_job_follows_its_root_without_any_history(tmp_path):
    record = run("mine", 0, [attempt(0, failed="s1")])
    record.jobs.append(JobRecord(name="lora", suite="s", status=Status.BLOCKED, blocked_by=["unit"]))
    judge(record, tmp_path, url=f"sqlite:///{tmp_path}/h.sqlite")
    assert record.jobs[1].verdict.value == "follows"
    assert record.jobs[1].verdict.compared == ["job unit of this run"]


def test_a_retry_that_passed_makes_the_next_failure_on_that_commit_flaky(tmp_path):
    url, spool = f"sqlite:///{tmp_path}/h.sqlite", tmp_path / "spool"
    first = run("first", 0, [attempt(0, 1, failed="s1"), attempt(0.2, 2)], pr=7, commit="c1")
    assert judge_and_record(first, tmp_path, url=url, spool=spool) is None
    second = run("second", 5, [attempt(5, failed="s1")], pr=7, commit="c1")
    judge_and_record(second, tmp_path, url=url, spool=spool)
    assert second.jobs[0].verdict.value == "flaky"


def test_a_database_that_is_away_leaves_verdicts_from_this_run_alone_and_a_warning(tmp_path):
    record = mine(tmp_path, "")
    warning = judge_and_record(record, tmp_path, url="postgresql+psycopg://x@127.0.0.1:1/x", spool=tmp_path / "spool")
    assert "waits in" in warning
    assert record.jobs[0].verdict.value == "cannot-tell"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('File "/w/pkg/a.py", line 1', {"pkg/a.py"}),
        ("pkg/a.py:3: error", {"pkg/a.py"}),
        ("ModuleNotFoundError: pkg.a", {"pkg/a.py"}),
        ('File "/site-packages/lib/deep.py"', {"src/lib/deep.py"}),
        ("otherpkg/a.py", set()),
        ("pkg/a.pyc and pkg/a.py2", set()),
        ("top.py", {"top.py"}),
        ("desktop.py", set()),
    ],
)
def test_named_files(text, found):
    assert named_files(text, ["pkg/a.py", "src/lib/deep.py", "top.py"]) == found


def git(root, *args):
    subprocess.run(
        ["git", "-C", root, "-c", "user.name=t", "-c", "user.email=t@t", *args], check=True, capture_output=True
    )


def test_origin_of_a_pull_request_knows_both_names_of_a_renamed_file(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / "old name.py").write_text("x = 1\n" * 30)
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "base")
    git(tmp_path, "update-ref", "refs/remotes/origin/main", "HEAD")
    git(tmp_path, "mv", "old name.py", "new.py")
    (tmp_path / "added.py").write_text("y\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "change")
    env = {
        "GITHUB_REF": "refs/pull/12/merge",
        "GITHUB_BASE_REF": "main",
        "GITHUB_ACTOR": "ann",
        "GITHUB_REPOSITORY": "o/r",
    }
    found = origin(tmp_path, env)
    assert (found.pr, found.author, found.repository) == (12, "ann", "o/r")
    assert found.changed_files == ["added.py", "new.py", "old name.py"]


@pytest.mark.parametrize("default", ["main", "trunk"])
def test_origin_of_a_local_run_knows_its_branch_and_where_it_left_the_default_one(tmp_path, default):
    git(tmp_path, "init", "-q", "-b", default)
    (tmp_path / "a.py").write_text("x\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "base")
    if default != "main":
        git(tmp_path, "update-ref", "refs/remotes/origin/trunk", "HEAD")
        git(tmp_path, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/trunk")
    fork = subprocess.run(
        ["git", "-C", str(tmp_path), "rev-parse", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    there = origin(tmp_path, {})
    assert (there.branch, there.base, there.changed_files) == (default, None, None)
    git(tmp_path, "checkout", "-qb", "feat9")
    (tmp_path / "b.py").write_text("x\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "change")
    found = origin(tmp_path, {})
    assert (found.branch, found.base, found.changed_files, found.pr) == ("feat9", fork, ["b.py"], None)


def test_origin_without_ci_or_git_knows_nothing(tmp_path):
    assert origin(tmp_path, {}).pr is None
    assert origin(tmp_path, {"MATRIX_BASE": "nonsense"}).changed_files is None


def test_a_changed_configuration_that_the_job_runs_links_the_failure_to_the_change(tmp_path, remembered):
    record = mine(tmp_path, "ValueError: boom\n")
    judge(record, tmp_path, url=remembered, commands={"unit": "python train.py src/model/moe.py"})
    assert record.jobs[0].verdict.value == "this-change"
