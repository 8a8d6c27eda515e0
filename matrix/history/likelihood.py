"""How often a verdict reached on a given path of evidence is right.

The figures are shares measured on simulated histories (`benchmarks/verdicts.py` prints them), with one success and one
failure added to each so that no path claims certainty. They order verdicts; they are no promise about a repository
whose failures are unlike the simulated ones. Feedback (`bot score`) tells how well they hold there.
"""

from __future__ import annotations

SHARES: dict[tuple[str, str], float] = {
    ("base", "base, once and here again"): 0.984,  # 62 of 62
    ("base", "base, repeatedly"): 0.925,  # 1263 of 1364
    ("flaky", "base, intermittent"): 0.998,  # 423 of 423
    ("flaky", "same-commit"): 0.982,  # 2020 of 2057
    ("flaky", "spread, once"): 0.897,  # 34 of 37
    ("flaky", "spread, several"): 0.996,  # 5581 of 5600
    ("infra", "base, burst"): 0.968,  # 29 of 29
    ("infra", "burst"): 0.998,  # 4091 of 4098
    ("infra", "same run, several jobs"): 0.999,  # 1185 of 1185
    ("infra", "same-commit, burst"): 0.998,  # 933 of 934
    ("this-change", "linked"): 0.999,  # 1590 of 1590
    ("this-change", "linked, again"): 0.999,  # 738 of 738
    ("this-change", "repeated"): 0.994,  # 161 of 161
}


def likelihood(value: str, path: str) -> float | None:
    """Share of verdicts of this value on this path that were right, or None where it was never measured."""
    return SHARES.get((value, path))
