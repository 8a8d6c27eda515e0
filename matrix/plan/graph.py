"""The graph of hand-offs: who needs whom, a stable order, cycles, chains. Values only."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from matrix.spec.job import Job

Edges = Mapping[str, Sequence[str]]  # job -> jobs that it needs


def producers(jobs: Iterable[Job]) -> dict[str, str]:
    """Name of the job that produces each hand-off."""
    return {handoff.name: job.name for job in jobs for handoff in job.produces}


def needed_jobs(jobs: Sequence[Job]) -> dict[str, tuple[str, ...]]:
    """For each job, the jobs among `jobs` that produce what it needs, in the order of its `needs`."""
    by_handoff = producers(jobs)
    return {
        job.name: tuple(dict.fromkeys(by_handoff[name] for name in job.needs if name in by_handoff)) for job in jobs
    }


def order(edges: Edges) -> list[str]:
    """Every job after those that it needs, otherwise as given.

    Raises:
        ValueError: there is a cycle; see `cycles`.

    """
    out = _sorted_part(edges)
    if len(out) < len(edges):
        raise ValueError("the jobs need each other in a circle")
    return out


def _sorted_part(edges: Edges) -> list[str]:
    """Order all jobs but those in a circle and those that need one of these."""
    position = {name: i for i, name in enumerate(edges)}
    waiting = {name: {need for need in needs if need in position} for name, needs in edges.items()}
    followers = dependants(edges)
    ready = [position[name] for name, needs in waiting.items() if not needs]
    heapq.heapify(ready)
    names, out = list(edges), []
    while ready:
        name = names[heapq.heappop(ready)]
        out.append(name)
        for follower in followers[name]:
            waiting[follower].discard(name)
            if not waiting[follower]:
                heapq.heappush(ready, position[follower])
    return out


def dependants(edges: Edges) -> dict[str, list[str]]:
    """For each job, those that need it directly."""
    out: dict[str, list[str]] = {name: [] for name in edges}
    for name, needs in edges.items():
        for need in dict.fromkeys(needs):
            if need in out:
                out[need].append(name)
    return out


def upstream(edges: Edges, names: Iterable[str]) -> list[str]:
    """All that the named jobs need, directly or not, in the order of `edges`; without themselves unless needed."""
    found: set[str] = set()
    todo = list(names)
    while todo:
        for need in edges.get(todo.pop(), ()):
            if need not in found:
                found.add(need)
                todo.append(need)
    return [name for name in edges if name in found]


def downstream(edges: Edges, name: str) -> list[str]:
    """All that need the named job, directly or not, in the order of `edges`."""
    reverse = dependants(edges)
    return upstream({key: reverse[key] for key in edges}, [name])


def cycles(edges: Edges) -> list[list[str]]:
    """One shortest cycle of every knot of jobs that need each other, each beginning with its first job.

    `[a, b]` says: a needs b, and b needs a.
    """
    out: list[list[str]] = []
    covered: set[str] = set(_sorted_part(edges))
    for name in edges:
        if name in covered:
            continue
        found = _shortest_cycle(edges, name)
        if found:
            out.append(found)
            above = set(upstream(edges, [name]))
            covered |= {other for other in above if name in set(upstream(edges, [other]))}
    return out


def _shortest_cycle(edges: Edges, start: str) -> list[str] | None:
    came: dict[str, str] = {}
    level = [start]
    while level:
        following = []
        for name in level:
            for need in edges.get(name, ()):
                if need == start:
                    chain = [name]
                    while chain[-1] != start:
                        chain.append(came[chain[-1]])
                    return chain[::-1]
                if need not in came and need in edges:
                    came[need] = name
                    following.append(need)
        level = following
    return None


def tails(edges: Edges, seconds: Mapping[str, float]) -> dict[str, float]:
    """For each job, the expected time of the longest chain that begins with it (its own time included)."""
    followers = dependants(edges)
    out: dict[str, float] = {}
    for name in reversed(order(edges)):
        out[name] = seconds[name] + max((out[follower] for follower in followers[name]), default=0.0)
    return out
