"""Coefficients of Newton-Schulz iterations: numbers alone, so that reading a configuration needs no Paddle."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle, islice, repeat

from dsv4.errors import UsageError

Triple = tuple[float, float, float]

# Sets of (a, b, c) in X <- aX + (bA + cA^2)X with A = XX^T.
# Figures: Emerging-Optimizers 0.3.0 `muon_utils.py`; "deepseekv4" is Algorithm 1 of the DeepSeek-V4 report.
COEFFICIENTS: dict[str, tuple[Triple, ...]] = {
    "simple": ((3.4445, -4.7750, 2.0315),),
    "quintic": (
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ),
    "polar_express": (
        (8.2051, -22.9019, 16.4607),
        (4.0664, -2.8612, 0.5184),
        (3.9096, -2.8234, 0.5250),
        (3.2856, -2.4153, 0.4853),
        (2.2779, -1.6198, 0.3985),
        (1.8726, -1.2307, 0.3585),
        (1.8564, -1.2132, 0.3568),
        (1.8750, -1.2500, 0.3750),
    ),
    "aol": (
        (4.0098, -7.0585, 2.4635),
        (3.4585, -5.5479, 2.5959),
        (2.7573, -3.2939, 1.4254),
        (2.7215, -3.0494, 1.3169),
    ),
    "deepseekv4": ((3.4445, -4.7750, 2.0315),) * 8 + ((2.0, -1.5, 0.5),) * 2,
}
# A fixed-point set keeps its last step when more are asked for; the others begin again.
_REPEAT_LAST = frozenset({"polar_express", "deepseekv4"})


def coefficients(name: str | Sequence[Sequence[float]], steps: int) -> tuple[Triple, ...]:
    """Return the `steps` triples of a named set, or of a set given as numbers.

    Raises UsageError on an unknown name, a row that is no triple, or fewer than one step.
    """
    if steps < 1:
        raise UsageError(f"muon_steps is {steps}", "write a number of at least 1; the reference uses 10")
    if isinstance(name, str):
        if name not in COEFFICIENTS:
            known = ", ".join(COEFFICIENTS)
            raise UsageError(f"muon_coefficients: no set {name!r}", f"write one of {known}, or a list of triples")
        rows, repeat_last = COEFFICIENTS[name], name in _REPEAT_LAST
    else:
        if not name or any(len(row) != 3 for row in name):
            raise UsageError(
                "muon_coefficients: every row needs three numbers", "write [[3.4445, -4.775, 2.0315], ...]"
            )
        rows, repeat_last = tuple((float(a), float(b), float(c)) for a, b, c in name), True
    if repeat_last:
        return (*rows, *repeat(rows[-1], max(0, steps - len(rows))))[:steps]
    return tuple(islice(cycle(rows), steps))
