"""Durations (`90s`, `5m`, `1h30m`) and sizes (`32G`, `500MB`): text to seconds and bytes, and back."""

from __future__ import annotations

import math
import re
from fractions import Fraction

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[smhd]))+", re.ASCII)
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|[smhd])", re.ASCII)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?b)?", re.IGNORECASE | re.ASCII)
_POWERS = "kmgtp"
_LONGEST = 100 * 365.25 * 86400  # seconds
_LARGEST = 1 << 60  # bytes

DURATION_ADVICE = "write a number with its unit, such as 90s, 5m or 1h30m"
SIZE_ADVICE = "write a number with its unit, such as 512M, 32G or 500GB"


def parse_duration(text: str) -> float:
    """Seconds of `90s`, `5m`, `1h30m`, `1.5h`, `250ms`; units go from large to small, each once.

    Raises:
        ValueError: not a duration, or one of nothing.

    """
    clean = text.strip()
    if not _DURATION.fullmatch(clean):
        raise ValueError(f"bad duration {text!r}: {DURATION_ADVICE}")
    parts = _DURATION_PART.findall(clean)
    sizes = [_SECONDS[unit] for _, unit in parts]
    if sizes != sorted(set(sizes), reverse=True):
        raise ValueError(f"bad duration {text!r}: units go from large to small, each once, such as 1h30m")
    seconds = math.fsum(float(number) * _SECONDS[unit] for number, unit in parts)
    if seconds > _LONGEST:
        raise ValueError(f"bad duration {text!r}: longer than a hundred years; {DURATION_ADVICE}")
    if seconds <= 0:
        raise ValueError(f"bad duration {text!r}: must be longer than nothing; {DURATION_ADVICE}")
    return seconds


def format_duration(seconds: float) -> str:
    """Write seconds so that `parse_duration` reads the same back, to the millisecond."""
    rest = max(1, round(seconds * 1000))
    out = ""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        number, rest = divmod(rest, size)
        if number:
            out += f"{number}{unit}"
    return out


def parse_size(text: str) -> int:
    """Bytes of `4096`, `512M`, `32G`, `32GiB` (powers of 1024) or `500MB` (powers of 1000).

    Raises:
        ValueError: not a size, or one of nothing.

    """
    found = _SIZE.fullmatch(text.strip())
    if not found:
        raise ValueError(f"bad size {text!r}: {SIZE_ADVICE}")
    number, prefix, suffix = found.groups()
    base = 1000 if suffix and suffix.lower() == "b" else 1024
    power = _POWERS.index(prefix.lower()) + 1 if prefix else 0
    size = round(Fraction(number) * Fraction(base) ** power)
    if size > _LARGEST:
        raise ValueError(f"bad size {text!r}: larger than an exbibyte; {SIZE_ADVICE}")
    if size <= 0:
        raise ValueError(f"bad size {text!r}: must be more than nothing; {SIZE_ADVICE}")
    return size


def format_size(size: int) -> str:
    """Write bytes so that `parse_size` reads the same back: the largest binary unit that divides them."""
    power = 0
    while power < len(_POWERS) and size and size % 1024 == 0:
        size //= 1024
        power += 1
    return f"{size}{_POWERS[power - 1].upper()}" if power else str(size)
