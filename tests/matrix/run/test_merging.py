"""Runs of parts of a matrix, and of parts that ran more than once, become one."""

import pytest

from matrix.errors import UsageError
from matrix.records import Attempt, JobRecord, RunRecord, SpecRef, Status, Verdict
from matrix.run.merging import Part, merge
from matrix.spec.job import Job
from matrix.triage.model import Cause

JOBS = {name: Job(name, "s", ("x",)) for name in ("a", "b", "c")}
NEEDS = {"b": ("a",)}


def attempt(n, status):
    causes = (
        [Cause(category="port_in_use", rule="r", confidence=1, text="t", signature="s")] if status == "failed" else []
    )
    return Attempt(n=n, started="2026-12-01T09:30:00Z", ended="2026-12-01T09:31:00Z", status=Status(status),
                   log=f"logs/x/{n}.log", causes=causes)  # fmt: skip


def part(folder, n, **jobs):
    """Make a run: job=what its attempts came to, or a status without any."""
    records = []
    for name in JOBS:
        word = jobs.get(name, "skipped")
        words = word.split(",") if word.split(",")[0] in ("passed", "failed") else []
        record = JobRecord(name=name, suite="s", status=Status(words[-1] if words else word),
                           reason="not named" if word == "skipped" else None)  # fmt: skip
        record.attempts = [attempt(i, status) for i, status in enumerate(words, 1)]
        if word == "blocked":
            record.blocked_by, record.verdict = ["a"], Verdict(value="follows", compared=["a"])
        records.append(record)
    run = RunRecord(id=f"r{n}", spec=SpecRef(path="matrix.yaml", sha256="0"), engine="local", host="h", commit="c",
                    started=f"2026-12-01T09:3{n}:00Z", status=Status.PASSED, jobs=records)  # fmt: skip
    return Part(run, folder / f"r{n}")


def merged(*parts):
    record, copies = merge(parts, JOBS, NEEDS, "m")
    return {j.name: (j.status.value, [a.status.value for a in j.attempts]) for j in record.jobs}, record, copies


def test_runs_of_other_jobs_add_up(tmp_path):
    found, record, _ = merged(part(tmp_path, 1, a="passed", b="passed"), part(tmp_path, 2, c="failed"))
    assert found == {"a": ("passed", ["passed"]), "b": ("passed", ["passed"]), "c": ("failed", ["failed"])}
    assert record.status is Status.FAILED


def test_a_job_that_was_blocked_stays_so_beside_a_run_that_did_not_want_it(tmp_path):
    found, record, _ = merged(part(tmp_path, 1, a="failed", b="blocked"), part(tmp_path, 2, c="passed"))
    assert found["b"] == ("blocked", [])
    assert record.job("b").blocked_by == ["a"]
    assert record.job("b").reason == "needs what a did not produce"


def test_attempts_of_all_runs_stand_in_their_order_with_logs_of_their_own(tmp_path):
    found, record, copies = merged(
        part(tmp_path, 1, a="failed,failed", b="blocked"), part(tmp_path, 2, a="failed,passed", b="passed")
    )
    assert found == {"a": ("passed", ["failed", "failed", "failed", "passed"]), "b": ("passed", ["passed"]),
                     "c": ("skipped", [])}  # fmt: skip
    assert record.job("a").reason.startswith("passed on attempt 4 (attempt 1: port_in_use, ")
    assert [(str(source.relative_to(tmp_path)), log) for source, log in copies][:4] == [
        ("r1/logs/x/1.log", "logs/a/1.log"), ("r1/logs/x/2.log", "logs/a/2.log"),
        ("r2/logs/x/1.log", "logs/a/3.log"), ("r2/logs/x/2.log", "logs/a/4.log"),
    ]  # fmt: skip


def test_what_passed_twice_has_nothing_to_tell(tmp_path):
    _, record, _ = merged(part(tmp_path, 1, a="passed"), part(tmp_path, 2, a="passed"))
    assert record.job("a").reason is None


def test_a_run_that_was_cancelled_before_a_job_began_takes_nothing_from_an_earlier_one(tmp_path):
    found, _, _ = merged(part(tmp_path, 1, a="passed"), part(tmp_path, 2, a="cancelled"))
    assert found["a"] == ("passed", ["passed"])
    found, _, _ = merged(part(tmp_path, 2, a="cancelled"))
    assert found["a"] == ("cancelled", [])


def test_runs_of_other_commits_do_not_belong_together(tmp_path):
    other = part(tmp_path, 2, a="passed")
    other.record.commit = "d"
    with pytest.raises(UsageError, match="different commits"):
        merged(part(tmp_path, 1, a="passed"), other)
