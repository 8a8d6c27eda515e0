"""Verdicts from the history on the pull request's comment."""

import io
import zipfile

import pytest
from sqlalchemy import select
from test_sync import LOG, LOGIN, A, B, diagnose, report

from bot.events import PullEvent, RunEvent
from bot.runs import run_of
from bot.service import Bot
from matrix.history import schema
from matrix.history.store import open_store
from matrix.records import Attempt, JobRecord, RunRecord, SpecRef, Status, Verdict
from matrix.triage.model import Cause


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/h.sqlite"


@pytest.fixture
def bot(fake, connect, url):
    fake.add_pull(7, A, files=["src/a.py"], author="ann")
    fake.add_pull(8, B, files=["src/b.py"], author="bob", branch="other")
    return Bot(connect(), LOGIN, diagnose, day=lambda: "2026-12-01", history=url)


def runs(url):
    store = open_store(url)
    with store.begin() as c:
        found = sorted(tuple(r) for r in c.execute(select(schema.runs.c.id, schema.runs.c.pr, schema.runs.c.status)))
    store.close()
    return found


def test_a_job_that_passes_again_on_its_commit_is_flaky_and_both_attempts_are_remembered(fake, bot, url):
    rid = fake.add_run(A, [("unit", "success", "ok\n"), ("lint", "success", "ok\n")])
    bot.handle(PullEvent(7))
    fake.new_attempt(rid, [("unit", "failure", LOG)])
    bot.handle(PullEvent(7))
    assert runs(url) == [(f"github-{rid}.1", 7, "passed"), (f"github-{rid}.2", 7, "failed")]
    assert "passed on the same commit" in report(fake)


def test_it_is_said_how_often_a_failure_was_seen(fake, bot):
    fake.add_run(B, [("unit", "failure", LOG)], branch="other")
    bot.handle(PullEvent(8))
    assert "seen_before" not in report(fake, 8)
    fake.add_run(A, [("unit", "failure", LOG)])
    bot.handle(PullEvent(7))
    assert "1 time since" in report(fake)
    assert "in 1 pull request" in report(fake)
    bot.handle(PullEvent(7))  # the failure at hand does not count itself
    assert "1 time since" in report(fake)


def test_what_the_base_branch_fails_alike_is_the_bases(fake, bot):
    for _ in range(2):
        rid = fake.add_run("b" * 40, [("unit", "failure", LOG)], event="push", branch="main")
        bot.handle(RunEvent(run_of(fake.run_view(rid))))
    fake.add_run(A, [("unit", "failure", LOG)])
    bot.handle(PullEvent(7))
    assert "fails alike on the base branch" in report(fake)


def test_a_database_that_is_away_changes_nothing(fake, connect, caplog, tmp_path):
    fake.add_pull(7, A, files=["src/a.py"], author="ann")
    fake.add_run(A, [("unit", "failure", LOG)])
    bot = Bot(connect(), LOGIN, diagnose, history="postgresql+psycopg://nobody@127.0.0.1:9/none?connect_timeout=2")
    bot.handle(PullEvent(7))
    assert "1 of 1 job failed" in report(fake)
    assert "no verdicts from the history" in caplog.text


def artifact(verdict):
    cause = Cause(category="oom", rule="r", confidence=0.9, line=1, text="AssertionError", signature="0f" * 8)
    attempt = Attempt(
        n=1, started="2026-12-01T09:30:12Z", status=Status.FAILED, log="/etc/passwd", causes=[cause],
    )  # fmt: skip
    job = JobRecord(name="sft", suite="s", status=Status.FAILED, attempts=[attempt], verdict=verdict)
    run = RunRecord(
        id="20261201-093011-7f3a", spec=SpecRef(path="matrix.yaml", sha256=""), engine="local", host="h", commit=A,
        repository="some/where-else", started="2026-12-01T09:30:11Z", status=Status.FAILED, jobs=[job],
    )  # fmt: skip
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        z.writestr("run.json", run.model_dump_json(by_alias=True))
    return out.getvalue()


def test_a_verdict_of_the_matrix_itself_stands(fake, bot, url):
    text = "run 20261201-093011-7f3a\n" + LOG
    rid = fake.add_run(A, [("matrix", "failure", text)])
    fake.add_artifact(rid, "matrix-run-1", artifact(Verdict(value="infra", compared=["its own word"])))
    bot.handle(PullEvent(7))
    assert "its own word" in report(fake)
    assert [i for i, _, _ in runs(url)] == [f"github-{rid}.1"]  # what an archive says is not remembered
