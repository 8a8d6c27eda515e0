"""Names that mean jobs: a job, a glob of jobs, a suite, or tag:NAME."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

from matrix.errors import UsageError
from matrix.spec.job import Job
from matrix.spec.problems import did_you_mean


def fitting(jobs: Sequence[Job], wish: str) -> list[Job]:
    """Find the jobs that a wish means.

    Raises:
        UsageError: it fits none.

    """
    if wish.startswith("tag:"):
        tag = wish.removeprefix("tag:")
        found = [job for job in jobs if tag in job.tags]
        if not found:
            known = {tag for job in jobs for tag in job.tags}
            raise UsageError(f"no job has the tag {tag!r}: {did_you_mean(tag, known)}")
        return found
    exact = [job for job in jobs if wish in (job.name, job.base, job.suite)]
    found = exact or [job for job in jobs if fnmatch.fnmatchcase(job.name, wish)]
    if not found:
        known = {name for job in jobs for name in (job.name, job.base, job.suite)}
        raise UsageError(f"no job {wish!r}: {did_you_mean(wish, known)}", "matrix list shows all jobs")
    return found
