"""Votes and corrections, from a reaction on the double to the database, the branch and the score."""

import re

import pytest
from fake_github import Fault
from test_sync import LOG, LOGIN, A, diagnose, report

from bot.events import CommandEvent, PullEvent
from bot.feedback import BranchKeeper, StoreKeeper
from bot.service import Bot
from bot.state import MARKER, parse_state
from matrix.history.feedback import Feedback, given_since, read_lines
from matrix.history.store import open_store


@pytest.fixture(params=["database", "branch"])
def kept(request, fake, connect, tmp_path):
    """A keeper, with what reads everything back that it holds."""
    if request.param == "database":
        keeper = StoreKeeper(f"sqlite:///{tmp_path}/h.sqlite")

        def read():
            store = open_store(keeper.url)
            with store.begin() as c:
                return given_since(c, 0)

    else:
        keeper = BranchKeeper(connect())

        def read():
            return read_lines(fake.contents.get(("matrix-feedback", "feedback.jsonl"), ""))

    return keeper, read


@pytest.fixture
def bot(fake, connect, kept):
    fake.add_pull(7, A, files=["src/a.py"], author="ann")
    fake.perm = {"wendy": "write", "ann": "read", "bob": "read"}
    return Bot(connect(), LOGIN, diagnose, day=lambda: "2026-12-01", keeper=kept[0])


@pytest.fixture
def read(kept):
    return kept[1]


def the_report(fake):
    return next(c for c, x in fake.comment_map.items() if x["user"] == LOGIN and x["body"].startswith(MARKER))


def test_a_vote_on_a_single_diagnosis_is_kept_with_it(fake, bot, read):
    fake.add_run(A, [("unit", "failure", LOG)])
    bot.handle(PullEvent(7))
    vote = fake.add_reaction(the_report(fake), "-1", "wendy")
    bot.listen()
    (item,) = read()
    assert (item.id, item.author, item.right) == (f"reaction-{vote['id']}", "wendy", False)
    assert (item.category, item.rule, item.verdict, item.confidence) == ("test_assertion", "r", "cannot-tell", 0.9)
    assert item.url.endswith(f"/pull/7#issuecomment-{the_report(fake)}")


def test_looking_again_keeps_nothing_twice_and_writes_nothing(fake, bot, read):
    fake.add_run(A, [("unit", "failure", LOG)])
    bot.handle(PullEvent(7))
    fake.add_reaction(the_report(fake), "+1", "ann")
    bot.listen()
    before = fake.writes()
    bot.listen()
    bot.handle(PullEvent(7))
    assert fake.writes() == before
    assert [item.author for item in read()] == ["ann"]


def test_a_vote_is_taken_up_before_what_it_is_about_is_edited_away(fake, bot, read):
    rid = fake.add_run(A, [("unit", "failure", LOG)])
    bot.handle(PullEvent(7))
    fake.add_reaction(the_report(fake), "+1", "ann")
    fake.new_attempt(rid, [("unit", "success", "ok\n")])
    bot.handle(PullEvent(7))
    assert "green" in parse_state(report(fake)).colour
    assert [item.category for item in read()] == ["test_assertion"]


def test_a_vote_older_than_the_last_edit_names_no_diagnosis(fake, bot, read):
    fake.add_run(A, [("unit", "failure", LOG)])
    bot.handle(PullEvent(7))
    fake.add_reaction(the_report(fake), "-1", "wendy")
    fake.comment_map[the_report(fake)]["up"] = "2099-01-01T00:00:00Z"
    bot.listen()
    assert [(item.right, item.category) for item in read()] == [(False, None)]


def test_a_vote_on_several_diagnoses_is_counted_to_none(fake, bot, read):
    fake.add_run(A, [("unit", "failure", LOG), ("gpu", "failure", LOG)])
    bot.handle(PullEvent(7))
    fake.add_reaction(the_report(fake), "-1", "wendy")
    bot.listen()
    assert [(item.right, item.category, item.rule) for item in read()] == [(False, None, None)]


def test_strangers_bots_and_other_reactions_do_not_count(fake, bot, read):
    fake.add_run(A, [("unit", "failure", LOG)])
    bot.handle(PullEvent(7))
    c = the_report(fake)
    for content, user in [("-1", "bob"), ("+1", LOGIN), ("+1", "other[bot]"), ("heart", "wendy")]:
        fake.add_reaction(c, content, user)
    bot.listen()
    assert read() == []


def test_reports_without_votes_cost_no_request_for_reactions(fake, bot):
    fake.add_run(A, [("unit", "failure", LOG)])
    bot.handle(PullEvent(7))
    fake.journal.clear()
    bot.listen()
    assert not [p for _, p, _ in fake.journal if "reactions" in p or "contents/feedback" in p]


def test_votes_on_closed_pull_requests_are_heard(fake, bot, read):
    fake.add_run(A, [("unit", "failure", LOG)])
    bot.handle(PullEvent(7))
    fake.add_reaction(the_report(fake), "+1", "wendy")
    fake.pulls[7]["state"] = "closed"
    bot.listen()
    assert len(read()) == 1


def wrong(fake, bot, body, user="wendy"):
    c = fake.add_comment(7, body, user)
    bot.handle(CommandEvent(7, c, user, body))
    return c


def test_a_correction_is_kept_with_what_was_said_and_the_line_that_it_names(fake, bot, read):
    log = "2026-12-01T09:00:00.0000000Z ok\n2026-12-01T09:00:01.0000000Z \x1b[31mOSError: [Errno 28] No space left on device\x1b[0m\nAssertionError: 1\n"
    rid = fake.add_run(A, [("unit", "failure", log)])
    c = wrong(fake, bot, "/wrong unit category=disk_full line=2")
    bot.handle(CommandEvent(7, c, "wendy", "/wrong unit category=disk_full line=2"))
    (item,) = read()
    assert (item.id, item.author, item.right, item.job) == (f"comment-{c}-1", "wendy", False, "unit")
    assert (item.category, item.rule, item.corrected_category) == ("test_assertion", "r", "disk_full")
    assert (item.corrected_line, item.text) == (2, "OSError: [Errno 28] No space left on device")
    assert item.run_id == f"github-{rid}.1"  # as the history names this attempt


def test_a_refused_correction_is_not_kept(fake, bot, read):
    fake.add_run(A, [("unit", "failure", LOG)])
    wrong(fake, bot, "/wrong unit category=disk_full", "bob")
    wrong(fake, bot, "/wrong unit category=no_such_category")
    assert read() == []


def test_a_secret_in_a_named_line_is_not_kept(fake, bot, read):
    secret = "ghp_" + "a1B2" * 9
    fake.add_run(A, [("unit", "failure", f"token {secret}\nAssertionError: 1\n")])
    wrong(fake, bot, "/wrong unit category=disk_full line=1")
    assert secret not in str(read())
    assert "***" in read()[0].text


def test_a_branch_begins_without_the_codes_history_and_then_grows(fake, connect):
    keeper = BranchKeeper(connect())
    one, two = (Feedback(f"comment-{n}-1", float(n), "ann", "u", right=True) for n in (1, 2))
    assert keeper.add([one]) == 1
    assert [p.rpartition("/")[2] for _, p in fake.writes()] == ["trees", "commits", "refs"]
    assert '"parents": []' in next(b for m, p, b in fake.journal if m == "POST" and p.endswith("/git/commits"))
    assert keeper.add([one, two]) == 1
    assert keeper.add([one, two]) == 0
    assert [i.id for i in read_lines(fake.contents["matrix-feedback", "feedback.jsonl"])] == [one.id, two.id]


class Overtaken(BranchKeeper):
    """Writes a moment too late, once: somebody else was faster."""

    def _read(self):
        seen = super()._read()
        BranchKeeper(self.github).add([Feedback("reaction-2", 2.0, "bob", "u", right=False)])
        return seen


@pytest.mark.parametrize("there", [True, False], ids=["a branch", "no branch yet"])
def test_two_writers_of_the_branch_lose_nothing(fake, connect, there):
    if there:
        fake.contents["matrix-feedback", "feedback.jsonl"] = ""
    assert Overtaken(connect()).add([Feedback("reaction-1", 1.0, "ann", "u", right=True)]) == 1
    kept = read_lines(fake.contents["matrix-feedback", "feedback.jsonl"])
    assert {i.id for i in kept} == {"reaction-1", "reaction-2"}


def test_a_large_branch_is_read_as_a_blob(fake, connect):
    fake.inline_max = 10
    keeper = BranchKeeper(connect())
    items = [Feedback(f"reaction-{n}", float(n), "ann", "u", right=True) for n in range(3)]
    for item in items:
        assert keeper.add([item]) == 1
    assert keeper.known([i.id for i in items]) == {i.id for i in items}


def test_a_token_that_may_not_write_contents_still_reports_and_answers(fake, connect, caplog):
    fake.add_pull(7, A, files=["src/a.py"], author="ann")
    fake.perm = {"wendy": "write"}
    bot = Bot(connect(), LOGIN, diagnose, day=lambda: "2026-12-01", keeper=BranchKeeper(connect()))
    fake.add_run(A, [("unit", "failure", LOG)])
    fake.faults.append(Fault(403, {"message": "Resource not accessible by integration"}, {}, "POST .*/git/trees"))
    wrong(fake, bot, "/wrong unit category=disk_full")
    assert "✅" in fake.comments_of(7, LOGIN)[-1]
    assert "contents: write" in caplog.text


def test_the_state_says_the_one_diagnosis_in_the_characters_of_the_contract(fake, bot):
    fake.add_run(A, [("unit", "failure", LOG)])
    bot.handle(PullEvent(7))
    line = report(fake).strip().splitlines()[-1]
    assert re.fullmatch(r"<!-- [0-9a-z=,;:.-]+ -->", line)
    assert parse_state(report(fake)).said == "test-assertion:r:cannot-tell:0.90"
