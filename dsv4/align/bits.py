"""Fingerprints and distances of floating-point values."""

from __future__ import annotations

import hashlib
import struct
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_INTEGERS: dict[int, type[np.signedinteger[Any]]] = {2: np.int16, 4: np.int32, 8: np.int64}


def to_float32(value: float) -> float:
    """Round a float64 to the nearest float32."""
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def f32_hex(value: float) -> str:
    """Big-endian hex of the value as float32, such as 40b11967."""
    return struct.pack(">f", to_float32(value)).hex()


def f64_hex(value: float) -> str:
    """Big-endian hex of the value as float64."""
    return struct.pack(">d", value).hex()


def f32_of_hex(text: str) -> float:
    """Read the value of eight hex digits, big-endian. Raises ValueError when there are not just eight."""
    raw = bytes.fromhex(text)
    if len(raw) != 4:
        raise ValueError(f"{text!r} is not eight hex digits")
    return float(struct.unpack(">f", raw)[0])


def f64_of_hex(text: str) -> float:
    """Read the value of sixteen hex digits, big-endian. Raises ValueError when there are not just sixteen."""
    raw = bytes.fromhex(text)
    if len(raw) != 8:
        raise ValueError(f"{text!r} is not sixteen hex digits")
    return float(struct.unpack(">d", raw)[0])


def loss_md5(value: float) -> str:
    """MD5 of the four little-endian bytes of the value as float32: PaddleFleet's fingerprint of a scalar loss."""
    return hashlib.md5(struct.pack("<f", to_float32(value)), usedforsecurity=False).hexdigest()


def decimal20(value: float) -> str:
    """Write the value with 20 decimals, exactly rounded from its binary expansion."""
    return f"{Decimal(value):.20f}" if np.isfinite(value) else str(value)


def ulp_distance(a: Array, b: Array) -> Array:
    """How many representable values lie between `a` and `b`, element by element, as float64 counts.

    Both arrays have one float dtype. +0 and -0 are 0 apart; NaN against NaN is 0, against anything else infinite.
    Counts above 2^53 are rounded.
    """
    if a.dtype != b.dtype or a.dtype.kind != "f":
        raise ValueError(f"cannot count ulps between {a.dtype} and {b.dtype}")
    ordered_a, ordered_b = _ordered(a), _ordered(b)
    # Neighbours subtract exactly in int64; only values of opposite sign and huge magnitude overflow it.
    near = np.abs(ordered_a // 2 - ordered_b // 2) < 2**61
    with np.errstate(over="ignore"):
        exact = np.abs(ordered_a - ordered_b).astype(np.float64)
    distance = np.where(near, exact, np.abs(ordered_a.astype(np.float64) - ordered_b.astype(np.float64)))
    nan_a, nan_b = np.isnan(a), np.isnan(b)
    distance = np.where(nan_a ^ nan_b, np.inf, distance)
    return np.where(nan_a & nan_b, 0.0, distance)


def _ordered(x: Array) -> Array:
    """Map floats to integers that are ordered alike and adjacent alike."""
    x = np.ascontiguousarray(x)
    i = x.view(_INTEGERS[x.dtype.itemsize]).astype(np.int64)
    lowest = np.int64(-(2 ** (8 * x.dtype.itemsize - 1)))
    return np.where(i < 0, lowest - i, i)
