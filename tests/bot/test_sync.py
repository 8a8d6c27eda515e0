"""What stands on the pull request after each event, against the double."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from fake_github import FakeGitHub, Fault

from bot.facts import gather
from bot.github import Budget, GitHub, GitHubError, transport_retry
from bot.lifecycle import ours
from bot.perform import Performer, comments_on
from bot.runs import pull_of
from bot.state import MARKER
from bot.sync import sync
from matrix.triage.model import Cause, LogReport

A, B = "a" * 40, "c" * 40
LOGIN = "ci-bot[bot]"


def diagnose(path, job):
    """A diagnosis without rules: the first line with `Error`."""
    lines = path.read_text(errors="replace").splitlines()
    hits = [(n, line) for n, line in enumerate(lines, 1) if "Error" in line]
    causes = [
        Cause(category="test_assertion", rule="r", confidence=0.9, line=n, text=line, signature=f"{n:016x}")
        for n, line in hits[:1]
    ]
    return LogReport(path=str(path), status="failed" if causes else "unknown", lines=len(lines), bytes=1, causes=causes)


def updater(client, number=7, **kw):
    performer = Performer(client, LOGIN)

    def update():
        return sync(
            performer,
            number,
            lambda: gather(client, pull_of(client.get(f"/pulls/{number}"), client.repository), diagnose=diagnose, **kw),
        )

    return update


@pytest.fixture
def update(fake, connect):
    fake.add_pull(7, A, files=["src/a.py"])
    return updater(connect())


def report(fake, number=7):
    bodies = [b for b in fake.comments_of(number, LOGIN) if b.startswith(MARKER)]
    assert len(bodies) == 1, len(bodies)
    return bodies[0]


LOG = "ok\nE   AssertionError: 1 == 2\nend\n"


def test_silence_when_there_is_nothing_to_say(fake, update):
    update()
    fake.add_run(A, [("unit", "success", "ok")])
    update()
    fake.add_run(A, [("gpu", None, "")], name="GPU")
    update()
    assert fake.comments_of(7) == []


def test_fail_then_rerun_then_green_is_one_comment_edited(fake, update):
    rid = fake.add_run(A, [("unit", "failure", LOG), ("lint", "success", "")])
    update()
    first = report(fake)
    assert "1 of 2 jobs failed" in first
    assert "AssertionError" in first
    assert "#step:2:2" in first  # the archive tells step and line
    fake.new_attempt(rid, [("unit", None, ""), ("lint", "success", "")])
    update()
    assert "1 running" in report(fake)
    assert "attempt 2" in report(fake)
    fake.finish(rid, {"unit": ("success", "ok")})
    update()
    assert "✅ All 2 jobs passed" in report(fake)
    assert re.search("attempt 1 / .*: 1 failed", report(fake))
    assert sum(m == "POST" and "comments" in p for m, p in fake.writes()) == 1


def test_a_failure_after_green_is_posted_anew_and_the_old_comment_goes_after_it(fake, update):
    fake.add_run(A, [("unit", "failure", LOG)])
    update()
    old = ours(comments_on_fake(fake), LOGIN)[0].id
    fake.push(7, B)
    rid = fake.add_run(B, [("unit", "success", "")])
    update()
    assert "✅" in report(fake)
    fake.new_attempt(rid, [("unit", None, "")])
    update()
    fake.finish(rid, {"unit": ("failure", LOG)})
    update()
    assert "❌" in report(fake)
    assert ours(comments_on_fake(fake), LOGIN)[0].id != old
    writes = [w for w in fake.writes() if "comments" in w[1]]
    assert [m for m, _ in writes][-2:] == ["POST", "DELETE"]


def comments_on_fake(fake):
    from bot.lifecycle import Comment

    return [Comment(c, x["user"], x["body"]) for c, x in fake.comment_map.items()]


def test_cancelled_runs_are_said_and_do_not_shout(fake, update):
    fake.add_run(A, [("unit", "failure", LOG)])
    update()
    rid = fake.add_run(A, [("unit", "cancelled", None)])
    update()
    assert "⚪ 1 cancelled" in report(fake)
    assert fake.run_map[rid]


def test_attempt_1_of_a_newer_run_beats_attempt_2_of_an_older_one(fake, update):
    old = fake.add_run(A, [("unit", "failure", LOG)])
    fake.new_attempt(old, [("unit", "failure", LOG)])
    fake.add_run(A, [("unit", "success", "")])
    update()
    assert fake.comments_of(7) == []


def test_our_comment_is_found_behind_300_others_and_a_strangers_quote_is_not_ours(fake, update):
    fake.strict = False  # checking lists of hundreds takes most of the time
    for i in range(300):
        fake.add_comment(7, f"{MARKER}\nI quote this" if i == 5 else f"talk {i}", "stranger")
    fake.add_run(A, [("unit", "failure", LOG)])
    update()
    fake.add_run(A, [("gpu", "failure", LOG)], name="GPU")
    update()
    assert len(fake.comments_of(7, LOGIN)) == 1
    assert "2 of 2 jobs failed" in report(fake)
    assert fake.comments_of(7, "stranger")[5] == f"{MARKER}\nI quote this"


def test_a_log_that_is_gone_and_one_that_is_not_there_yet_are_rows(fake, update):
    fake.add_run(A, [("unit", "failure", None)])
    fake.add_run(A, [("gpu", "failure", None), ("big", None, "")], name="GPU")
    update()
    assert "log is gone" in report(fake)
    assert "not available yet" in report(fake)


def test_the_request_budget_of_an_event_for_40_jobs_holds(fake, connect):
    fake.add_pull(7, A, files=["a.py"])
    jobs = [(f"job {i}", "failure" if i % 4 == 0 else "success", LOG) for i in range(40)]
    fake.add_run(A, jobs)
    fake.add_run(A, jobs, name="GPU")
    updater(connect())()
    assert fake.calls <= 30, fake.journal
    assert "20 of 80 jobs failed" in report(fake)


def test_unchanged_facts_write_nothing(fake, update):
    fake.add_run(A, [("unit", "failure", LOG)])
    update()
    n = len(fake.writes())
    update()
    assert len(fake.writes()) == n


def test_leftovers_of_a_lost_answer_are_cleared(fake, update):
    fake.add_run(A, [("unit", "failure", LOG)])
    update()
    fake.add_comment(7, report(fake), LOGIN)
    update()
    report(fake)


def test_the_check_run_says_the_same_and_annotates_only_changed_files(fake, connect):
    fake.add_pull(7, A, files=["src/a.py"])
    log = 'File "/ci/repo/src/a.py", line 12, in f\n  File "/usr/lib/x.py", line 3, in g\nAssertionError: 1\n'
    fake.add_run(A, [("unit", "failure", log)])
    updater(connect())()
    (check,) = fake.checks.values()
    assert (check["conclusion"], check["head_sha"]) == ("failure", A)
    assert check["output"]["title"] == "❌ 1 of 1 job failed, 0 passed"
    (only,) = fake.annots[check["id"]]
    assert (only["path"], only["start_line"]) == ("src/a.py", 12)


def test_a_token_without_checks_still_comments(fake, update):
    fake.add_run(A, [("unit", "failure", LOG)])
    fake.faults.append(Fault(403, {"message": "Resource not accessible by integration"}, {}, "check-runs"))
    update()
    assert "❌" in report(fake)


FAULTS = [
    pytest.param(Fault(502, after=True), id="502-after"),
    pytest.param(Fault(403, {"message": "Resource not accessible by integration"}), id="403"),
    pytest.param(Fault(502), id="502", marks=pytest.mark.soak),
    pytest.param(Fault(422, {"message": "Validation Failed"}), id="422", marks=pytest.mark.soak),
    pytest.param(Fault.secondary(), id="secondary", marks=pytest.mark.soak),
]  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_call_leaves_one_comment_with_all_rows_in_the_end(fault):
    """Every call of the sequence fails once in turn; a refused event is delivered again, as GitHub and the queue do."""
    n = 1
    while True:
        fake = FakeGitHub().start()
        try:
            fake.strict = False  # the other tests check the calls; here are some thousands of them
            fake.add_pull(7, A, files=["src/a.py"])
            fake.add_run(A, [("unit", "failure", LOG)])
            fake.add_run(A, [("gpu", "failure", LOG)], name="GPU")
            retry = transport_retry(total=3, max_wait=5, secondary_wait=0)
            retry.backoff_factor = 0.001
            client = GitHub(fake.full_name, "t", base_url=fake.base, retry=retry, pace=0, budget=Budget(500))
            fake.fault_at = {n: Fault(fault.status, fault.body, fault.headers, "", fault.after)}
            update = updater(client)
            for _ in range(2):
                try:
                    update()
                except GitHubError:
                    continue
            client.close()
            assert "2 of 2 jobs failed" in report(fake)
            assert not [v for v in fake.violations if v[0] == "response"]
            if fake.fault_at:  # the sequence has fewer calls than n
                break
        finally:
            fake.stop()
        n += 1
    assert n > 10


OTHER_PROCESS = """
import sys
sys.path[:0] = sys.argv[2:4]
from test_sync import GitHub, Budget, updater
client = GitHub("octo/repo", "t", base_url=sys.argv[1], pace=0, budget=Budget(500))
print("ready", flush=True)
sys.stdin.readline()
print(sum(n for s, n in updater(client)().counts.items() if s == "failed"))
"""


@pytest.mark.parametrize("round_", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_two_processes_at_once_leave_one_comment_with_both_rows(fake, round_):
    fake.add_pull(7, A, files=["src/a.py"])
    fake.add_run(A, [("unit", "failure", LOG)])
    fake.add_run(A, [("gpu", "failure", LOG)], name="GPU")
    here = Path(__file__).parent
    command = [sys.executable, "-c", OTHER_PROCESS, fake.base, str(here), str(here.parents[1])]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for p in both:
        assert p.stdout.readline() == "ready\n"
    for p in both:
        p.stdin.write("go\n")
        p.stdin.flush()
    assert [p.communicate(timeout=60)[0] for p in both] == ["2\n", "2\n"]
    assert "2 of 2 jobs failed" in report(fake)


def test_a_staler_writer_does_not_overwrite(fake, connect):
    fake.add_pull(7, A)
    rid = fake.add_run(A, [("unit", "failure", LOG), ("gpu", None, "")])
    client = connect()
    pull = pull_of(client.get("/pulls/7"), client.repository)
    old = gather(client, pull, diagnose=diagnose)
    fake.finish(rid, {"gpu": ("failure", LOG)})
    updater(connect())()
    views = [old]
    sync(Performer(client, LOGIN), 7, lambda: views.pop() if views else gather(client, pull, diagnose=diagnose))
    assert "2 of 2 jobs failed" in report(fake)


def test_a_push_while_we_write_does_not_leave_the_old_commit(fake, connect):
    fake.add_pull(7, A)
    fake.add_run(A, [("unit", "failure", LOG)])
    fake.add_run(B, [("unit", "failure", LOG), ("lint", "success", "")])
    client = connect()
    calls = []

    def facts():
        pull = pull_of(client.get("/pulls/7"), client.repository)
        found = gather(client, pull, diagnose=diagnose)
        if not calls:
            fake.push(7, B)
        calls.append(1)
        return found

    sync(Performer(client, LOGIN), 7, facts)
    assert "1 of 2 jobs failed" in report(fake)
    assert comments_on(client, 7)[-1].body.count(B[:10])
