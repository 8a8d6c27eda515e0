import html
import re
from dataclasses import replace

import pytest
from boards import BASE, HEAD, board, finding, hostile_board, hostile_boards, row
from hypothesis import given, settings
from rendering import problems, second_opinion, to_html

from bot.board import Evidence, KnownFact, Past, RunRef, Waiting
from bot.comment import LADDER, compose, render
from bot.escape import LIMIT, Markdown
from bot.state import MARKER, parse_state
from matrix.records import Status


def seen(markdown):
    """The text that a reader sees, tags and word joiners taken out."""
    return html.unescape(re.sub(r"<[^>]+>", " ", to_html(markdown))).replace("\u2060", "")


def test_first_line_is_the_marker_and_last_hidden_line_the_state():
    lines = compose(board(row())).splitlines()
    assert lines[0] == MARKER
    assert re.fullmatch(r"<!-- [0-9a-z=,;:.-]+ -->", lines[-1])
    assert parse_state("\n".join(lines)).head == HEAD


def test_verdict_line_comes_first_with_counts_and_commits_follow():
    lines = compose(board(row("a"), row("b", Status.TIMEOUT))).splitlines()
    assert lines[1] == "### ❌ 2 of 5 jobs failed, 3 passed"
    assert HEAD[:10] in lines[3]
    assert BASE[:10] in lines[3]


@pytest.mark.parametrize(
    ("b", "line"),
    [
        (board(passed=4), "✅ All 4 jobs passed"),
        (board(passed=0), "⚠️ Nothing ran, which counts as a failure"),
        (board(row(status=Status.CANCELLED)), "⚪ 1 cancelled, 3 passed"),
        (board(row(allowed=True)), "✅ 3 of 4 jobs passed; 1 failed that may"),
        (board(row(), counts={Status.RUNNING: 2}), "❌ 1 of 6 jobs failed, 3 passed; 2 running"),
        (board(counts={Status.RUNNING: 1, Status.PENDING: 2}), "⏳ 3 passed; 1 running; 2 waiting"),
        (board(row(folded=(row("b", Status.BLOCKED),))), "❌ 1 of 5 jobs failed, 1 blocked by it, 3 passed"),
    ],
)
def test_verdict_line_says_what_is_so(b, line):
    assert compose(b).splitlines()[1] == f"### {line}"


def test_a_row_names_job_suite_category_verdict_fix_evidence_link_and_rerun():
    found = finding(
        "numba_lowering_error", "NotImplementedError: No definition", fix={"en": "Write a loop.", "zh": "改用循环。"}
    )
    found = replace(
        found, evidence=replace(found.evidence, url="https://github.com/o/r/actions/runs/1/job/2#step:4:12")
    )
    text = compose(board(row("unit (3.11)", findings=(found,), verdict="this-change")), ("en", "zh"))
    words = seen(text)
    for part in (
        "unit (3.11)", "Unit tests", "numba_lowering_error", "from this change", "由本次改动引起",
        "Write a loop.", "改用循环。",
        "NotImplementedError: No definition", '/rerun "unit (3.11)"', "logs/x/1.log:12",
    ):  # fmt: skip
        assert part in words
    assert 'href="https://github.com/o/r/actions/runs/1/job/2#step:4:12"' in to_html(text)


def test_a_chain_is_one_row_with_its_root():
    text = compose(board(row("sft", folded=(row("lora", Status.BLOCKED, reason="no checkpoint"),))))
    table = [line for line in text.splitlines() if line.startswith("| ") and "Job" not in line]
    assert len(table) == 1
    assert "⛔ blocks <code>lora</code>" in table[0]
    assert "/rerun sft lora" in table[0]


def test_both_languages_state_the_same_facts():
    b = board(row("a", facts=(KnownFact("training_finished", "true", "logs/a/1.log:9"),)), row("b", verdict="base"))
    en, zh = (seen(compose(b, (language,))) for language in ("en", "zh"))
    for fact in ("a", "training_finished = true", "logs/a/1.log:9", "/rerun b", "test_assertion", HEAD[:10]):
        assert fact in en
        assert fact in zh
    assert "失败" in zh
    assert "failed" not in zh.replace("Failing", "")


def test_what_is_not_this_changes_fault_is_folded():
    text = compose(board(row("mine"), row("theirs", verdict="base"), row("may", allowed=True)))
    before, _, folded = text.partition("<details>")
    assert "mine" in before
    assert "theirs" not in before
    assert "theirs" in folded
    assert "Allowed to fail (1)" in folded


def test_log_that_is_not_there_is_said():
    assert "not available yet" in compose(board(row(findings=(), log="later")))
    assert "log is gone" in compose(board(row(findings=(), log="gone")))


def test_waiting_jobs_show_place_and_reason():
    waiting = (Waiting("big", "GPU", running=False, place=2, reason="4 cards wanted, 1 free"),)
    assert "(place 2: 4 cards wanted, 1 free)" in seen(compose(board(waiting=waiting, counts={Status.PENDING: 1})))


def test_history_is_folded():
    text = compose(board(history=(Past("101", 1, ("unit",), 2),)))
    assert "Earlier attempts" in text.split("<details>")[-1]
    assert "attempt 1: 1 failed" in seen(text)


def test_without_a_bot_the_command_line_is_shown():
    text = compose(board(row(), commands=False, runs=(RunRef("20260608-090000-7f3a"),)))
    assert "<code>matrix rerun 20260608-090000-7f3a unit</code>" in text.replace("&#95;", "_")
    assert "/rerun" not in text


@pytest.mark.parametrize("ident", ["20261201-135955-4a61", "17263748512"])
def test_an_id_is_copied_from_the_comment_as_it_is(ident):
    text = compose(board(row(), runs=(RunRef(ident, label=ident),), commands=False))
    assert f"`{ident}`" in text
    assert f" rerun {ident} " in text


@pytest.mark.parametrize("ident", ["www.example.com", "GH-12", "a@b.c", "20261201-135955-4a61.example.com"])
def test_what_only_claims_to_be_an_id_is_no_link(ident):
    text = compose(board(row(), runs=(RunRef(ident, label=ident),), commands=False))
    assert f" rerun {ident}" not in text
    assert problems(text) == []


def test_failing_tests_are_listed_once_each():
    text = compose(board(row("a", failing_tests=("t::x", "t::y")), row("b", failing_tests=("t::x",))))
    block = text.split("Failing tests")[1].split("</details>")[0]
    assert [line for line in block.splitlines() if "::" in line] == ["a: t::x", "a: t::y", "b: t::x"]


def test_a_template_that_forgets_to_escape_is_stopped():
    from bot.comment import _environment

    with pytest.raises(TypeError, match="unescaped"):
        _environment().from_string("{{ x }}").render(x="@octocat")
    assert _environment().from_string("{% macro m() %}a{{ x }}{% endmacro %}{{ m() }}").render(x=Markdown("b")) == "ab"


@given(hostile_boards)
@settings(max_examples=20, deadline=None)
def test_hostile_boards_stay_inert_bounded_and_whole(b):
    text = compose(b, ("en", "zh"))
    assert len(text.encode()) <= LIMIT
    assert not problems(text, ("https://github.com/o/r/x",))
    page = to_html(text)
    assert page.count("<details>") + page.count("<details open") == page.count("</details>")
    assert text.splitlines()[0] == MARKER
    assert text.count(MARKER) == 1 or "```" in text
    assert parse_state(text) is not None


def test_second_parser_sees_only_links_of_ours_and_one_heading(node):
    texts = [compose(hostile_board(seed, 3), ("en", "zh")) for seed in range(8)]
    for live in second_opinion(texts):
        assert [x for x in live if not x.startswith("link https://github.com/o/r/x")] == ["heading "]


@pytest.mark.parametrize("limits", LADDER)
def test_every_step_of_the_ladder_keeps_the_structure(limits):
    b = board(
        *(row(f"j{i}", failing_tests=tuple(f"t::{k}" for k in range(100))) for i in range(60)),
        history=(Past("1", 1, ("j1",), 2),),
    )
    text = render(b, ("en", "zh"), limits)
    assert "60 of 63 jobs failed" in text
    assert "Failing tests" in text
    assert "Earlier attempts" in text
    assert text.count("<details") == text.count("</details>")


def test_a_huge_run_is_cut_by_detail_and_each_step_is_smaller():
    rows = [
        row(f"job-{i}", findings=(finding(text="修" * 4000, excerpt="修复\n" * 2000),), failing_tests=("t" * 300,) * 9)
        for i in range(120)
    ]
    sizes = [len(render(board(*rows), ("en", "zh"), limits).encode()) for limits in LADDER]
    assert sizes == sorted(sizes, reverse=True)
    text = compose(board(*rows), ("en", "zh"))
    assert len(text.encode()) <= LIMIT
    assert "job-0<" in text
    assert "120 of 123" in text


def test_evidence_without_text_is_no_empty_code():
    assert "<code></code>" not in compose(board(row(findings=(replace(finding(), evidence=Evidence("", "x.log")),))))
