"""What a run will look like if every job takes the time expected of it: the real planner on a clock of its own."""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matrix.plan.graph import dependants, needed_jobs, tails
from matrix.plan.schedule import Capacity, Ready, Running, decide, remaining
from matrix.spec.job import Job

SHORTEST = 0.5  # seconds that the shortest job counts: a clock that was set back makes none free


@dataclass(frozen=True, slots=True)
class Past:
    """What a job took: the median of so many passed attempts."""

    seconds: float
    runs: int
    other_cards: bool = False  # it never ran on cards such as it would get now


@dataclass(frozen=True, slots=True)
class Expected:
    """The time expected of a job, in seconds, and where that comes from; `runs` of the past were looked at."""

    seconds: float
    source: str
    runs: int = 0

    @property
    def known(self) -> bool:
        """Whether it was measured or said of this very job; all else is good enough for the planner alone."""
        return bool(self.runs) or self.source == "expect"


@dataclass(frozen=True, slots=True)
class Planned:
    """When and where a job is expected to run; seconds from the start of the run."""

    name: str
    start: float
    end: float
    cards: tuple[str, ...]
    ready: float
    why: str


@dataclass(frozen=True, slots=True)
class Forecast:
    """A whole run on paper. No schedule can be shorter than `bound`."""

    planned: tuple[Planned, ...]
    makespan: float
    bound: float


def expected_times(jobs: Sequence[Job], history: Mapping[str, Past] | None = None) -> dict[str, Expected]:
    """Return the time expected of each job: history, `expect`, the median of its suite, of all, half its timeout."""
    known: dict[str, Expected] = {}
    for job in jobs:
        if history and job.name in history:
            past = history[job.name]
            source = "history on other cards" if past.other_cards else "history"
            known[job.name] = Expected(min(past.seconds, job.timeout), source, past.runs)
        elif job.expect:
            known[job.name] = Expected(job.expect, "expect")
    suites: dict[str, list[float]] = {}
    for job in jobs:
        if job.name in known:
            suites.setdefault(job.suite, []).append(known[job.name].seconds)
    everything = [seconds for times in suites.values() for seconds in times]
    for job in jobs:
        if job.name in known:
            continue
        if job.suite in suites:
            known[job.name] = Expected(min(statistics.median(suites[job.suite]), job.timeout), "median of its suite")
        elif everything:
            known[job.name] = Expected(min(statistics.median(everything), job.timeout), "median of all jobs")
        else:
            known[job.name] = Expected(job.timeout / 2, "half its timeout")
    return known


def as_ready(
    job: Job,
    expected: float,
    *,
    waited: float = 0.0,
    tail: float = 0.0,
    avoid: frozenset[str] = frozenset(),
    strict: bool = False,
) -> Ready:
    """Say to the planner what a job wants. `tail`: expected seconds of what follows it, see `graph.tails`."""
    return Ready(
        job.name,
        expected,
        cards=job.cards.count,
        model=job.cards.model,
        exclusive=job.cards.exclusive,
        memory=job.memory or 0,
        waited=waited,
        tail=tail,
        avoid=avoid,
        strict=strict,
    )


def as_running(job: Job, cards: tuple[str, ...], left: float) -> Running:
    """Say to the planner what a running job holds, and for how many seconds more; see `schedule.remaining`."""
    return Running(job.name, cards, left, job.cards.exclusive, job.memory or 0)


def forecast(
    jobs: Sequence[Job],
    capacity: Capacity,
    expected: Mapping[str, float],
    actual: Mapping[str, float] | None = None,
) -> Forecast:
    """Run jobs on paper. The planner sees `expected`; the clock goes by `actual` where it is given (simulations).

    Jobs that could never run here, and those that need them, are left out.
    """
    edges = needed_jobs(jobs)
    by_name = {job.name: job for job in jobs}
    followers = dependants(edges)
    tail = tails(edges, expected)
    seconds = actual or expected
    missing = {name: len(needs) for name, needs in edges.items()}
    ready = {name: 0.0 for name, count in missing.items() if not count}
    running: dict[str, tuple[float, tuple[str, ...]]] = {}
    ends: list[tuple[float, str]] = []
    planned: list[Planned] = []
    now = 0.0
    while True:
        queue = [
            as_ready(by_name[name], expected[name], waited=now - since, tail=tail[name] - expected[name])
            for name, since in ready.items()
        ]
        busy = [
            as_running(by_name[name], cards, remaining(expected[name], now - since))
            for name, (since, cards) in running.items()
        ]
        for start in decide(queue, busy, capacity).starts:
            since = ready.pop(start.name)
            end = now + seconds[start.name]
            planned.append(Planned(start.name, now, end, start.cards, since, start.why))
            running[start.name] = (now, start.cards)
            heapq.heappush(ends, (end, start.name))
        if not ends:
            break
        now, ended = heapq.heappop(ends)
        del running[ended]
        for follower in followers[ended]:
            missing[follower] -= 1
            if not missing[follower]:
                ready[follower] = now
    done = [by_name[plan.name] for plan in planned]
    return Forecast(tuple(planned), now, lower_bound(done, capacity, seconds))


def lower_bound(jobs: Sequence[Job], capacity: Capacity, seconds: Mapping[str, float]) -> float:
    """Seconds that no schedule can beat: the longest chain, or all exclusive card time spread evenly."""
    edges = needed_jobs(jobs)
    chain = max(tails(edges, {job.name: seconds[job.name] for job in jobs}).values(), default=0.0)
    work = sum(job.cards.count * seconds[job.name] for job in jobs if job.cards.exclusive)
    cpu = sum(seconds[job.name] for job in jobs if not job.cards.count)
    return max(chain, work / max(1, len(capacity.cards)), cpu / max(1, capacity.cpu_jobs))
