"""Reads the header of a safetensors file and checks that the file is whole, without reading a tensor.

Format: https://huggingface.co/docs/safetensors (8 bytes of length, a JSON header, then the tensors without holes).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NoReturn

MAX_HEADER = 100_000_000  # bytes, the limit of the format's own reader

_BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
}


class UnsoundError(Exception):
    """A file that cannot be loaded; the message says why."""


def tensors(path: Path, length: int) -> dict[str, int]:
    """Return the name and size in bytes of every tensor of a file that is `length` bytes long.

    Raises:
        UnsoundError: the header, the offsets or the file's size are not those of a whole safetensors file.
        OSError: the file cannot be read.

    """
    with path.open("rb") as f:
        start = f.read(8)
        if len(start) < 8:
            raise UnsoundError(f"cut off: {length} bytes, a safetensors header has at least 8")
        header_size = int.from_bytes(start, "little")
        if header_size > MAX_HEADER:
            raise UnsoundError(f"not a safetensors file: its first 8 bytes ask for a header of {header_size} bytes")
        if header_size > length - 8:
            raise UnsoundError(f"cut off in the header: {length} bytes, the header alone needs {header_size + 8}")
        raw = f.read(header_size)
    if len(raw) < header_size:
        raise UnsoundError("became shorter while it was read")
    return _layout(_parse(raw), length - 8 - header_size)


def _parse(raw: bytes) -> dict[str, object]:
    if not raw.startswith(b"{"):
        raise UnsoundError("the header is not a JSON object")
    try:
        header = json.loads(raw.decode("utf-8"), object_pairs_hook=_once, parse_constant=_no_constant)
    except UnicodeDecodeError as e:
        raise UnsoundError(f"the header is not UTF-8 (byte {e.start})") from None
    except RecursionError:
        raise UnsoundError("the header is nested too deeply") from None
    except ValueError as e:
        raise UnsoundError(f"the header is not JSON: {e}") from None
    assert isinstance(header, dict)
    return header


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:80]!r} stands there twice")
        if not _is_text(key):
            raise ValueError("a key that is not text")
        found[key] = value
    return found


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


def _is_text(value: object) -> bool:
    """Tell whether a value is a string that UTF-8 can hold (JSON escapes may smuggle in half a character)."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _layout(header: dict[str, object], data: int) -> dict[str, int]:
    metadata = header.pop("__metadata__", None)
    if metadata is not None and not (isinstance(metadata, dict) and all(_is_text(v) for v in metadata.values())):
        raise UnsoundError("__metadata__ is not a map of strings")
    spans = sorted((*_span(name, info, data), name) for name, info in header.items())
    at = 0
    for begin, end, name in spans:
        if begin != at:
            raise UnsoundError(f"tensor {name[:200]!r} begins at {begin} where {at} is the next free byte")
        at = end
    if at > data:
        raise UnsoundError(f"cut off: the header describes {at} bytes of tensors, the file holds {data}")
    if at < data:
        raise UnsoundError(f"{data - at} bytes stand behind the last tensor")
    return {name: end - begin for begin, end, name in spans}


def _span(name: str, info: object, data: int) -> tuple[int, int]:
    what = f"tensor {name[:200]!r}"
    if not isinstance(info, dict):
        raise UnsoundError(f"{what} has no description")
    dtype, shape, offsets = info.get("dtype"), info.get("shape"), info.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise UnsoundError(f"{what} has the unknown dtype {str(dtype)[:40]!r}")
    if not (isinstance(shape, list) and all(type(n) is int and 0 <= n < 2**64 for n in shape)):
        raise UnsoundError(f"{what} has no valid shape")
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(type(n) is int and n >= 0 for n in offsets)):
        raise UnsoundError(f"{what} has no valid data_offsets")
    begin, end = offsets
    if begin > end:
        raise UnsoundError(f"{what} ends at {end}, before it begins at {begin}")
    if end > data:
        raise UnsoundError(f"cut off: {what} ends at byte {end} of the data, the file holds {data}")
    bits = _bits(shape, _BITS[dtype], limit=8 * data)
    if bits != 8 * (end - begin):
        raise UnsoundError(
            f"{what}: shape {str(shape)[:80]} of {dtype} does not fill the {end - begin} bytes it is given"
        )
    return begin, end


def _bits(shape: list[int], bits: int, limit: int) -> int:
    """Size of a tensor in bits; stops multiplying once it is larger than the file, however long the shape is."""
    if 0 in shape:
        return 0
    for n in shape:
        bits *= n
        if bits > limit:
            break
    return bits
