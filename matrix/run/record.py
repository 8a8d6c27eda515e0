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
        uncommitted=uncommitted(spec.path),
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
    return _git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}") or None


def uncommitted(spec: Path) -> str | None:
    """Say what of the files that are run is in no commit: tracked files that differ, or the matrix itself.

    Other untracked files are mostly what jobs leave, so they do not count.
    """
    if commit(spec.parent, "HEAD") is None:
        return None
    changed = (_git(spec.parent, "diff", "--name-only", "-z", "HEAD") or "").split("\0")[:-1]
    if _git(spec.parent, "ls-files", "--error-unmatch", "--", spec.name) is None:
        changed.append(spec.name)
    more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
    return f"changes in {', '.join(changed[:3])}{more}" if changed else None


def note_files(record: RunRecord, spec: Path) -> str | None:
    """Note that further attempts run other files than those before; return what to tell the reader."""
    here, changes = commit(spec.parent, "HEAD"), uncommitted(spec)
    if here == record.commit and changes is None:
        return None
    if here != record.commit:
        changes = f"attempts at {(here or 'no commit')[:10]}" + (f" with {changes}" if changes else "")
    known = record.uncommitted or ""
    if changes and changes not in known:
        record.uncommitted = "; ".join(filter(None, [known, changes]))[:1000]
    of = (record.commit or "none")[:10]
    return f"run {record.id} is of commit {of}, and these are {changes}: its results count for no commit"


def _git(root: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *args], capture_output=True, text=True, errors="replace", check=False, timeout=60,
            stdin=subprocess.DEVNULL, env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


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

    What a named job needs and what went badly is run again with it, and so is what was blocked by any of these: else it
    would be said to wait for a job that has passed by now. What lacks another job too is blocked by that one anew.

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
    grown = True
    while grown:
        more = {
            j.name for j in record.jobs if j.status is Status.BLOCKED and wanted & {*j.needs, *j.blocked_by}
        } - wanted
        wanted |= more
        grown = bool(more)
    for job in record.jobs:
        if job.name in wanted:
            if job.status is not Status.PENDING:
                move(job, Status.PENDING, reason="run again")
            job.blocked_by, job.verdict, job.allowed = [], None, False
            job.retried, job.retry = 0, None
    record.ended, record.status = None, Status.RUNNING
    return [n for n in known if n in wanted]
