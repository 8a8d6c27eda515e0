"""What is gathered, with the matrix's own triage on real logs."""

import io
import json
import zipfile
from pathlib import Path

import pytest
from test_sync import LOG, A, B, diagnose

from bot.comment import compose
from bot.facts import gather
from bot.facts_board import board_of_facts
from bot.logs import file_name
from bot.runs import newest, pull_of, run_of, status_of
from matrix.records import Status

REPORT = Path(__file__).parents[1] / "data" / "github" / "original_report" / "run.json"


@pytest.fixture
def look(fake, connect):
    fake.add_pull(7, A, files=["src/a.py"])
    client = connect()

    def gathered(**kw):
        kw.setdefault("diagnose", diagnose)
        return gather(client, pull_of(client.get("/pulls/7"), client.repository), **kw)

    return gathered


def run_archive(record, **files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("run/run.json", record if isinstance(record, str) else json.dumps(record))
        for name, text in files.items():
            z.writestr(f"run/{name}", text)
    return out.getvalue()


def record():
    data = json.loads(REPORT.read_text())
    data["commit"] = A
    return data


def test_a_matrix_runs_record_takes_the_place_of_the_job_whose_log_names_it(fake, look):
    rid = fake.add_run(A, [("matrix", "failure", f"run 20260608-090000-7f3a\n{LOG}"), ("lint", "failure", LOG)])
    log = "".join(f"line {i}\n" for i in range(1, 300))
    fake.add_artifact(rid, "matrix-run-1", run_archive(record(), **{"logs/qwen3-single-pt/1.log": log}))
    board = board_of_facts(look())
    assert sorted(r.job for r in board.rows) == [
        "lint",
        "qwen-sft",
        "qwen3-single-pt",
        "qwen3vl-sft-fsdp",
        "unittest-gpu",
    ]
    found = next(r for r in board.rows if r.job == "qwen3-single-pt").findings[0]
    assert "line 212" in found.excerpt
    assert board.notes == ("artifact-of-pr",)
    assert "/rerun qwen3-single-pt" in compose(board)


def test_a_record_that_claims_success_does_not_hide_a_red_job(fake, look):
    data = record()
    for job in data["jobs"]:
        job.update(status="passed")
        for attempt in job["attempts"]:
            attempt.update(status="passed", causes=[])
    rid = fake.add_run(A, [("matrix", "failure", f"run 20260608-090000-7f3a\n{LOG}")])
    fake.add_artifact(rid, "matrix-run-1", run_archive(data))
    assert [r.job for r in board_of_facts(look()).rows] == ["matrix"]


@pytest.mark.parametrize("case", ["slip", "bomb", "rubbish", "not-a-record", "huge-record"])
def test_a_hostile_artifact_is_refused_and_the_log_speaks(fake, look, case):
    rid = fake.add_run(A, [("matrix", "failure", f"run 20260608-090000-7f3a\n{LOG}")])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("../run.json" if case == "slip" else "run.json", b"\0" * (40 << 20) if case == "bomb" else b"[1]")
        if case == "huge-record":
            z.writestr("x/run.json", b"{" * 100)
    fake.add_artifact(rid, "matrix-run", b"no zip" if case == "rubbish" else out.getvalue())
    board = board_of_facts(look())
    assert [r.job for r in board.rows] == ["matrix"]
    assert board.notes == ("artifact-refused",)


def test_a_record_of_another_commit_is_not_used(fake, look):
    data = record() | {"commit": B}
    rid = fake.add_run(A, [("matrix", "failure", f"run 20260608-090000-7f3a\n{LOG}")])
    fake.add_artifact(rid, "matrix-run", run_archive(data))
    assert [r.job for r in board_of_facts(look()).rows] == ["matrix"]


def test_the_real_triage_names_a_real_failure_with_its_step_and_line(fake, look):
    log = (
        "2026-06-08T10:00:00.0000000Z ##[group]Run pytest\n2026-06-08T10:00:01.0000000Z collected 1 item\n"
        "2026-06-08T10:00:02.0000000Z Traceback (most recent call last):\n"
        "2026-06-08T10:00:02.1000000Z ModuleNotFoundError: No module named 'paddlefleet'\n"
        "2026-06-08T10:00:03.0000000Z ##[error]Process completed with exit code 1.\n"
    )
    from bot.logs import diagnose_log

    fake.add_run(A, [("unit / a:b", "failure", log)])
    (row,) = board_of_facts(look(diagnose=diagnose_log)).rows
    found = row.findings[0]
    assert "No module named 'paddlefleet'" in found.evidence.text
    assert found.evidence.url.endswith("#step:2:4")


def test_logs_are_read_once_for_a_job_that_ended(fake, look):
    fake.add_run(A, [("unit", "failure", LOG), ("gpu", "failure", LOG)])
    cache = {}
    look(cache=cache)
    assert len(fake.blob_requests) == 1  # one archive for the whole attempt
    look(cache=cache)
    assert len(fake.blob_requests) == 1


def test_a_workflow_that_needs_approval_waits_and_one_that_is_broken_is_a_row(fake, look):
    fake.add_run(A, [], conclusion="action_required", name="CI")
    fake.add_run(A, [], conclusion="startup_failure", name="Broken")
    board = board_of_facts(look())
    assert [w.reason for w in board.waiting] == ["a maintainer must approve the run"]
    assert [(r.job, r.status) for r in board.rows] == [("Broken", Status.ERROR)]


def test_our_own_workflow_is_left_out(fake, look):
    fake.add_run(A, [("report", "failure", LOG)], name="Bot")
    assert look(ignore=frozenset({".github/workflows/bot.yml"})).runs == []


@pytest.mark.parametrize(
    ("pair", "status"),
    [
        (("completed", "success"), Status.PASSED),
        (("completed", "timed_out"), Status.TIMEOUT),
        (("completed", "something_new"), Status.FAILED),
        (("completed", None), Status.FAILED),
        (("in_progress", None), Status.RUNNING),
        (("queued", None), Status.PENDING),
        (("waiting", None), Status.PENDING),
    ],
)
def test_status(pair, status):
    assert status_of(*pair) is status


def test_runs_of_different_events_both_count_and_the_newest_of_each():
    def run(ident, event):
        return run_of({"id": ident, "name": "CI", "path": "ci.yml", "event": event, "run_attempt": 9 - ident})

    got = newest([run(1, "push"), run(2, "pull_request"), run(3, "pull_request"), run(4, "workflow_run")])
    assert sorted(r.id for r in got) == [1, 3]


def test_names_in_githubs_archive():
    assert file_name("unit / a:b") == "unit  ab"
    assert len(file_name("修" * 200)) == 90
    assert len(file_name("😀" * 200).encode("utf-16-le")) == 180
