import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.report.text import count, duration, one_line, plain, size

anything = st.text(st.characters(exclude_categories=[]))


@given(anything)
def test_plain_text_holds_no_control_character_and_is_stable(text):
    safe = plain(text)
    assert all(c in "\t\n" or (c >= " " and not "\x7f" <= c <= "\x9f") for c in safe)
    safe.encode()
    assert plain(safe) == safe


@given(st.text(st.characters(categories=["L", "N", "P", "Zs"])))
def test_ordinary_text_is_kept(text):
    assert plain(text) == text


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\rb", "a⏎b"),
        ("a\r\nb", "a\nb"),
        ("\u202egnp.exe", "\ufffdgnp.exe"),
        ("\ud800", "\ufffd"),
    ],
)
def test_what_moves_the_cursor_or_the_order_is_gone(text, safe):
    assert plain(text) == safe


@given(anything, st.integers(1, 50))
def test_one_line_is_one_line_within_its_limit(text, limit):
    line = one_line(text, limit)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1


def test_words_for_people():
    assert [duration(s) for s in (0.04, 9.96, 59.6, 61, 3600, 90_000)] == [
        "0.0s",
        "10.0s",
        "1m00s",
        "1m01s",
        "1h00m",
        "25h00m",
    ]
    assert [size(n) for n in (0, 1023, 1 << 20, 5 << 40)] == ["0 B", "1023 B", "1.0 MiB", "5.0 TiB"]
    assert count(1, "job") + count(0, "job") == "1 job0 jobs"
