"""How long a job is expected to take: what its last runs took, else what the spec says, else a guess."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from matrix.errors import ToolError
from matrix.plan import forecast
from matrix.records import Status, load
from matrix.run.folder import RECORD
from matrix.spec.job import Job

LAST = 10  # runs that are looked at


def expected_times(jobs: Sequence[Job], runs: Path) -> dict[str, float]:
    """Return the expected seconds of each job, from the passed attempts of the last runs where there are some."""
    return {name: e.seconds for name, e in forecast.expected_times(jobs, history(runs)).items()}


def history(runs: Path) -> dict[str, float]:
    """Return the median seconds of each job's passed attempts of the last runs."""
    return {name: statistics.median(times) for name, times in measured(runs).items()}


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
