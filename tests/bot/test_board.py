import itertools

import pytest
from boards import board, row

from bot.board import all_rows, by_importance, fold_cascades
from matrix.records import Status


def folded(rows):
    return {r.job: sorted(x.job for x in r.folded) for r in fold_cascades(rows)}


def test_blocked_jobs_fold_under_their_root_through_a_chain():
    rows = [
        row("lora", Status.BLOCKED, needs=("sft",), blocked_by=("sft",)),
        row("dpo", Status.BLOCKED, needs=("lora",), blocked_by=("lora",)),
        row("sft"),
        row("other"),
    ]
    assert folded(rows) == {"sft": ["dpo", "lora"], "other": []}


def test_a_failure_that_follows_folds_under_the_job_it_needs():
    rows = [row("sft"), row("lora", needs=("sft",), verdict="follows"), row("dpo", needs=("sft",))]
    assert folded(rows) == {"sft": ["lora"], "dpo": []}


def test_a_blocked_job_whose_root_has_no_row_keeps_its_own():
    assert folded([row("lora", Status.BLOCKED, blocked_by=("sft",))]) == {"lora": []}


@pytest.mark.parametrize("order", list(itertools.permutations("abc")))
def test_no_job_is_lost_even_in_a_ring(order):
    follows = {"a": "b", "b": "c", "c": "a"}
    rows = [row(n, Status.BLOCKED, blocked_by=(follows[n],)) for n in order]
    assert sorted(r.job for r in all_rows(fold_cascades(rows))) == ["a", "b", "c"]


def test_what_may_be_the_readers_comes_first():
    rows = [
        row("flaky", verdict="flaky"),
        row("may", allowed=True),
        row("mine", verdict="this-change"),
        row("unclear"),
        row("root", folded=(row("x", Status.BLOCKED),)),
    ]
    assert [r.job for r in by_importance(rows)] == ["mine", "root", "unclear", "flaky", "may"]


@pytest.mark.parametrize(
    ("b", "colour"),
    [
        (board(row()), "red"),
        (board(row(allowed=True)), "green"),
        (board(row(status=Status.CANCELLED)), "grey"),
        (board(counts={Status.RUNNING: 1}), "pending"),
        (board(row(), counts={Status.RUNNING: 1}), "red"),
        (board(passed=0), "none"),
        (board(row(status=Status.BLOCKED)), "red"),
    ],
)
def test_colour(b, colour):
    assert b.colour == colour
