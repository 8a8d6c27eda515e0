"""How near the planner comes to the shortest possible run: `python benchmarks/makespan.py [--seeds 50] [--json]`.

The real planner (`matrix.plan.schedule.decide`) on simulated jobs: it sees expected times, the clock uses the real
ones. Ratio: makespan / max(critical path, work / cards).
"""

from __future__ import annotations

import argparse
import heapq
import json
import statistics
import time
from dataclasses import dataclass

from makespan_jobs import SimJob, bound, job_set

from matrix.plan.graph import dependants, tails
from matrix.plan.hosts import Card
from matrix.plan.schedule import Capacity, Ready, Running, decide


@dataclass(frozen=True)
class Result:
    """One simulated run; seconds."""

    ratio: float
    wide_wait: float  # longest wait of a job that takes all cards, from ready to start
    any_wait: float
    per_decision: float  # real seconds of thinking


def simulate(jobs: list[SimJob], cards: int = 8) -> Result:
    """Run a job set on paper."""
    edges = {str(job.id): tuple(map(str, job.needs)) for job in jobs}
    by_name = {str(job.id): job for job in jobs}
    tail = tails(edges, {name: job.expected for name, job in by_name.items()})
    followers = dependants(edges)
    capacity = Capacity(tuple(Card(str(i)) for i in range(cards)))
    missing = {name: len(needs) for name, needs in edges.items()}
    ready = {name: 0.0 for name, n in missing.items() if not n}
    running: dict[str, tuple[float, tuple[str, ...]]] = {}
    ends: list[tuple[float, str]] = []
    now, wide, longest, thinking, decisions = 0.0, 0.0, 0.0, 0.0, 0
    while ready or ends:
        queue = [
            Ready(n, by_name[n].expected, by_name[n].cards, waited=now - t, tail=tail[n] - by_name[n].expected)
            for n, t in ready.items()
        ]
        busy = [Running(n, c, max(0.0, t + by_name[n].expected - now)) for n, (t, c) in running.items()]
        began = time.perf_counter()
        decision = decide(queue, busy, capacity)
        thinking += time.perf_counter() - began
        decisions += 1
        for start in decision.starts:
            wait = now - ready.pop(start.name)
            longest = max(longest, wait)
            if by_name[start.name].cards == cards:
                wide = max(wide, wait)
            running[start.name] = (now, start.cards)
            heapq.heappush(ends, (now + by_name[start.name].seconds, start.name))
        now, name = heapq.heappop(ends)
        del running[name]
        for follower in followers[name]:
            missing[follower] -= 1
            if not missing[follower]:
                ready[follower] = now
    return Result(now / bound(jobs, cards), wide, longest, thinking / decisions)


def main() -> None:
    """Print the figures of many job sets."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    results = [simulate(job_set(seed)) for seed in range(args.seeds)]
    ratios = [r.ratio for r in results]
    figures = {
        "sets": len(results),
        "median_ratio": round(statistics.median(ratios), 4),
        "worst_ratio": round(max(ratios), 4),
        "worst_wait_of_an_8_card_job_s": round(max(r.wide_wait for r in results), 1),
        "median_of_worst_waits_of_8_card_jobs_s": round(statistics.median(r.wide_wait for r in results), 1),
        "worst_wait_s": round(max(r.any_wait for r in results), 1),
        "decision_ms": round(1000 * statistics.mean(r.per_decision for r in results), 3),
    }
    print(json.dumps(figures) if args.json else "\n".join(f"{key} {value}" for key, value in figures.items()))


if __name__ == "__main__":
    main()
