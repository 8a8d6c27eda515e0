"""After a run: give every failure its verdict from what is remembered, then remember this run too."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Connection

from matrix.history.attribute import Failure, Observation, attribute
from matrix.history.covered import FileCoverage
from matrix.history.covered import rows as coverage_rows
from matrix.history.origin import named_files
from matrix.history.queries import observations, sightings
from matrix.history.rows import rows_of, seconds
from matrix.history.spool import record
from matrix.history.store import StoreAwayError, open_store
from matrix.junit_file import TestResult
from matrix.records import BAD, SEEN, Attempt, Fact, JobRecord, RunRecord, Status, Verdict
from matrix.triage.model import Cause

_REMEMBERED = 90 * 86400.0  # seconds in which it is counted
_AROUND = 80  # lines of log above the evidence in which a traceback may name files
_GENERIC = re.compile(
    r"(exit(ed)?( with)?( exit)? (code|status)|returned non-zero|exitcode)\W*-?\d+\W*$", re.IGNORECASE
)


def default_url(matrix_folder: Path, env: Mapping[str, str]) -> str:
    """URL of the history: `$MATRIX_HISTORY`, else a SQLite file in `.matrix/`."""
    return env.get("MATRIX_HISTORY") or f"sqlite:///{matrix_folder / 'history.sqlite'}"


def judge_and_record(
    run: RunRecord,
    folder: Path,
    *,
    url: str,
    spool: Path,
    tests: Mapping[tuple[str, int], list[TestResult]] | None = None,
    commands: Mapping[str, str] | None = None,
    covered: Iterable[FileCoverage] = (),
    archive: str | None = None,
) -> str | None:
    """Fill in the verdicts of a finished run and store it; return a warning where the database did not answer.

    `archive`: the name under which its folder will be kept.
    """
    warning = judge(run, folder, url=url, commands=commands)
    rows = rows_of(run, folder=str(folder), tests=tests)
    rows.run["archive"] = archive
    rows.coverage = coverage_rows(run.id, covered)
    return record(url, rows, spool) or warning


def judge(run: RunRecord, folder: Path | None, *, url: str, commands: Mapping[str, str] | None = None) -> str | None:
    """Fill in the verdicts of a finished run from the history; without a database, from this run alone.

    `commands` holds what each job runs: a configuration that stands there is part of the evidence. Without a folder,
    logs are not looked at.
    """
    failed = [j for j in run.jobs if j.status in BAD]
    if not failed:
        return None
    own = [o for job in run.jobs for o in _observations(run, job)]
    try:
        store = open_store(url)
    except StoreAwayError as e:
        for job in failed:
            job.verdict = _verdict(run, job, _evidence(job, folder, commands), own)
        return e.message
    try:
        with store.begin() as c:
            for job in failed:
                cause = _first_cause(job)
                known = observations(
                    c,
                    repository=run.repository or "",
                    job=job.name,
                    signature=cause.signature if cause else None,
                    at=seconds(run.started),
                )
                others = [o for o in known if o.run != run.id]
                job.verdict = _verdict(run, job, _evidence(job, folder, commands), [*others, *own])
                _note_sightings(c, run, job)
    finally:
        store.close()
    return None


def _note_sightings(c: Connection, run: RunRecord, job: JobRecord) -> None:
    """Say among the job's facts how often its failure was met before, in other runs of this repository."""
    job.facts = [f for f in job.facts if f.key != SEEN]
    cause = _first_cause(job)
    if cause is None or not cause.signature or _is_generic(cause):
        return
    since = seconds(run.started) - _REMEMBERED
    seen = sightings(c, signature=cause.signature, since=since, repository=run.repository or "", other_than=run.id)
    if seen.times and seen.first is not None:
        first = datetime.fromtimestamp(seen.first, UTC).date().isoformat()
        times = f"{seen.times} time{'s' * (seen.times != 1)} since {first}"
        where = f", in {seen.pulls} pull request{'s' * (seen.pulls != 1)}" if seen.pulls else ", on no pull request"
        job.facts.append(Fact(key=SEEN, value=times + where))


def _observations(run: RunRecord, job: JobRecord) -> list[Observation]:
    return [
        _observation(run, job, a)
        for a in job.attempts
        if (a.status or job.status) in (Status.PASSED, Status.FAILED, Status.TIMEOUT)
    ]


def _observation(run: RunRecord, job: JobRecord, attempt: Attempt) -> Observation:
    passed = (attempt.status or job.status) == Status.PASSED
    return Observation(
        run=run.id,
        job=job.name,
        at=seconds(attempt.started),
        passed=passed,
        signature=attempt.causes[0].signature if attempt.causes and not passed else None,
        commit=run.exact_commit,
        base=run.base,
        pr=run.pr,
        author=run.author,
        changed=frozenset(run.changed_files or ()),
        branch=run.branch,
        host=run.host or None,
    )


def _first_cause(job: JobRecord) -> Cause | None:
    return job.attempts[-1].causes[0] if job.attempts and job.attempts[-1].causes else None


def _verdict(run: RunRecord, job: JobRecord, evidence: str, known: list[Observation]) -> Verdict:
    cause = _first_cause(job)
    if job.blocked_by:
        seen = Observation(run=run.id, job=job.name, at=seconds(run.started), passed=False)
        return attribute(Failure(seen, "handoff_missing", blocked_by=tuple(job.blocked_by)), [])
    others = [f for f in job.facts if f.key in ("card_held_by_others", "card_set_aside")]
    if cause and others and cause.category in ("cuda_out_of_memory", "card_unhealthy"):
        return Verdict(value="infra", compared=[str(f.value) for f in others])
    if cause is None or job.status in (Status.CANCELLED, Status.ERROR):
        return Verdict(
            value="cannot-tell", compared=[f"the job ended as {job.status.value}, without a cause to compare"]
        )
    last = job.attempts[-1]
    failure = Failure(
        seen=_observation(run, job, last),
        category=cause.category,
        files=named_files(evidence, run.changed_files or []),
        generic=_is_generic(cause),
    )
    return attribute(failure, known)


def _is_generic(cause: Cause) -> bool:
    # What the runner itself is the witness of (a time limit, nothing ran) is alike in every run of a job.
    of_runner = cause.line is None and cause.rule.startswith("runner-")
    return of_runner or (cause.category == "unknown" and bool(_GENERIC.search(cause.text)))


def _evidence(job: JobRecord, folder: Path | None, commands: Mapping[str, str] | None) -> str:
    cause = _first_cause(job)
    if cause is None:
        return ""
    around = _around(folder / job.attempts[-1].log, cause) if folder else ""
    return "\n".join([cause.text, *cause.tests, (commands or {}).get(job.name, ""), around])


def _around(log: Path, cause: Cause) -> str:
    if cause.line is None or not log.is_file():
        return ""
    first = max(0, cause.line - _AROUND)
    with log.open(encoding="utf-8", errors="replace") as f:
        return "".join(itertools.islice(f, first, max(cause.end_line or 0, cause.line) + 1))
