from dataclasses import replace

import pytest
from boards import board, hostile_boards, row
from hypothesis import given

from bot.board import RunRef
from bot.state import MARKER, State, is_report, parse_state, state_of


@given(hostile_boards)
def test_state_survives_the_comment_whatever_the_names(b):
    state = state_of(b)
    assert parse_state(f"{MARKER}\ntext\n{state.encode()}\n") == state


@pytest.mark.parametrize(
    "body",
    [
        "",
        MARKER,
        f"> {MARKER}\n<!-- v=1;head=a;colour=red;runs=;jobs= -->",
        f"{MARKER}\n<!-- v=2;head=a;colour=red;runs=;jobs= -->",
        f"{MARKER}\n<!-- v=1;head=a;colour=red;runs=1:x:1;jobs= -->",
        f"{MARKER}\n<!-- v=1;head=a;colour=red;runs=;jobs= -->\nmore",
        f"{MARKER}\n<!-- v=1;HEAD -->",
    ],
)
def test_what_we_did_not_write_is_no_state(body):
    assert parse_state(body) is None


def test_marker_counts_only_as_the_first_line():
    assert is_report(f"{MARKER}\r\nx")
    assert not is_report(f"see {MARKER}")
    assert not is_report(f"\n{MARKER}")


def test_a_view_that_saw_more_of_a_run_is_ahead():
    older = state_of(board(row(), runs=(RunRef("1", 1, 3),)))
    for newer in (RunRef("1", 1, 4), RunRef("1", 2, 0)):
        ahead = state_of(board(row(), runs=(newer,)))
        assert ahead.is_ahead_of(older)
        assert not older.is_ahead_of(ahead)
    both = State(older.head, "red", {"1": (1, 3), "2": (1, 1)})
    assert both.is_ahead_of(older)
    assert not replace(both, head="b" * 40).is_ahead_of(older)
