"""The record of a new run, and of one that is taken up again."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from matrix.errors import UsageError
from matrix.history.origin import origin
from matrix.plan.graph import producers
from matrix.records import BAD, JobRecord, RunRecord, SpecRef, Status, move
from matrix.run.clock import now
from matrix.spec.load import Spec
from matrix.spec.problems import did_you_mean
from matrix.spec.select import Choice


def new_record(
    spec: Spec,
    choices: Sequence[Choice],
    run_id: str,
    engine: str,
    *,
    given: Collection[str] = (),
    base: str | None = None,
    changed: Sequence[str] | None = None,
) -> RunRecord:
    """Return the record of a run that has not begun. `given`: hand-offs that come from outside."""
    made_by = producers(spec.jobs)
    jobs = []
    for choice in choices:
        job = choice.job
        needs = list(dict.fromkeys(made_by[n] for n in job.needs if n not in given and n in made_by))
        record = JobRecord(name=job.name, suite=job.suite, needs=needs)
        if not choice.selected:
            move(record, Status.SKIPPED, reason=choice.reason)
        jobs.append(record)
    found = origin(spec.root, os.environ)
    return RunRecord(
        schema_="run/1",
        id=run_id,
        spec=SpecRef(path=spec.path.name, sha256=spec.sha256),
        engine=engine,
        host=socket.gethostname().split(".")[0],
        commit=commit(spec.root, "HEAD"),
        base=commit(spec.root, base) if base else found.base,
        changed_files=list(changed) if changed is not None else found.changed_files,
        repository=found.repository,
        branch=found.branch,
        pr=found.pr,
        author=found.author,
        started=now(),
        jobs=jobs,
    )


def commit(root: Path, revision: str) -> str | None:
    """Return the commit of a revision; None outside a repository, or before its first commit."""
    command = ["git", "-C", str(root), "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=60, stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def take_up(record: RunRecord, ended: Callable[[str, int], bool] = lambda *_: False) -> list[str]:
    """Put what a killed runner left running back to pending; return the tags of attempts whose processes may live.

    Attempts that had `ended` (by job and number) before anyone could say so stay: they are only judged.
    """
    tags = []
    for job in record.jobs:
        if job.status is not Status.RUNNING or (job.attempts and ended(job.name, job.attempts[-1].n)):
            continue
        if job.attempts and job.attempts[-1].ended is None:
            last = job.attempts[-1]
            last.ended, last.status = now(), Status.ERROR
            tags.append(tag(record.id, job.name, last.n))
        move(job, Status.PENDING, reason="its runner ended before it did")
    record.ended, record.status = None, Status.RUNNING
    return tags


def tag(run: str, job: str, attempt: int) -> str:
    """Return what marks every process of an attempt."""
    return f"{run}/{job}/{attempt}"


def again(record: RunRecord, names: Sequence[str], *, failed: bool) -> list[str]:
    """Put jobs of an ended run back to pending: the named ones, or all that went badly; return their names.

    What a named job needs and what went badly is run again with it.

    Raises:
        UsageError: no such job, or there is nothing to run again.

    """
    known = [j.name for j in record.jobs]
    for name in names:
        if name not in known:
            raise UsageError(f"no job {name!r} in run {record.id}: {did_you_mean(name, known)}")
    wanted = set(names) if names else {j.name for j in record.jobs if j.status in BAD} if failed else set(known)
    if not names and not failed:
        wanted -= {j.name for j in record.jobs if j.status is Status.SKIPPED}
    grown = True
    while grown:
        needs = {n for name in wanted for n in record.job(name).needs}
        more = {n for n in needs - wanted if record.job(n).status is not Status.PASSED}
        wanted |= more
        grown = bool(more)
    if not wanted:
        raise UsageError(f"run {record.id} has no failed job to run again")
    for job in record.jobs:
        if job.name in wanted:
            if job.status is not Status.PENDING:
                move(job, Status.PENDING, reason="run again")
            job.blocked_by, job.verdict, job.allowed = [], None, False
            job.retried, job.retry = 0, None
    record.ended, record.status = None, Status.RUNNING
    return [n for n in known if n in wanted]
