"""Records of new runs, and of runs that are taken up again; the folder of a run; who is tried again."""

import subprocess

import pytest

from matrix.errors import UsageError
from matrix.records import Attempt, JobRecord, RunRecord, SpecRef, Status
from matrix.run import folder
from matrix.run.record import again, commit, note_files, take_up, uncommitted


def run(**statuses):
    jobs = [JobRecord(name=n, suite="s", status=Status(s)) for n, s in statuses.items()]
    return RunRecord(
        id="r", spec=SpecRef(path="matrix.yaml", sha256="0"), engine="local", host="h", started="2026-12-01T00:00:00Z",
        ended="2026-12-01T00:01:00Z", status=Status.FAILED, jobs=jobs,
    )  # fmt: skip


def statuses(record):
    return {j.name: j.status.value for j in record.jobs}


def test_what_ran_when_the_runner_died_is_pending_again():
    record = run(a="passed", b="running", c="pending")
    record.job("b").attempts.append(Attempt(n=1, started="2026-12-01T00:00:00Z", log="logs/b/1.log"))
    assert take_up(record) == ["r/b/1"]
    assert statuses(record) == {"a": "passed", "b": "pending", "c": "pending"}
    assert record.job("b").attempts[0].ended
    assert record.job("b").attempts[0].status is Status.ERROR
    assert (record.ended, record.status) == (None, Status.RUNNING)


def test_rerun_of_failed_ones_takes_all_that_went_badly():
    record = run(a="passed", b="failed", c="blocked", d="skipped", e="timeout", f="cancelled", g="error")
    assert again(record, [], failed=True) == ["b", "c", "e", "f", "g"]
    assert {n for n, s in statuses(record).items() if s == "pending"} == {"b", "c", "e", "f", "g"}


def test_rerun_of_all_leaves_out_what_was_not_selected():
    assert again(run(a="passed", b="failed", d="skipped"), [], failed=False) == ["a", "b"]


def test_rerun_of_a_job_brings_what_it_lacks():
    record = run(a="failed", b="blocked", c="blocked", x="passed")
    record.job("b").needs, record.job("c").needs = ["a", "x"], ["b"]
    record.job("c").blocked_by = ["a"]
    assert again(record, ["c"], failed=False) == ["a", "b", "c"]
    assert record.job("c").blocked_by == []


def test_rerun_of_a_root_takes_what_it_had_blocked_and_nothing_else_that_failed():
    record = run(a="failed", b="blocked", c="blocked", d="failed", e="blocked", x="failed")
    record.job("b").needs, record.job("c").needs, record.job("e").needs = ["a"], ["b", "d"], ["x"]
    assert again(record, ["a"], failed=False) == ["a", "b", "c"]
    assert statuses(record) | {"d": "failed", "e": "blocked", "x": "failed"} == statuses(record)


@pytest.mark.parametrize(("names", "message"), [(["nope"], "no job 'nope'"), ([], "no failed job")])
def test_nothing_to_run_again_is_wrong_use(names, message):
    with pytest.raises(UsageError, match=message):
        again(run(a="passed"), names, failed=True)


def test_a_run_is_found_by_what_its_id_begins_with(tmp_path):
    made = [folder.create(tmp_path) for _ in range(2)]
    for m in made:
        (m / "run.json").write_text("{}")
    first, last = sorted(made)
    assert folder.find(tmp_path, "last") == last
    assert folder.find(tmp_path, first.name) == first
    assert folder.find(tmp_path, f"{first}/run.json") == first
    with pytest.raises(UsageError, match="may be"):
        folder.find(tmp_path, "2")
    with pytest.raises(UsageError, match="no run 'x'"):
        folder.find(tmp_path, "x")
    ignored = (tmp_path / ".matrix/.gitignore").read_text().split()
    assert "/runs/" in ignored
    assert "/rules/" not in ignored, "rules of the repository are part of it"


def test_a_run_is_locked_against_a_second_runner(tmp_path):
    with folder.locked(tmp_path), pytest.raises(UsageError, match="is going on"), folder.locked(tmp_path):
        pass
    with folder.locked(tmp_path):
        pass


@pytest.fixture
def repository(tmp_path):
    for name in ("matrix.yaml", "train.py"):
        (tmp_path / name).write_text(name)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def git(root, *args):
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", str(root), *who, *args], check=True, capture_output=True)


def test_files_that_differ_from_the_commit_are_named_and_what_jobs_leave_is_not(repository):
    spec = repository / "matrix.yaml"
    (repository / "output").mkdir()
    (repository / "output/weights").write_text("w")
    assert uncommitted(spec) is None
    (repository / "train.py").write_text("other")
    assert uncommitted(spec) == "changes in train.py"
    git(repository, "rm", "-q", "--cached", "matrix.yaml")
    assert "matrix.yaml" in uncommitted(spec)


def test_outside_of_a_repository_nothing_differs(tmp_path):
    (tmp_path / "matrix.yaml").write_text("x")
    assert uncommitted(tmp_path / "matrix.yaml") is None


def test_results_of_changed_files_are_no_commits(repository):
    record = run(a="failed")
    record.commit = commit(repository, "HEAD")
    assert note_files(record, repository / "matrix.yaml") is None
    assert record.exact_commit == record.commit
    (repository / "train.py").write_text("mended")
    git(repository, "commit", "-qam", "two")
    said = note_files(record, repository / "matrix.yaml")
    here = commit(repository, "HEAD")[:10]
    assert f"these are attempts at {here}: its results count for no commit" in said
    assert record.exact_commit is None
    assert note_files(record, repository / "matrix.yaml")
    assert record.uncommitted.count(here) == 1, "said once"
