"""GitHub Actions as an engine: a plan becomes matrices for `strategy.matrix`, one cell a job, in waves. Values only.

Actions knows no edges between the cells of a matrix, so jobs go by waves: a wave needs only what earlier ones produce.
A matrix holds at most 256 cells; a wave with more becomes several matrices.
Source: https://docs.github.com/en/actions/reference/limits and .../workflow-syntax (jobs.<job_id>.strategy.matrix).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matrix.errors import UsageError
from matrix.plan.graph import needed_jobs, order, tails
from matrix.plan.hosts import Host
from matrix.spec.job import Job
from matrix.spec.retry import RetryRule, pauses

MAX_CELLS = 256
_SETUP = 10  # minutes that checkout, installation and artifacts get beside the job's own limit
_DEFAULT_RUNNER = "ubuntu-latest"  # for jobs without cards, where the hosts file names no runner for them
_NO_ARTIFACT_NAME = re.compile(r"[^A-Za-z0-9._@=-]+")


@dataclass(frozen=True, slots=True)
class Matrix:
    """One `strategy.matrix`. Several of one wave run side by side."""

    id: str
    wave: int
    cells: tuple[Mapping[str, Any], ...]

    @property
    def document(self) -> dict[str, Any]:
        """What `fromJSON` gives to `strategy.matrix`."""
        return {"include": [dict(cell) for cell in self.cells]}


def matrices(
    jobs: Sequence[Job],
    hosts: Sequence[Host],
    given: Collection[str] = (),
    policy: Sequence[RetryRule] = (),
    expected: Mapping[str, float] | None = None,
) -> list[Matrix]:
    """Return the matrices of the chosen jobs, wave by wave; in a wave, those first that begin the longest chain.

    `given`: hand-offs that come from elsewhere. `policy`: by which a cell tries again, which takes time. `expected`:
    seconds of each job; GitHub starts cells in their order, as far as there are runners.

    Raises:
        UsageError: no runner has the cards that a job asks for.

    """
    needs = {
        name: tuple(p for p in producers if _over_an_edge(jobs, name, p, given))
        for name, producers in needed_jobs(jobs).items()
    }
    chain = tails(needs, expected or dict.fromkeys(needs, 0.0))
    jobs = sorted(jobs, key=lambda job: -chain[job.name])
    wave: dict[str, int] = {}
    for name in order(needs):
        wave[name] = 1 + max((wave[p] for p in needs[name]), default=0)
    found = []
    for number in range(1, max(wave.values(), default=0) + 1):
        cells = [cell(job, needs[job.name], hosts, policy) for job in jobs if wave[job.name] == number]
        for part, first in enumerate(range(0, len(cells), MAX_CELLS), 1):
            name = f"wave{number}" if part == 1 else f"wave{number}_{part}"
            found.append(Matrix(name, number, tuple(cells[first : first + MAX_CELLS])))
    return found


def _over_an_edge(jobs: Sequence[Job], name: str, producer: str, given: Collection[str]) -> bool:
    by_name = {job.name: job for job in jobs}
    made = {handoff.name for handoff in by_name[producer].produces}
    return bool(made & set(by_name[name].needs) - set(given))


def cell(job: Job, needs: Sequence[str], hosts: Sequence[Host], policy: Sequence[RetryRule] = ()) -> dict[str, Any]:
    """Return one cell: what a workflow must know before the job's runner takes over."""
    limit = job.timeout * (1 + job.retries) + pauses(policy, job.retries)
    return {
        "job": job.name,
        "runs-on": list(runner(job, hosts)),
        "timeout-minutes": math.ceil(limit / 60) + _SETUP,
        "artifact": artifact(job.name),
        # The pattern of actions/download-artifact; empty when there is nothing to download.
        "download": download(needs),
        "upload": bool(job.produces),
    }


def artifact(job: str) -> str:
    """Return the part of artifact names that stands for a job; names that differ stay different."""
    safe = _NO_ARTIFACT_NAME.sub("-", job)
    return safe if safe == job else f"{safe}-{hashlib.sha256(job.encode()).hexdigest()[:8]}"


def download(needs: Sequence[str]) -> str:
    """Return the glob of the artifacts in which the hand-offs of these jobs are."""
    names = [artifact(name) for name in needs]
    if not names:
        return ""
    return f"handoffs-{names[0]}" if len(names) == 1 else f"handoffs-{{{','.join(names)}}}"


def runner(job: Job, hosts: Sequence[Host]) -> tuple[str, ...]:
    """Return the labels of the smallest kind of runner that has the job's cards.

    Raises:
        UsageError: there is none.

    """
    if (job.nodes or 1) > 1:
        raise UsageError(f"{job.name} asks for {job.nodes} nodes: a runner is one host", "run it with --engine slurm")
    labelled = [host for host in hosts if host.labels]
    fitting = [host for host in labelled if host.fits(job.cards) and (job.cards.count or not host.cards)]
    if fitting:
        return min(fitting, key=lambda host: len(host.cards)).labels
    if not job.cards.count:
        return (_DEFAULT_RUNNER,)
    of = f" of model {job.cards.model}" if job.cards.model else ""
    have = ", ".join(f"{host.name}: {len(host.cards)}" for host in labelled) or "no host has 'labels'"
    raise UsageError(
        f"{job.name} asks for {job.cards.count} cards{of}, and no runner has them ({have})",
        "give a host of the hosts file ($MATRIX_HOSTS) `labels: [self-hosted, …]`",
    )
