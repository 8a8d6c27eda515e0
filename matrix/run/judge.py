"""Did the job do its work? From how an attempt ended to a status, with causes for whatever is not well.

Exit 0 is not enough: hand-offs must be sound, tests or steps must have run, baselines must hold.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

from matrix import handoff
from matrix.baseline.limits import compare_limit
from matrix.baseline.losses import compare_losses, job_losses
from matrix.baseline.parse import lines_of, read_log
from matrix.baseline.record import FormError
from matrix.engine.base import Outcome
from matrix.engine.outcome import LOG_NOT_WHOLE
from matrix.records import Fact, Status
from matrix.run.causes import TOO_FEW_STEPS, cause
from matrix.run.hung import where
from matrix.run.prepare import Place
from matrix.run.results import Tests, read_facts, read_junit
from matrix.run.signals import by_signal
from matrix.spec.job import Job
from matrix.triage.model import Cause

_NO_TESTS_COLLECTED = 5  # pytest's exit code


@dataclass(slots=True)
class Judgement:
    """What is said of an attempt."""

    status: Status
    causes: list[Cause] = field(default_factory=list)
    failing_tests: list[str] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    excused: list[str] = field(default_factory=list)  # failures of tests that are quarantined, with why and until when


def judge(job: Job, attempt: int, out: Outcome, place: Place, card: str | None) -> Judgement:
    """Judge an attempt that ended; `card` is the model of its cards. Reads logs and hand-offs: may take seconds."""
    log, scratch = place.log(job.name, attempt), place.scratch(job.name, attempt)
    facts = read_facts(scratch / "facts.jsonl", str((scratch / "facts.jsonl").relative_to(place.folder)))
    if out.problem:
        facts.append(Fact(key="problem", value=out.problem, source=str(log.relative_to(place.folder))))
    if out.left:
        facts.append(Fact(key="processes_left", value=list(out.left), source=None))
    found = _ended_by_runner(job, out, log) or _by_exit_code(job, out, log, scratch) or Judgement(Status.PASSED)
    if found.status is Status.PASSED:
        causes, notes = _unfinished(job, attempt, out, place, card)
        found = Judgement(Status.FAILED if causes else Status.PASSED, causes)
        facts += notes
    found.facts = facts
    if job.pytest and (tests := read_junit(scratch / "junit.xml")):
        found.excused = tests.excused
    return found


def _ended_by_runner(job: Job, out: Outcome, log: Path) -> Judgement | None:
    if out.why == "timeout":
        text = f"{job.name} reached its limit of {job.timeout:g} s and was ended{where(log, out.remark)}"
        return Judgement(Status.TIMEOUT, [cause("job_timeout", text, job=job.name, line=out.remark)])
    if out.why in ("cancel", "kill"):
        text = out.problem or "the run was cancelled"
        return Judgement(Status.CANCELLED, [cause("cancelled", text, job=job.name, line=out.remark)])
    if out.why == "refused":
        text = out.problem or "the job cannot be started"
        return Judgement(Status.ERROR, [cause("cannot_start", text, job=job.name, line=out.remark)])
    if out.why == "lost":
        text = out.problem or "the job's supervisor ended before the job"
        return Judgement(Status.ERROR, [cause("runner_lost", text, job=job.name, line=out.remark)])
    return None


def _by_exit_code(job: Job, out: Outcome, log: Path, scratch: Path) -> Judgement | None:
    if out.exit_code == 0:
        return None
    if job.pytest and out.exit_code == _NO_TESTS_COLLECTED:
        return Judgement(Status.FAILED, [cause("nothing_ran", "pytest collected no test", job=job.name)])
    from matrix.triage.diagnosis import diagnose  # noqa: PLC0415 -- a green run needs none of it

    report = diagnose(log, exit_code=out.exit_code, job=job.name)
    tests = read_junit(scratch / "junit.xml") if job.pytest else None
    failing = report.failing_tests or (tests.failing if tests else [])
    if _disk_was_full(out) and all(c.category == "unknown" for c in report.causes):
        return Judgement(Status.FAILED, [cause("disk_full", out.problem or "", job=job.name)], failing)
    return Judgement(Status.FAILED, by_signal(report.causes, job.name, out.exit_code, out.signal), failing)


def _disk_was_full(out: Outcome) -> bool:
    """Whether the log ends where the disk was full: what the job said of it had no place there."""
    full = [f"{LOG_NOT_WHOLE}: {os.strerror(number)}" for number in (errno.ENOSPC, errno.EDQUOT)]
    return out.problem in full


def _unfinished(job: Job, attempt: int, out: Outcome, place: Place, card: str | None) -> tuple[list[Cause], list[Fact]]:
    """Find what is not as declared though the job exited with 0."""
    log = place.log(job.name, attempt)
    causes: list[Cause] = []
    notes: list[Fact] = []
    if job.pytest:
        causes += _too_few_tests(job, read_junit(place.scratch(job.name, attempt) / "junit.xml"))
    if job.expects.steps is not None:
        causes += _too_few_steps(job, log, place)
    for left in job.produces:
        problems = handoff.check(place.handoffs[left.name], left.kind, since=out.started - 2)
        if problems:
            causes.append(handoff.cause(left.name, problems, root=place.root))
    if job.loss is not None:
        compared = compare_losses(job.loss, job=job.name, log=log, cwd=place.cwd(job), root=place.root, card=card)
        causes += compared.causes
        if compared.note:
            notes.append(Fact(key="loss_baseline", value=compared.note, source=None))
    if job.time is not None:
        causes += filter(None, [compare_limit("time", out.ended - out.started, job.time, job=job.name)])
    if job.peak_memory is not None:
        causes += filter(None, [compare_limit("peak_memory", out.peak_memory, job.peak_memory, job=job.name)])
    return causes, notes


def _too_few_tests(job: Job, tests: Tests | None) -> list[Cause]:
    wanted = job.expects.tests or 1
    if tests is None:
        text = "pytest exited with 0 and left no results"
    elif tests.ran < wanted:
        text = f"{tests.ran} tests ran and {tests.skipped} were skipped; at least {wanted} must run"
    else:
        return []
    return [cause("nothing_ran", text, job=job.name)]


def _too_few_steps(job: Job, log: Path, place: Place) -> list[Cause]:
    wanted = job.expects.steps
    assert wanted is not None
    try:
        losses = job_losses(job.loss, log, place.cwd(job))[0] if job.loss else read_log(lines_of(log))
    except FormError as e:
        return [cause("nothing_ran", f"step {wanted} is expected: {e}", job=job.name)]
    last = max(losses, key=lambda found: found.step, default=None)
    if last is not None and last.step >= wanted:
        return []
    reached = f"the last step with a loss is {last.step}" if last else "no step with a loss was found"
    if last is not None and last.step == wanted - 1 and min(found.step for found in losses) == 0:
        reached += f"; counted from 0 these are {wanted} steps: if that is all, write `expects: {{steps: {last.step}}}`"
    text = f"training should reach step {wanted}; {reached}"
    line = last.line if last and not (job.loss and job.loss.record) else None
    return [cause("nothing_ran", text, job=job.name, line=line, fix=TOO_FEW_STEPS if last else None)]
