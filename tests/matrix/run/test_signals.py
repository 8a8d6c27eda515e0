"""Jobs that a signal ended, with nothing in the log."""

import pytest

from matrix.run.signals import by_signal
from matrix.triage.model import Cause


def of(category):
    return Cause(category=category, rule="r", confidence=0.5, line=7, text="step 7", signature="00ff")


@pytest.mark.parametrize(
    ("name", "code", "category"),
    [
        ("SIGSEGV", 139, "segfault"),
        (None, 139, "segfault"),
        ("SIGBUS", 135, "bus_error"),
        ("SIGILL", 132, "illegal_instruction"),
        (None, 134, "process_abort"),
    ],
)
def test_the_signal_says_what_the_log_does_not(name, code, category):
    (found,) = by_signal([of("unknown")], "train", code, name)
    assert (found.category, found.line) == (category, None)
    assert "its log does not say where" in found.text
    assert found.fix["en"]
    assert found.fix["zh"]


def test_what_the_log_says_stands():
    known = [of("cuda_out_of_memory")]
    assert by_signal(known, "train", 139, "SIGSEGV") == known


@pytest.mark.parametrize(("name", "code"), [("SIGKILL", 137), (None, 137)])
def test_who_killed_it_is_not_guessed_but_where_to_look_is_said(name, code):
    (found,) = by_signal([of("unknown")], "train", code, name)
    assert (found.category, found.line) == ("unknown", 7)
    assert "dmesg" in found.fix["en"]


@pytest.mark.parametrize(("name", "code"), [(None, 1), (None, None), ("SIGTERM", 143), (None, 255), (None, 128)])
def test_other_ends_say_nothing_more(name, code):
    assert by_signal([of("unknown")], "train", code, name) == [of("unknown")]
