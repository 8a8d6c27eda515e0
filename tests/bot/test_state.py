from dataclasses import replace

import pytest
from boards import board, hostile_boards, row
from hypothesis import given

from bot.board import RunRef
from bot.state import MARKER, is_report, parse_state, state_of


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
        f"{MARKER}\n<!-- v=1;head=a;colour=red;runs=1:1:x:1;jobs= -->",
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
    older = state_of(board(row(), runs=(RunRef("101", 1, 3, key="ci"),)))
    for newer in (RunRef("101", 1, 4, key="ci"), RunRef("101", 2, 0, key="ci"), RunRef("1000", 1, 0, key="ci")):
        ahead = state_of(board(row(), runs=(newer,)))
        assert ahead.is_ahead_of(older)
        assert not older.is_ahead_of(ahead)
    both = state_of(board(row(), runs=(RunRef("101", 1, 3, key="ci"), RunRef("102", 1, 1, key="gpu"))))
    assert both.is_ahead_of(older)
    assert not older.is_ahead_of(both)
    assert not replace(both, head="b" * 40).is_ahead_of(older)
