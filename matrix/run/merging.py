"""Several runs of one matrix become one: the cells of GitHub Actions and their re-runs."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matrix.errors import UsageError
from matrix.records import (
    BAD,
    FINAL,
    Attempt,
    JobRecord,
    RunRecord,
    Status,
    Verdict,
    load,
    move,
    outcome,
    passed_at_last,
)
from matrix.run.folder import RECORD
from matrix.spec.job import Job

_RAN = BAD - {Status.BLOCKED} | {Status.PASSED, Status.RUNNING}


@dataclass(frozen=True, slots=True)
class Part:
    """One run to be merged, and where its files are."""

    record: RunRecord
    folder: Path


def find_parts(places: Sequence[Path]) -> list[Part]:
    """Find the runs in folders, however deep an artifact's download put them; the oldest first.

    Raises:
        UsageError: a folder holds none.

    """
    found: dict[Path, Part] = {}
    for place in places:
        files = [place] if place.name == RECORD else sorted(place.rglob(RECORD)) if place.is_dir() else []
        if not files:
            raise UsageError(f"{place}: no run there", "name run folders, or a folder that holds some")
        for file in files:
            found[file.resolve()] = Part(load(file), file.parent)
    return sorted(found.values(), key=lambda part: (part.record.started, part.record.id))


def merge(parts: Sequence[Part], jobs: Mapping[str, Job], needs: Mapping[str, Sequence[str]], run_id: str,
          expected: Mapping[str, str] | None = None) -> tuple[RunRecord, list[tuple[Path, str]]]:  # fmt: skip
    """Merge runs into one record; also return which logs go where in its folder.

    `expected`: the jobs of the plan; one of them that no run has did not report. Without it such a job is skipped.

    Raises:
        UsageError: the runs are not of one matrix at one commit.

    """
    records = [part.record for part in parts]
    _same(records)
    copies: list[tuple[Path, str]] = []
    merged = [_job(job, needs.get(name, ()), parts, copies, expected) for name, job in jobs.items()]
    first = records[0]
    run = first.model_copy(
        update={
            "id": run_id,
            "engine": "actions",
            "host": ",".join(sorted({record.host for record in records}))[:200],
            "started": min(record.started for record in records),
            "ended": max(record.ended or record.started for record in records),
            "uncommitted": next((record.uncommitted for record in records if record.uncommitted), None),
            "companions": {k: v for record in records for k, v in record.companions.items()},
            "jobs": merged,
        }
    )
    _block(run)
    run.status = outcome(run)
    return run, copies


def _same(records: Sequence[RunRecord]) -> None:
    for what, values in (
        ("matrices", {record.spec.sha256 for record in records}),
        ("commits", {record.commit for record in records}),
    ):
        if len(values) > 1:
            shown = " and ".join(sorted(str(value)[:12] for value in values)[:2])
            raise UsageError(f"the runs are of different {what}: {shown}", "merge the runs of one commit")


def _job(job: Job, needs: Sequence[str], parts: Sequence[Part], copies: list[tuple[Path, str]],
         expected: Mapping[str, str] | None) -> JobRecord:  # fmt: skip
    """Join what all runs say of one job: its attempts in their order, and the last word on it."""
    merged = JobRecord(name=job.name, suite=job.suite, needs=list(needs))
    said = [(part, r) for part in parts for r in part.record.jobs if r.name == job.name]
    ran = [(part, r) for part, r in said if r.status in _RAN]
    for part, record in ran:
        for attempt in record.attempts:
            merged.attempts.append(_attempt(attempt, job.name, len(merged.attempts) + 1, part, copies))
    began = [(part, r) for part, r in ran if r.attempts]  # else it was cancelled before
    blocked = [(part, r) for part, r in said if r.status is Status.BLOCKED]
    if ran or blocked:
        last = (began or ran or blocked)[-1][1]
        for name in ("allowed", "blocked_by", "facts", "failing_tests", "verdict", "status", "reason"):
            setattr(merged, name, getattr(last, name))
        if merged.status is Status.PASSED and len(merged.attempts) > 1:
            merged.reason = passed_at_last(merged)
        if merged.status not in FINAL:
            merged.status, merged.reason = Status.ERROR, "its runner ended before it did"
    elif expected is not None and job.name in expected:
        merged.reason = None  # until it is known whether something else kept it from running
    else:
        move(merged, Status.SKIPPED, reason=said[-1][1].reason if said else "no run has it")
    return merged


def _attempt(attempt: Attempt, job: str, n: int, part: Part, copies: list[tuple[Path, str]]) -> Attempt:
    log = f"logs/{job}/{n}.log"
    copies.append((part.folder / attempt.log, log))
    return attempt.model_copy(update={"n": n, "log": log})


def _block(run: RunRecord) -> None:
    """Name the roots of what was blocked, and say of what never reported whether it could have run at all."""
    again = True
    while again:
        again = False
        for job in run.jobs:
            if job.status is not Status.PENDING:
                continue
            needed = [run.job(name) for name in job.needs]
            if any(n.status is Status.PENDING for n in needed):
                continue
            again = True
            if any(n.status in BAD | {Status.SKIPPED} for n in needed):
                move(job, Status.BLOCKED)
            else:
                move(job, Status.ERROR, reason="no runner reported a result: see the workflow's own log")
    for job in run.jobs:
        if job.status is Status.BLOCKED:
            bad = [n for n in job.needs if run.job(n).status in BAD | {Status.SKIPPED}] or job.blocked_by
            roots = _roots(run, bad)
            job.blocked_by, job.verdict = roots, Verdict(value="follows", compared=roots)
            job.allowed = bool(roots) and all(run.job(root).allowed for root in roots)
            job.reason = job.reason or f"needs what {' and '.join(bad)} did not produce"


def _roots(run: RunRecord, names: Sequence[str]) -> list[str]:
    """Follow blocked jobs to what blocked them."""
    found: dict[str, None] = {}
    todo, seen = list(names), set()
    while todo:
        name = todo.pop(0)
        if name in seen:
            continue
        seen.add(name)
        job = run.job(name)
        upstream = [n for n in job.needs if run.job(n).status in BAD | {Status.SKIPPED}]
        if job.status is Status.BLOCKED and upstream:
            todo += upstream
        elif job.status is Status.BLOCKED and job.blocked_by != [name] and job.blocked_by:
            found |= dict.fromkeys(job.blocked_by)  # a hand-off of a job that passed did not arrive whole
        else:
            found[name] = None
    return list(found)


def copy_logs(copies: Sequence[tuple[Path, str]], folder: Path) -> None:
    """Copy logs, and what stands beside them (facts, results of tests, stacks), into the merged run's folder."""
    for source, log in copies:
        target = folder / log
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_file():
            shutil.copyfile(source, target)
        beside = source.with_suffix("")
        if beside.is_dir():
            shutil.copytree(beside, target.with_suffix(""), dirs_exist_ok=True)
