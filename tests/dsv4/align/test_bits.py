"""Fingerprints and ulp counts."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4.align.bits import decimal20, f32_hex, f32_of_hex, f64_hex, f64_of_hex, loss_md5, to_float32, ulp_distance

floats32 = st.floats(width=32, allow_nan=False)
floats64 = st.floats(allow_nan=False)


@pytest.mark.parametrize(
    ("printed", "md5"),
    [
        ("0.74668949842453002930", "9d82f1177a18c2810367a158003c281c"),
        ("4.16679096221923828125", "d36254d4f44da16479cafc2199f8d41b"),
        ("1.04997014999389648438", "e24faebe91ac491b4be0b8c71060a06a"),
    ],
)
def test_fingerprints_that_paddlefleet_printed(printed, md5):
    assert loss_md5(float(printed)) == md5
    assert decimal20(to_float32(float(printed))) == printed


@given(floats64)
def test_hex_round_trips(value):
    assert f64_of_hex(f64_hex(value)) == value
    assert f32_of_hex(f32_hex(value)) == to_float32(value)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_a_neighbour_is_one_ulp_away(dtype, data):
    x = np.array([data.draw(floats32 if dtype == np.float32 else floats64)], dtype)
    with np.errstate(over="ignore"):
        up = np.nextafter(x, np.array(np.inf, dtype))
    expected = 0 if x[0] == up[0] else 1
    assert ulp_distance(x, up)[0] == expected
    assert ulp_distance(up, x)[0] == expected


@given(floats64, floats64, floats64)
def test_distances_add_up_along_the_line(a, b, c):
    low, mid, high = (np.array([v]) for v in sorted((a, b, c)))
    total = ulp_distance(low, mid)[0] + ulp_distance(mid, high)[0]
    assert math.isclose(ulp_distance(low, high)[0], total, rel_tol=1e-12)


def test_signed_zeros_are_equal_and_nan_is_like_nothing_else():
    assert ulp_distance(np.array([0.0]), np.array([-0.0]))[0] == 0
    assert ulp_distance(np.array([np.nan, np.nan]), np.array([np.nan, 1.0])).tolist() == [0.0, np.inf]
    smallest = np.array([5e-324])
    assert ulp_distance(smallest, -smallest)[0] == 2


def test_two_dtypes_are_not_compared():
    with pytest.raises(ValueError, match="float32 and float64"):
        ulp_distance(np.zeros(1, np.float32), np.zeros(1))
