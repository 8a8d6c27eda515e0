"""Random job sets for schedule benchmarks.

Widths 1, 2, 4, 8 at 50, 25, 15, 10 %; log-normal seconds (mu 4, sigma 1); expected time = seconds times a log-normal
factor of sigma 0.3; 20 % of the jobs need one earlier job.
"""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True)
class SimJob:
    """A job of a simulated matrix; times in seconds."""

    id: int
    cards: int
    seconds: float
    expected: float
    needs: tuple[int, ...]


def job_set(seed: int, count: int = 200) -> list[SimJob]:
    """Draw a job set; the order of draws is part of the benchmark, so do not change it."""
    r = random.Random(seed)
    jobs = []
    for i in range(count):
        seconds = r.lognormvariate(4, 1)
        cards = r.choices([1, 2, 4, 8], [0.5, 0.25, 0.15, 0.1])[0]
        expected = seconds * r.lognormvariate(0, 0.3)
        needs = (r.randrange(i),) if i and r.random() < 0.2 else ()
        jobs.append(SimJob(i, cards, seconds, expected, needs))
    return jobs


def bound(jobs: list[SimJob], cards: int = 8) -> float:
    """Seconds that no schedule can beat: the longest chain, or all work spread evenly over the cards."""
    end: list[float] = []
    for job in jobs:
        end.append(job.seconds + max((end[k] for k in job.needs), default=0.0))
    return max(*end, sum(job.cards * job.seconds for job in jobs) / cards)
