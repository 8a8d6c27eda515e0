"""How near the planner comes to the shortest possible run: `python benchmarks/makespan.py [--seeds 50] [--json]`.

The real planner (`matrix.plan`) on simulated jobs: it sees expected times, the clock goes by the real ones.
Ratio: makespan / max(critical path, work / cards).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass

from makespan_jobs import SimJob, bound, job_set

from matrix.plan.forecast import forecast
from matrix.plan.hosts import Card
from matrix.plan.schedule import Capacity
from matrix.spec.job import Cards, HandOff, Job

CARDS = 8


@dataclass(frozen=True)
class Result:
    """One simulated run; seconds."""

    ratio: float
    wide_wait: float  # longest wait of a job that takes all cards, from ready to start
    any_wait: float


def simulate(jobs: list[SimJob]) -> Result:
    """Run a job set on paper."""
    real = [
        Job(
            name=str(job.id),
            suite="benchmark",
            command=("true",),
            cards=Cards(job.cards),
            produces=(HandOff(str(job.id), str(job.id)),),
            needs=tuple(map(str, job.needs)),
        )
        for job in jobs
    ]
    capacity = Capacity(tuple(Card(str(i)) for i in range(CARDS)))
    expected = {str(job.id): job.expected for job in jobs}
    plan = forecast(real, capacity, expected, {str(job.id): job.seconds for job in jobs})
    assert len(plan.planned) == len(jobs)
    limit = bound(jobs, CARDS)
    assert abs(plan.bound - limit) <= 1e-9 * limit
    waits = {job.name: job.start - job.ready for job in plan.planned}
    wide = max((waits[str(job.id)] for job in jobs if job.cards == CARDS), default=0.0)
    return Result(plan.makespan / limit, wide, max(waits.values()))


def main() -> None:
    """Print the figures of many job sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    began = time.perf_counter()
    results = [simulate(job_set(seed)) for seed in range(args.seeds)]
    ratios = [r.ratio for r in results]
    figures = {
        "sets": len(results),
        "median_ratio": round(statistics.median(ratios), 4),
        "worst_ratio": round(max(ratios), 4),
        "worst_wait_of_an_8_card_job_s": round(max(r.wide_wait for r in results), 1),
        "median_of_worst_waits_of_8_card_jobs_s": round(statistics.median(r.wide_wait for r in results), 1),
        "worst_wait_s": round(max(r.any_wait for r in results), 1),
        "seconds_a_set": round((time.perf_counter() - began) / len(results), 3),
    }
    print(json.dumps(figures) if args.json else "\n".join(f"{key} {value}" for key, value in figures.items()))


if __name__ == "__main__":
    main()
