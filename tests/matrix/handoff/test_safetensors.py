"""The header reader against the format's own library as the referee."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from matrix.handoff.safetensors import MAX_HEADER, UnsoundError, tensors

RAW = save(
    {
        "model.embed.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
        "model.bias": np.zeros(5, dtype=np.float16),
        "model.empty": np.zeros((0, 2), dtype=np.int64),
        "层.权重": np.ones((2, 2, 2), dtype=np.int8),
    },
    metadata={"format": "pt"},
)
HEADER_END = 8 + int.from_bytes(RAW[:8], "little")


def built(header: object, data: bytes = b"") -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + data


def sound(path, raw: bytes) -> bool:
    path.write_bytes(raw)
    try:
        tensors(path, len(raw))
    except UnsoundError:
        return False
    return True


def loads(path, raw: bytes) -> bool:
    path.write_bytes(raw)
    try:
        with safe_open(path, framework="numpy") as f:
            f.keys()
    except SafetensorError:
        return False
    return True


def test_a_whole_file_gives_the_sizes_of_its_tensors(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(RAW)
    assert tensors(path, len(RAW)) == {"model.embed.weight": 48, "model.bias": 10, "model.empty": 0, "层.权重": 8}


def test_every_truncation_is_found(tmp_path):
    path = tmp_path / "a.safetensors"
    assert [n for n in range(len(RAW)) if sound(path, RAW[:n])] == []


def test_bytes_appended_are_found(tmp_path):
    assert not sound(tmp_path / "a.safetensors", RAW + b"\0")


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80, 0xFF])
def test_every_flipped_byte_of_the_header_is_found_or_harmless(tmp_path, mask):
    path = tmp_path / "a.safetensors"
    for at in range(HEADER_END):
        raw = bytearray(RAW)
        raw[at] ^= mask
        if not loads(path, bytes(raw)):
            assert not sound(path, bytes(raw)), f"byte {at}: {bytes(raw[:HEADER_END])!r}"


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, HEADER_END - 1), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(0, len(RAW)),
)
def test_what_the_library_refuses_is_found(tmp_path, edits, keep):
    raw = bytearray(RAW)
    for at, value in edits:
        raw[at] = value
    for candidate in (bytes(raw), bytes(raw[:keep])):
        if not loads(tmp_path / "a.safetensors", candidate):
            assert not sound(tmp_path / "a.safetensors", candidate)


HOSTILE = {
    "a header length of 2**64-1": b"\xff" * 8 + b"{}",
    "a header length over the limit": (MAX_HEADER + 1).to_bytes(8, "little") + b"{}",
    "a list": built([1]),
    "nested lists": built(b'{"a":' + b"[" * 50_000),
    "a huge integer": built(b'{"a":{"dtype":"F32","shape":[' + b"9" * 5000 + b'],"data_offsets":[0,4]}}', b"1234"),
    "a huge product": built({"a": {"dtype": "F32", "shape": [2**63] * 20_000, "data_offsets": [0, 4]}}, b"1234"),
    "a true for a number": built({"a": {"dtype": "U8", "shape": [True], "data_offsets": [0, 1]}}, b"1"),
    "a float offset": built({"a": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1.0]}}, b"1"),
    "a negative dimension": built({"a": {"dtype": "U8", "shape": [-1, -1], "data_offsets": [0, 1]}}, b"1"),
    "an unknown dtype": built({"a": {"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}}, b"1234"),
    "a hole": built({"a": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]}}, b"12"),
    "an overlap": built(
        {
            "a": {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]},
            "b": {"dtype": "U8", "shape": [1], "data_offsets": [1, 2]},
        },
        b"12",
    ),
    "a key twice": built(b'{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]},"a":1}', b"1"),
    "half a character": built(b'{"__metadata__":{"a":"\\ud800"}}'),
    "NaN": built(b'{"__metadata__":{"a":NaN}}'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_headers_are_refused(tmp_path, name):
    assert not sound(tmp_path / "a.safetensors", HOSTILE[name])
