"""Brings foreign results into the history: run folders of other hosts, JUnit files, what GitHub's API says of runs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from matrix.errors import UsageError
from matrix.history.rows import Rows, rows_of
from matrix.junit_file import TestResult, read_junit
from matrix.records import Attempt, JobRecord, RunRecord, SpecRef, Status, load

_CONCLUSIONS = {
    "success": Status.PASSED,
    "failure": Status.FAILED,
    "timed_out": Status.TIMEOUT,
    "cancelled": Status.CANCELLED,
    "skipped": Status.SKIPPED,
    "neutral": Status.PASSED,
    "startup_failure": Status.ERROR,
    "action_required": Status.SKIPPED,
    "stale": Status.CANCELLED,
}


def from_folder(folder: Path) -> Rows:
    """Rows of one run folder (or of its run.json): the record, and the tests of its junit files.

    Raises:
        UsageError: no run there, or one that cannot be read.

    """
    path = folder / "run.json" if folder.is_dir() else folder
    try:
        run = with_causes(load(path), path.parent)
        return rows_of(run, folder=str(path.parent.resolve()), tests=tests_of(run, path.parent))
    except ValueError as e:
        raise UsageError(f"{path}: {e}", "name a folder that `matrix run` wrote") from None


def with_causes(run: RunRecord, folder: Path) -> RunRecord:
    """Read the logs of failed attempts whose causes nobody found yet: other tools write records too."""
    for job in run.jobs:
        for attempt in job.attempts:
            log = folder / attempt.log
            failed = (attempt.status or job.status) in (Status.FAILED, Status.TIMEOUT)
            if failed and not attempt.causes and attempt.log and log.is_file():
                from matrix.triage.diagnosis import diagnose  # noqa: PLC0415 -- most records have their causes

                attempt.causes = diagnose(log, exit_code=attempt.exit_code, job=job.name).causes
    return run


def tests_of(run: RunRecord, folder: Path) -> dict[tuple[str, int], list[TestResult]]:
    """Results of single tests, from the junit file that each attempt left beside its log."""
    found: dict[tuple[str, int], list[TestResult]] = {}
    for job in run.jobs:
        for attempt in job.attempts:
            path = (folder / attempt.log).with_suffix("") / "junit.xml"
            if path.is_file():
                found[job.name, attempt.n] = read_junit(path)
    return found


def from_junit(
    path: Path, *, job: str, commit: str, started: str, run_id: str, pr: int | None, author: str | None
) -> Rows:
    """Rows of a single JUnit file that some other tool wrote.

    Raises:
        UsageError: the file is no JUnit XML.

    """
    results = read_junit(path)
    bad = any(r.outcome in ("failed", "error") for r in results)
    status = Status.FAILED if bad or not results else Status.PASSED
    attempt = Attempt(n=1, started=started, status=status, log=path.name)
    record = JobRecord(name=job, suite=job, status=status, attempts=[attempt])
    run = RunRecord(
        id=run_id, spec=SpecRef(path="", sha256=""), engine="import", host="", commit=commit, pr=pr, author=author,
        started=started, status=status, jobs=[record],
    )  # fmt: skip
    return rows_of(run, tests={(job, 1): results})


def from_github(folder: Path) -> Iterator[Rows]:
    """Rows of what GitHub's API says: in a folder, `runs.json` (workflow runs) and for each run `jobs-ID.json`.

    Raises:
        UsageError: a file is missing or does not have the API's shape.

    """
    for run in _listed(folder / "runs.json", "workflow_runs"):
        jobs = _listed(folder / f"jobs-{run['id']}.json", "jobs")
        try:
            yield rows_of(_github_run(run, jobs))
        except (KeyError, TypeError, ValueError) as e:
            raise UsageError(f"{folder}: run {run.get('id')}: not as GitHub's API answers: {e!r}") from None


def _listed(path: Path, key: str) -> list[dict[str, Any]]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        raise UsageError(
            f"{path}: {e}", "save GET /repos/O/R/actions/runs as runs.json, .../runs/ID/jobs as jobs-ID.json"
        ) from None
    items = document.get(key) if isinstance(document, dict) else document
    if not isinstance(items, list):
        raise UsageError(f"{path}: holds no list {key!r}")
    return items


def _github_run(run: dict[str, Any], jobs: Iterable[dict[str, Any]]) -> RunRecord:
    records: dict[str, JobRecord] = {}
    for job in sorted(jobs, key=lambda j: j.get("run_attempt", 1)):
        status = _CONCLUSIONS.get(job.get("conclusion") or "", Status.ERROR)
        record = records.setdefault(job["name"], JobRecord(name=job["name"], suite=run["name"] or ""))
        record.status = status
        if job.get("started_at"):
            n, log = job.get("run_attempt", 1), job.get("html_url") or ""
            ended = job.get("completed_at")
            record.attempts.append(Attempt(n=n, started=job["started_at"], ended=ended, status=status, log=log))
    pulls = run.get("pull_requests") or []
    return RunRecord(
        id=f"github-{run['id']}", spec=SpecRef(path=run.get("path") or "", sha256=""), engine="actions", host="",
        repository=run["repository"]["full_name"], commit=run["head_sha"], branch=run.get("head_branch"),
        base=pulls[0]["base"]["sha"] if pulls else None, pr=pulls[0]["number"] if pulls else None,
        author=(run.get("actor") or {}).get("login"), started=run["run_started_at"], ended=run.get("updated_at"),
        status=_CONCLUSIONS.get(run.get("conclusion") or "", Status.ERROR), jobs=list(records.values()),
    )  # fmt: skip
