"""Which commit broke it? A search for noisy tests: Bayes over (first bad commit, flake rate, miss rate).

Pure: it is told results and says which commit to run next, and when the odds favour one commit enough. With a job
that never flakes it needs about log2(n) runs, as plain bisection does; with one that fails by chance it repeats what
matters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

ODDS = 1000.0
# How often the job fails on a good commit in the same way, and how often it passes on a bad one: grids, with a prior
# weight each. Most jobs do neither, so that a steady job pays little for the doubt.
FLAKE_RATES = ((0.0, 0.55), (0.02, 0.12), (0.05, 0.1), (0.1, 0.09), (0.2, 0.08), (0.35, 0.06))
MISS_RATES = ((0.0, 0.98), (0.2, 0.015), (0.5, 0.005))
_EPSILON = 1e-5  # nothing is impossible: a disk may fill, a host may lie


@dataclass
class Search:
    """The state of a search over commits 0..n-1 in the order of history, the last of which is bad.

    The first bad commit is one of them; what came before commit 0 is good.
    """

    n: int
    flakes: tuple[int, int] = (0, 0)  # same failure seen on good commits before: (times, runs), from the history
    odds: float = ODDS
    _log: dict[tuple[int, int, int], float] = field(init=False)
    runs: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.n < 1:
            raise ValueError("no commit to choose from")
        failed, ran = self.flakes
        self._log = {
            (k, f, m): math.log(wf)
            + math.log(wm)
            + failed * math.log(_p(rate))
            + (ran - failed) * math.log(_p(1 - rate))
            for k in range(self.n)
            for f, (rate, wf) in enumerate(FLAKE_RATES)
            for m, (_, wm) in enumerate(MISS_RATES)
        }

    def tell(self, commit: int, *, failed: bool) -> None:
        """Take in the result of one run of a commit (-1: the one before all, known as good)."""
        self.runs += 1
        for k, f, m in self._log:
            fails = 1 - MISS_RATES[m][0] if commit >= k else FLAKE_RATES[f][0]
            self._log[k, f, m] += math.log(_p(fails if failed else 1 - fails))

    def posterior(self) -> list[float]:
        """Probability of each commit to be the first bad one."""
        return self._chances()[0]

    def answer(self) -> int | None:
        """Return the first bad commit, once the odds against all others are high enough."""
        chances = self.posterior()
        best = max(range(self.n), key=chances.__getitem__)
        rest = 1 - chances[best]
        return best if rest <= 0 or chances[best] / rest >= self.odds else None

    def next(self) -> int:
        """Return the commit whose run is expected to tell most (in bits) about which commit is the first bad one."""
        weight, bad, good = self._chances()
        # Sums over first bad commits at or before, and after, the commit that is run; it starts before all of them.
        fail, inside = math.fsum(map(_times, weight, good)), math.fsum(map(_spread, weight, good))
        best, most = -1, _entropy(fail) - inside
        for k in range(self.n):
            fail += weight[k] * (bad[k] - good[k])
            inside += _spread(weight[k], bad[k]) - _spread(weight[k], good[k])
            gain = _entropy(fail) - inside
            if gain > most:
                best, most = k, gain
        return best

    def left(self, most: int = 100) -> int:
        """Return how many runs more it takes if the likeliest commit is the one, and no run is a flake."""
        rest = Search(self.n, self.flakes)
        rest._log = dict(self._log)
        chances = self.posterior()
        truth = max(range(self.n), key=chances.__getitem__)
        while rest.runs < most and rest.answer() is None:
            commit = rest.next()
            rest.tell(commit, failed=commit >= truth)
        return rest.runs

    def _chances(self) -> tuple[list[float], list[float], list[float]]:
        """For each first bad commit: its probability, and that of a failure on a bad and a good commit if it is so."""
        top = max(self._log.values())
        weight, bad, good = [0.0] * self.n, [0.0] * self.n, [0.0] * self.n
        for (k, f, m), value in self._log.items():
            w = math.exp(value - top)
            weight[k] += w
            bad[k] += w * _p(1 - MISS_RATES[m][0])
            good[k] += w * _p(FLAKE_RATES[f][0])
        total = math.fsum(weight)
        return (
            [w / total for w in weight],
            [b / w if w else 0.0 for b, w in zip(bad, weight, strict=True)],
            [g / w if w else 0.0 for g, w in zip(good, weight, strict=True)],
        )


def _times(w: float, p: float) -> float:
    return w * p


def _spread(w: float, p: float) -> float:
    return w * _entropy(p)


def _p(probability: float) -> float:
    return min(max(probability, _EPSILON), 1 - _EPSILON)


def _entropy(p: float) -> float:
    return 0.0 if p <= 0 or p >= 1 else -(p * math.log2(p) + (1 - p) * math.log2(1 - p))
