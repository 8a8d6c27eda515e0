"""Windows of logs, and distances of float32 values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.page.logs import WINDOW, count_lines, window
from matrix.page.losses import ulp_distance


@pytest.mark.parametrize("total", [0, 1, 399, 400, 401, 5000])
def test_a_window_holds_the_lines_around_the_wanted_one(tmp_path, total):
    path = tmp_path / "log"
    path.write_text("".join(f"{n}\n" for n in range(1, total + 1)))
    assert count_lines(path) == total
    for wanted in {1, total // 2 + 1, total, total + 99}:
        found = window(path, wanted)
        assert [int(line) for line in found.lines] == list(range(found.first, found.first + min(WINDOW, total)))
        assert not total or found.first <= min(max(wanted, 1), total) <= found.last


def test_long_lines_and_odd_bytes_do_no_harm(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"a" * 3_000_000 + b"\n\xff\x1b[31mred\x1b[0m\r\nlast")
    found = window(path, 1)
    assert found.total == 3
    assert found.lines == ("a" * 4000 + " … and 2.9 MiB more in this line", "\ufffdred", "last")


floats = st.floats(width=32, allow_nan=False)


@given(floats, st.integers(0, 50))
def test_the_distance_counts_the_values_between(value, steps):
    other = np.float32(value)
    with np.errstate(over="ignore"):
        for _ in range(steps):
            other = np.nextafter(other, np.float32(math.inf), dtype=np.float32)
    wanted = steps if math.isfinite(float(other)) else ulp_distance(value, float(other))
    assert ulp_distance(value, float(other)) == ulp_distance(float(other), value) == wanted


def test_nan_is_like_nan_alone():
    assert ulp_distance(math.nan, math.nan) == 0
    assert ulp_distance(math.nan, 1.0) > 1 << 30
    assert ulp_distance(1e300, math.inf) == 0
