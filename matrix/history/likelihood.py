"""How often a verdict of such a probability is right.

Probabilities of stories are only as good as the beliefs they rest on. What is said is the share that was right among
verdicts as probable as this one, on the made histories of `benchmarks/worlds.py` (`verdicts.py` prints it), with
one success and one failure added to each so that nothing claims certainty. It is no promise about a repository whose
failures are unlike the made ones; feedback (`bot score`) tells how well it holds there.
"""

from __future__ import annotations

# From which probability on, and the share that was right.
SHARES: dict[str, list[tuple[float, float]]] = {
    "base": [(0.9, 0.956), (0.98, 0.99), (0.995, 0.999)],  # 64 of 66, 95 of 95, 3515 of 3519
    "flaky": [(0.9, 0.983), (0.98, 0.981), (0.995, 0.998)],  # 56 of 56, 52 of 52, 652 of 652
    "infra": [(0.98, 0.769), (0.995, 0.997)],  # 9 of 11, 1142 of 1145
    "this-change": [(0.97, 0.942), (0.995, 0.995)],  # 48 of 50, 609 of 611
}


def likelihood(value: str, probability: float) -> float | None:
    """Share of the verdicts of this value, and about as probable, that were right; None where it was never measured."""
    reached = [share for least, share in SHARES.get(value, ()) if probability >= least]
    return reached[-1] if reached else None
