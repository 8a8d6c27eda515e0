import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.spec.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("5m", 300), ("1h30m", 5400), ("1.5h", 5400), ("250ms", 0.25), ("2d", 172800), (" 1m5s ", 65)],
)
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "m", "5 m", "-5m", "5m1h", "5m5m", "0s", "1e3s", "5M", "5mm", "١m", "9" * 400 + "d"]
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="bad duration"):
        parse_duration(text)


@given(st.integers(min_value=1, max_value=10**12))
def test_a_duration_survives_writing_and_reading(milliseconds):
    text = format_duration(milliseconds / 1000)
    assert round(parse_duration(text) * 1000) == milliseconds
    assert format_duration(parse_duration(text)) == text


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4096", 4096),
        ("1K", 1024),
        ("32G", 32 << 30),
        ("32GiB", 32 << 30),
        ("500MB", 500_000_000),
        ("1.5k", 1536),
        ("7B", 7),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "0", "1X", "1GGB", "1,5G", "9" * 400 + "T"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="bad size"):
        parse_size(text)


@given(st.integers(min_value=1, max_value=10**18))
def test_a_size_survives_writing_and_reading(size):
    assert parse_size(format_size(size)) == size


@given(st.text(max_size=20))
def test_any_text_is_read_or_refused(text):
    for parse in (parse_duration, parse_size):
        try:
            value = parse(text)
        except ValueError:
            continue
        assert value > 0
