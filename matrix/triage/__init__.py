"""From a log to its causes: read, frames, scan, rank, signature."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matrix.triage.diagnosis import diagnose

__all__ = ["diagnose"]


def __getattr__(name: str) -> Any:
    """Load the diagnosis when it is asked for: whoever only needs `matrix.triage.model` starts sooner."""
    if name == "diagnose":
        from matrix.triage import diagnosis  # noqa: PLC0415

        return diagnosis.diagnose
    raise AttributeError(name)
