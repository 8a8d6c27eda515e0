"""Times as records write them."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """Return the time in UTC, to the second."""
    return _text(datetime.now(UTC))


def stamp(seconds: float) -> str:
    """Return a time in seconds since the epoch likewise."""
    return _text(datetime.fromtimestamp(seconds, UTC))


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
