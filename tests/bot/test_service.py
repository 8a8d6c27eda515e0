"""Commands and events from end to end, against the double."""

import re

import pytest
from fake_github import Fault
from rendering import problems
from test_sync import LOG, LOGIN, A, B, diagnose, report

from bot.conversation import placeholder
from bot.events import CommandEvent, JobEvent, PullEvent, RunEvent
from bot.github import GitHubError
from bot.policy import PATH
from bot.runs import run_of
from bot.service import Bot
from bot.state import MARKER
from matrix.history import quarantine

QUARANTINED = """quarantine:
  - test: t/a.py::old  # since the port moved
    owner: x
    reason: y
    issue: https://github.com/octo/repo/issues/1
    expires: 2027-01-31
"""


@pytest.fixture
def bot(fake, connect):
    fake.add_pull(7, A, files=["src/a.py"], author="ann")
    fake.perm = {"wendy": "write", "ann": "read", "bob": "read"}
    fake.pulls[7]["author_association"] = "CONTRIBUTOR"
    return Bot(connect(), LOGIN, diagnose, day=lambda: "2026-12-01")


@pytest.fixture
def say(fake, bot):
    """Comment on the pull request as somebody; returns the bot's answer."""

    def comment(body, user="wendy", deliveries=1):
        c = fake.add_comment(7, body, user)
        for _ in range(deliveries):
            bot.handle(CommandEvent(7, c, user, body))
        answers = [b for b in fake.comments_of(7, LOGIN) if b.startswith(f"<!-- matrix-answer:{c} -->")]
        assert len(answers) <= 1
        return re.sub("\u2060", "", answers[0]) if answers else None

    return comment


def reactions(fake, comment):
    return sorted(r["content"] for r in fake.react[comment])


def reruns(fake):
    return [p for m, p in fake.writes() if "rerun" in p]


@pytest.fixture
def failed(fake):
    return fake.add_run(A, [("unit (3.11)", "failure", LOG), ("gpu", "failure", LOG), ("lint", "success", "")])


def test_rerun_of_what_failed(fake, say, failed):
    text = say("/rerun", "ann")
    assert "✅ <code>/rerun</code> re-running 2 jobs of `CI`" in text
    assert len(fake.run_map[failed]["attempts"]) == 2
    (commented,) = [c for c, x in fake.comment_map.items() if x["user"] == "ann"]
    assert reactions(fake, commented) == ["rocket"]


def test_rerun_by_name_with_spaces_and_near_names(fake, say, failed):
    assert "✅" in say("/rerun unit (3.11)")
    assert reruns(fake)[-1].endswith("/rerun")
    assert "/actions/jobs/" in reruns(fake)[-1]
    fake.finish(failed, {"unit (3.11)": ("failure", LOG)})
    text = say("/rerun unti")
    assert "❌" in text
    assert "nearest: `unit (3.11)`" in text


def test_rerun_all_and_cancel_want_write(fake, say, failed):
    assert "❌ <code>/rerun all</code> `/rerun-all` wants write permission" in say("/rerun all", "ann")
    assert not reruns(fake)
    assert "✅" in say("/rerun all")
    assert "✅ <code>/cancel</code> cancelling `CI`" in say("/cancel")
    assert fake.run_view(failed)["conclusion"] == "cancelled"


def test_denials_are_answered_with_a_reaction(fake, say, failed):
    assert "wants write permission or the author" in say("/rerun", "bob")
    assert reactions(fake, max(c for c, x in fake.comment_map.items() if x["user"] == "bob")) == ["confused"]


def test_a_command_delivered_twice_acts_once(fake, say, failed):
    say("/rerun", deliveries=3)
    assert len(reruns(fake)) == 1


def test_an_edited_comment_does_not_act_again_but_acts_if_it_had_no_command(fake, bot, failed):
    c = fake.add_comment(7, "hello", "wendy")
    bot.handle(CommandEvent(7, c, "wendy", "/rerun"))  # the event says so, the comment (edited back) does not
    assert not reruns(fake)
    fake.comment_map[c]["body"] = "/rerun"
    for _ in range(2):
        bot.handle(CommandEvent(7, c, "wendy", "/rerun"))
    fake.comment_map[c]["body"] = "/rerun all"
    bot.handle(CommandEvent(7, c, "wendy", "/rerun all"))
    assert len(reruns(fake)) == 1


def test_a_deleted_comment_is_nothing(fake, bot, failed):
    c = fake.add_comment(7, "/rerun", "wendy")
    del fake.comment_map[c]
    bot.handle(CommandEvent(7, c, "wendy", "/rerun"))
    assert not fake.writes()


def test_a_push_between_command_and_action_stops_it(fake, bot, failed):
    c = fake.add_comment(7, "/rerun", "wendy")
    original = bot._act

    def push_first(*args):
        fake.push(7, B)
        return original(*args)

    bot._act = push_first
    bot.handle(CommandEvent(7, c, "wendy", "/rerun"))
    assert not reruns(fake)
    assert any("the head moved" in b for b in fake.comments_of(7, LOGIN))


def test_what_cannot_be_rerun_says_why(fake, say):
    assert "no run at this head" in say("/rerun all")
    assert "nothing failed" in say("/rerun")
    fake.add_run(A, [("unit", None, "")])
    assert "still running" in say("/rerun unit")
    assert "still running" in say("/rerun")


def test_githubs_refusal_is_the_answer(fake, say, failed):
    fake.faults.append(Fault(403, {"message": "Must have admin rights"}, {}, "POST .*rerun"))
    text = say("/rerun")
    assert "❌" in text
    assert "403 Must have admin rights" in text


def test_explain_shows_the_row_and_its_evidence(say, failed):
    text = say("/explain gpu", "bob")
    assert "E   AssertionError: 1 == 2" in text
    assert "unit (3.11)" not in text
    assert "no job `zzz`" in say("/explain zzz")


def test_compare_names_what_fails_only_here(fake, say, failed):
    fake.commits["main"] = B
    fake.add_run(B, [("unit (3.11)", "success", ""), ("gpu", "failure", LOG)], event="push")
    text = say("/compare main")
    assert "failed in both: `gpu`" in text
    assert "failed only here: `unit (3.11)`" in text
    assert "no commit" in say("/compare nope")


@pytest.mark.parametrize("ref", ["main/pulls", "main/check-runs", "release/1.0"])
def test_a_ref_is_one_segment_of_an_address_whatever_it_holds(fake, say, failed, ref):
    fake.commits["release/1.0"] = fake.commits["main"] = B
    fake.add_run(B, [("gpu", "failure", LOG)], event="push")
    text = say(f"/compare {ref}")
    assert ("failed in both: `gpu`" in text) == (ref == "release/1.0")
    assert ("no commit" in text) == (ref != "release/1.0")


def test_quarantine_answers_with_a_patch(fake, say, failed):
    fake.contents[("main", ".matrix/quarantine.yaml")] = QUARANTINED
    text = say('/quarantine t/b.py::new[x] fails "sometimes" ```')
    assert '+  - test: "t/b.py::new[x]"' in text
    assert '+    expires: "2026-12-31"' in text
    assert "already, until 2027-01-31" in say("/quarantine t/a.py::old because")
    assert "no test id" in say("/quarantine $(rm) because")


def test_quarantine_opens_one_pull_request_where_the_policy_allows_it(fake, say, failed):
    fake.contents[("main", ".matrix/quarantine.yaml")] = QUARANTINED
    fake.contents[("main", PATH)] = "quarantine_pull_request: true\n"
    fake.commits["main"] = B
    for _ in range(2):
        assert re.search(r"✅ .*opened \[pull request (\d+)\]", say("/quarantine t/b.py::new fails @octocat #7"))
    (made,) = [p for n, p in fake.pulls.items() if n != 7]
    assert (made["base"]["ref"], made["title"]) == ("main", "Quarantine a test until 2026-12-31")
    assert not problems(made["body"], ("https://github.com/octo/repo/pull/7#issuecomment-",))
    branch = made["head"]["ref"]
    entries = quarantine.read(fake.contents[(branch, ".matrix/quarantine.yaml")].encode(), "q").entries
    assert [(e.test, e.owner) for e in entries] == [("t/a.py::old", "x"), ("t/b.py::new", "wendy")]
    assert fake.contents[("main", ".matrix/quarantine.yaml")] == QUARANTINED


@pytest.mark.parametrize("call", ["POST .*/git/refs", "PUT .*/contents", "POST .*/pulls$"])
def test_where_github_lets_us_open_no_pull_request_the_patch_is_the_answer(fake, say, failed, call):
    fake.contents[("main", PATH)] = "quarantine_pull_request: true\n"
    fake.commits["main"] = B
    fake.faults.append(Fault(403, {"message": "not permitted to create pull requests"}, {}, call))
    text = say("/quarantine t/b.py::new fails")
    assert "does not let me open a pull request (403), so apply this with `git apply`" in text


def test_wrong_is_noted_for_the_score(fake, say, failed):
    text = say("/wrong gpu category=oom_killed line=3", "ann")
    assert re.search(r"<!-- f=1;wrong;job=\w{12};category=oom_killed;line=3;said=test_assertion;rule=r;", text)


def test_help_lists_every_command(say):
    text = say("/help", "stranger")
    for verb in ("rerun", "explain", "compare", "quarantine", "cancel", "wrong", "help"):
        assert f"/{verb}" in text


def test_several_commands_get_one_answer_with_a_line_each(fake, say, failed):
    text = say("/explain gpu\n\n/rerun all\n\n/nonsense\n\n/rerrun", "ann")
    assert text.count("✅") == 1
    assert text.count("❌") >= 2
    assert "did you mean `/rerun`" in text


def test_the_budget_of_a_user_counts_over_all_pull_requests(fake, bot, say, failed):
    fake.contents[("main", PATH)] = "reruns_per_user_per_day: 1\n"
    assert "✅" in say("/rerun", "ann")
    fake.finish(failed, {"unit (3.11)": ("failure", LOG), "gpu": ("failure", LOG)})
    assert "your 1 re-runs of today are used up" in say("/rerun", "ann")
    other = fake.add_run(B, [("unit", "failure", LOG)])
    fake.add_pull(8, B, author="ann")
    c = fake.add_comment(8, "/rerun", "ann")
    bot.handle(CommandEvent(8, c, "ann", "/rerun"))
    assert "used up" in fake.comments_of(8, LOGIN)[0]
    assert len(fake.run_map[other]["attempts"]) == 1
    bot.day = lambda: "2026-12-02"
    bot.handle(CommandEvent(8, fake.add_comment(8, "/rerun", "ann"), "ann", "/rerun"))
    assert len(fake.run_map[other]["attempts"]) == 2
    assert len(reruns(fake)) == 2


def test_policy_comes_from_the_base_branch_and_a_bad_one_is_said(fake, say, failed):
    fake.contents[("topic", PATH)] = "commands: {rerun: {permission: none}}\n"
    assert "❌" in say("/rerun", "bob")
    fake.contents[("main", PATH)] = "nonsense: 1\n"
    assert "matrix-bot.yaml" in say("/rerun")
    assert not reruns(fake)


def test_a_delivery_that_died_is_finished_not_repeated(fake, bot, failed):
    c = fake.add_comment(7, "/rerun", "wendy")
    fake.add_comment(7, placeholder(c, "0" * 16), LOGIN)
    bot.handle(CommandEvent(7, c, "wendy", "/rerun"))
    assert not reruns(fake)
    assert any("interrupted" in b for b in fake.comments_of(7, LOGIN))


def test_a_probe_goes_on_until_its_number_is_reached(fake, bot, say, failed):
    say("/rerun gpu --times 3")
    for _ in range(5):
        fake.finish(failed, {"gpu": ("failure", LOG)})
        bot.handle(RunEvent(run_of(fake.run_view(failed))))
    assert len(fake.run_map[failed]["attempts"]) == 4  # the first and three more


@pytest.mark.parametrize("status", [502, 403])
def test_a_fault_at_any_call_of_a_command_never_acts_twice(fake, connect, failed, status):
    fake.strict = False
    fake.add_pull(7, A, author="ann")
    fake.perm = {"wendy": "write"}
    message = {"message": "Resource not accessible by integration"} if status == 403 else {"message": "Server Error"}
    for n in range(1, 40):
        before = len(reruns(fake))
        fake.finish(failed, {"unit (3.11)": ("failure", LOG), "gpu": ("failure", LOG)})
        attempts = len(fake.run_map[failed]["attempts"])
        client = connect(total=0)
        client._pause = 0.001
        bot = Bot(client, LOGIN, diagnose, day=lambda: "2026-12-01")
        c = fake.add_comment(7, "/rerun", "wendy")
        fake.calls, fake.fault_at = 0, {n: Fault(status, message)}
        for _ in range(3):
            try:
                bot.handle(CommandEvent(7, c, "wendy", "/rerun"))
            except GitHubError:
                continue
        answers = [b for b in fake.comments_of(7, LOGIN) if b.startswith(f"<!-- matrix-answer:{c} -->")]
        assert len(answers) == 1
        assert "done=1" in answers[0]
        assert len(fake.run_map[failed]["attempts"]) - attempts <= 1
        if fake.fault_at:
            break
        for k in [k for k, x in fake.comment_map.items() if x["n"] == 7]:
            del fake.comment_map[k]
        fake.run_map[failed]["attempts"] = fake.run_map[failed]["attempts"][-1:]
        assert len(reruns(fake)) - before <= 2
    assert n > 10


# ---- other events


def test_a_run_of_a_fork_finds_its_pull_request_without_scanning(fake, bot):
    fake.add_pull(9, B, fork="ann/repo", branch="patch-1", files=["matrix.yaml"])
    rid = fake.add_run(B, [("unit", "failure", LOG)], fork="ann/repo", branch="patch-1")
    bot.handle(RunEvent(run_of(fake.run_view(rid))))
    assert "1 of 1 job failed" in report(fake, 9)
    assert "from a fork" in report(fake, 9) or "for a fork" in report(fake, 9)
    assert fake.comments_of(7) == []
    assert any("head=ann%3Apatch-1" in p or "head=ann:patch-1" in p for _, p, _ in fake.journal)


def test_a_run_of_an_old_head_says_nothing(fake, bot):
    rid = fake.add_run(A, [("unit", "failure", LOG)])
    fake.push(7, B)
    bot.handle(RunEvent(run_of(fake.run_view(rid))))
    assert fake.comments_of(7) == []


def test_a_job_that_ends_before_its_run_is_reported_at_once(fake, bot):
    rid = fake.add_run(A, [("unit", "failure", LOG), ("gpu", None, "")])
    bot.handle(JobEvent(rid, A))
    assert "1 of 2 jobs failed" in report(fake)
    assert "1 running" in report(fake)


def test_a_new_head_turns_the_old_report_into_a_waiting_one(fake, bot):
    rid = fake.add_run(A, [("unit", "failure", LOG)])
    bot.handle(RunEvent(run_of(fake.run_view(rid))))
    fake.push(7, B)
    fake.add_run(B, [("unit", None, "")])
    bot.handle(PullEvent(7))
    assert "⏳" in report(fake)
    assert B[:10] in report(fake)


def test_a_red_default_branch_is_one_issue_opened_updated_and_closed(fake, bot):
    rid = fake.add_run(B, [("unit", "failure", LOG)], event="schedule", branch="main")
    for _ in range(2):
        bot.handle(RunEvent(run_of(fake.run_view(rid))))
    (issue,) = fake.issues.values()
    assert issue["title"] == "CI is red on main"
    assert issue["body"].startswith(MARKER)
    assert f"<code>gh run rerun {rid} --failed</code>" in issue["body"]  # `matrix rerun` knows no run of GitHub's
    assert "matrix rerun" not in issue["body"]
    fake.new_attempt(rid, [("unit", "success", "")])
    bot.handle(RunEvent(run_of(fake.run_view(rid))))
    assert issue["state"] == "closed"
    assert len(fake.issues) == 1
