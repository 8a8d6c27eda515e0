"""Which commit broke it? A search for noisy tests: Bayes over (first bad commit, flake rate, miss rate).

Pure: it is told results and says which commit to run next, and when the odds favour one commit enough. With a job
that never flakes it needs about log2(n) runs and some that confirm, with one that fails by chance it repeats what
matters.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

ODDS = 1000.0
# How often the job fails on a good commit in the same way, and how often it passes on a bad one: grids, with a prior
# weight each. Most jobs do neither, so that a steady job pays little for the doubt; but one pass on a commit never
# suffices to call it good, for a break that shows nine times in ten is no rarity.
FLAKE_RATES = ((0.0, 0.55), (0.02, 0.12), (0.05, 0.1), (0.1, 0.09), (0.2, 0.08), (0.35, 0.06))
MISS_RATES = ((0.0, 0.97), (0.1, 0.027), (0.3, 0.002), (0.5, 0.001))
_EPSILON = 1e-5  # nothing is impossible: a disk may fill, a host may lie
_OLDER, _NONE = 0.02, 0.05  # before any run: the good commit is bad already; the bad one only failed by chance
_LEADS = 0.5  # probability from which on runs are chosen to confirm or refute the leading commit
_SURE = 1e-12


@dataclass
class Search:
    """The state of a search over commits 0..n-1 in the order of history, the last of which is called bad.

    What came before commit 0 is called good. Either may be said wrongly: the break may be older (-1 is the first bad
    commit), or the failure a flake that no commit brought (n is).
    """

    n: int
    flakes: tuple[int, int] = (0, 0)  # same failure seen on good commits before: (times, runs), from the history
    odds: float = ODDS
    runs: int = field(init=False, default=0)
    # Results by commit; the one before all comes first.
    _failed: list[int] = field(init=False)
    _passed: list[int] = field(init=False)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError("no commit to choose from")
        self._failed, self._passed = [0] * (self.n + 1), [0] * (self.n + 1)

    def tell(self, commit: int, *, failed: bool) -> None:
        """Take in the result of one run of a commit (-1: the one before all, known as good)."""
        self.runs += 1
        (self._failed if failed else self._passed)[commit + 1] += 1

    def posterior(self) -> list[float]:
        """Probability to be the first bad one: of what is before all, of each commit, and of none at all."""
        return self._chances()[0]

    def likeliest(self) -> tuple[int, float]:
        """Return the likeliest of the commits to be the first bad one, and its probability."""
        chances = self.posterior()[1:-1]
        best = max(range(self.n), key=chances.__getitem__)
        return best, chances[best]

    def answer(self) -> int | None:
        """Return the first bad commit (-1: the break is older, n: there is none), once the odds are high enough."""
        chances = self.posterior()
        best = max(range(len(chances)), key=chances.__getitem__)
        rest = math.fsum(chances[:best]) + math.fsum(chances[best + 1 :])
        return best - 1 if rest <= 0 or chances[best] / rest >= self.odds else None

    def next(self) -> int:
        """Return the commit to run next.

        It is the one whose run tells most (in bits) about which commit is the first bad one; once one commit leads, the
        one whose run is expected to raise the odds for it most, if it is the one.
        """
        weight, bad, good = self._chances()
        best = max(range(len(weight)), key=weight.__getitem__)
        gains = _bits(weight, bad, good) if weight[best] < _LEADS else _confirms(best, weight, bad, good)
        return max(zip(gains, itertools.count(-1), strict=False), key=lambda pair: pair[0])[1]

    def left(self, most: int = 100) -> int:
        """Return how many runs more it takes if the likeliest commit is the one, and no run is a flake."""
        rest = Search(self.n, self.flakes, self.odds)
        rest._failed, rest._passed = list(self._failed), list(self._passed)
        truth, _ = self.likeliest()
        while rest.runs < most and rest.answer() is None:
            commit = rest.next()
            rest.tell(commit, failed=commit >= truth)
        return rest.runs

    def _chances(self) -> tuple[list[float], list[float], list[float]]:
        """For each first bad commit from -1 to n: its probability; and of a failure on a bad and on a good commit."""
        fails = [0, *itertools.accumulate(self._failed)]
        passes = [0, *itertools.accumulate(self._passed)]
        seen, ran = self.flakes
        inside = math.log((1 - _OLDER - _NONE) / self.n)
        prior = [math.log(_OLDER), *itertools.repeat(inside, self.n), math.log(_NONE)]
        logs, bad, good = [], [], []
        for before, fails_before, passes_before in zip(prior, fails, passes, strict=True):
            flaky, p = _mixture(FLAKE_RATES, seen + fails_before, ran - seen + passes_before)
            missed, q = _mixture(MISS_RATES, passes[-1] - passes_before, fails[-1] - fails_before)
            logs.append(before + flaky + missed)
            good.append(p)
            bad.append(1 - q)
        top = max(logs)
        weight = [math.exp(value - top) for value in logs]
        total = math.fsum(weight)
        return [w / total for w in weight], bad, good


def _bits(weight: list[float], bad: list[float], good: list[float]) -> Iterator[float]:
    """For each commit from -1 on: the bits that its run is expected to give."""
    # Sums over first bad commits at or before, and after, the commit that is run.
    fail = math.fsum(w * g for w, g in zip(weight, good, strict=True))
    inside = math.fsum(w * _entropy(g) for w, g in zip(weight, good, strict=True))
    for w, b, g in zip(weight[:-1], bad, good, strict=False):
        fail += w * (b - g)
        inside += w * (_entropy(b) - _entropy(g))
        yield _entropy(fail) - inside


def _confirms(best: int, weight: list[float], bad: list[float], good: list[float]) -> Iterator[float]:
    """For each commit from -1 on: the logarithm of the odds for the best after its run, expected if it is the one."""
    own = weight[best]
    fail = math.fsum(w * g for w, g in zip(weight, good, strict=True))
    for i in range(len(weight) - 1):
        fail += weight[i] * (bad[i] - good[i])
        p = bad[best] if i >= best else good[best]
        after_fail = math.log(own * p / max(fail - own * p, _SURE))
        after_pass = math.log(own * (1 - p) / max(1 - fail - own * (1 - p), _SURE))
        yield p * after_fail + (1 - p) * after_pass


@lru_cache(maxsize=100_000)
def _mixture(rates: tuple[tuple[float, float], ...], hits: int, others: int) -> tuple[float, float]:
    """Weigh rates by what was seen: the logarithm of its likelihood, and the rate that is to be expected."""
    logs = [math.log(w) + hits * math.log(_p(r)) + others * math.log(_p(1 - r)) for r, w in rates]
    top = max(logs)
    weights = [math.exp(value - top) for value in logs]
    total = math.fsum(weights)
    return top + math.log(total), math.fsum(w * _p(r) for w, (r, _) in zip(weights, rates, strict=True)) / total


def _p(probability: float) -> float:
    return min(max(probability, _EPSILON), 1 - _EPSILON)


def _entropy(p: float) -> float:
    return 0.0 if p <= 0 or p >= 1 else -(p * math.log2(p) + (1 - p) * math.log2(1 - p))
