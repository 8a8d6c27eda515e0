"""How long a job is expected to take: what its last runs took, else what the spec says, else a guess."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from matrix.errors import ToolError
from matrix.records import Status, load
from matrix.run.folder import RECORD
from matrix.spec.job import Job

GUESS = 300.0  # seconds
LAST = 10  # runs that are looked at


def expected_times(jobs: Iterable[Job], runs: Path) -> dict[str, float]:
    """Return the expected seconds of each job, from the passed attempts of the last runs where there are some."""
    seen = measured(runs)
    return {
        job.name: statistics.median(seen[job.name]) if job.name in seen else job.expect or min(GUESS, job.timeout)
        for job in jobs
    }


def measured(runs: Path) -> dict[str, list[float]]:
    """Return the seconds of passed attempts by job, of the last runs."""
    seen: dict[str, list[float]] = {}
    for path in sorted(runs.glob(f"*/{RECORD}"))[-LAST:]:
        try:
            record = load(path)
        except ToolError:
            continue  # half a run, or one of another version: it only helps to guess
        for job in record.jobs:
            for a in job.attempts:
                if a.status is Status.PASSED and a.ended:
                    took = datetime.fromisoformat(a.ended) - datetime.fromisoformat(a.started)
                    seen.setdefault(job.name, []).append(max(took.total_seconds(), 0.5))
    return seen
