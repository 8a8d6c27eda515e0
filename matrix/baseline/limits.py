"""Compares how long a job took and how much memory it had at its peak with what is allowed."""

from __future__ import annotations

from typing import Literal

from matrix.spec.job import Limit
from matrix.triage.model import Cause
from matrix.triage.witness import witnessed

Quantity = Literal["time", "peak_memory"]
_WORDS: dict[Quantity, str] = {"time": "took", "peak_memory": "had at its peak"}


def compare_limit(quantity: Quantity, measured: float | None, limit: Limit, *, job: str) -> Cause | None:
    """Return the cause if a quantity lies above its baseline by more than the tolerance; less is never a failure.

    `measured` is in seconds or bytes; None (it was not measured) is a failure too, since nothing was compared.
    """
    allowed = limit.value * (1 + limit.tolerance)
    if measured is not None and measured <= allowed:
        return None
    want = f"baseline {show(quantity, limit.value)}, tolerance {limit.tolerance:.0%}"
    if measured is None:
        text = f"{quantity.replace('_', ' ')} of {job} was not measured ({want})"
    else:
        over = f", {measured / limit.value - 1:+.0%}" if limit.value else ""
        text = f"{job} {_WORDS[quantity]} {show(quantity, measured)}: {want}{over}"
    return witnessed(
        "baseline_exceeded",
        text,
        rule=f"{quantity.replace('_', '-')}-baseline",
        about=f"{quantity}\0{job}",
        fix=(
            "Look for what became slower or larger; if it is meant, raise the value in matrix.yaml.",
            "请排查变慢或占用增大的原因；若符合预期，请在 matrix.yaml 中调高该值。",
        ),
    )


def show(quantity: Quantity, value: float) -> str:
    """Write a duration or a size for people.

    >>> show("time", 95), show("peak_memory", 3 << 30)
    ('1m35s', '3.0 GiB')
    """
    if quantity == "peak_memory":
        return f"{value / (1 << 30):.1f} GiB" if value >= 1 << 30 else f"{value / (1 << 20):.1f} MiB"
    return f"{value:.1f}s" if value < 60 else f"{int(value // 60)}m{int(value % 60):02d}s"
