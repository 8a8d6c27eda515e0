"""Gathers what is known of a pull request's head commit: runs over workflows and attempts, jobs, logs, artifacts,
files.
"""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from pydantic import ValidationError

from bot.board import Past
from bot.github import BudgetError, GitHub, GitHubError
from bot.logs import Diagnose, JobLog, Logs, diagnose_log
from bot.runs import Job, Pull, Run, job_of, newest, pull_of, run_of
from bot.safe_zip import HostileArchiveError, SafeZip
from matrix.records import JobRecord, RunRecord, Status

log = logging.getLogger("bot")

ARTIFACT = "matrix-run"  # artifacts of `matrix run` begin with this name
ARTIFACT_LIMIT = 32 << 20
RECORD_LIMIT = 8 << 20
MAX_PAST = 3  # earlier attempts of a run that are looked up
MAX_CANCELLED_LOGS = 4  # more cancelled jobs than this were cancelled together: nothing to read in them
WANTS_LOG = frozenset({Status.FAILED, Status.TIMEOUT, Status.ERROR})
# What a fork must not change for its own run: read from the base branch, and a change to it is told.
GUARDED = (".matrix/", "matrix.yaml", "matrix.yml", ".github/")


@dataclass(frozen=True)
class Artifact:
    """A `matrix run`'s record with its logs, from an archive that the pull request's own run wrote."""

    run: int  # the workflow run
    record: RunRecord
    archive: SafeZip
    top: str  # folder of run.json inside the archive, with a slash

    def lines(self, path: str, first: int, last: int) -> str:
        """Lines of a log in the archive, for an excerpt."""
        name = str(PurePosixPath(self.top + path))
        if name not in self.archive.names:
            return ""
        try:
            picked = self.archive.read(name, RECORD_LIMIT).split(b"\n")[max(0, first - 1) : last]
        except HostileArchiveError:
            return ""
        return "\n".join(line[:500].decode("utf-8", "replace") for line in picked)


@dataclass
class Facts:
    """Everything that was found out about one head commit."""

    pull: Pull
    runs: list[Run] = field(default_factory=list)
    jobs: dict[int, list[Job]] = field(default_factory=dict)  # run id -> jobs of its newest attempt
    logs: dict[int, JobLog] = field(default_factory=dict)  # job id
    artifacts: list[Artifact] = field(default_factory=list)
    past: list[Past] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    judged: dict[int, JobRecord] = field(default_factory=dict)  # job id -> with a verdict, where there is a history

    def job_named(self, name: str) -> list[tuple[Run, Job]]:
        """Jobs that a user means by this name: a workflow's job, or the one that ran this job of a matrix."""
        exact = [(run, job) for run in self.runs for job in self.jobs.get(run.id, []) if job.name == name]
        if exact:
            return exact
        ids = {a.record.id: a for a in self.artifacts if any(j.name == name for j in a.record.jobs)}
        return [
            (run, job)
            for run in self.runs
            for job in self.jobs.get(run.id, [])
            if job.id in self.logs and any(i in ids for i in self.logs[job.id].matrix_runs)
        ]

    @property
    def names(self) -> list[str]:
        """Names that a command may use."""
        own = [job.name for run in self.runs for job in self.jobs.get(run.id, [])]
        inner = [job.name for a in self.artifacts for job in a.record.jobs]
        return list(dict.fromkeys(own + inner))


def find_pulls(github: GitHub, run: Run) -> list[Pull]:
    """Return the open pull requests whose head is this run's commit; a fork's is asked for by its branch, never
    scanned for.
    """
    numbers = list(run.pulls)
    found = [pull_of(github.get(f"/pulls/{n}"), github.repository) for n in numbers]
    if not found and run.head_owner and run.branch:
        listed = github.pages("/pulls", most=20, head=f"{run.head_owner}:{run.branch}", state="open")
        found = [pull_of(data, github.repository) for data in listed]
    if not found and run.head:
        listed = github.pages(f"/commits/{run.head}/pulls", most=20)
        found = [pull_of(data, github.repository) for data in listed]
    return [pull for pull in found if pull.open and pull.head == run.head]


def gather(
    github: GitHub,
    pull: Pull,
    *,
    ignore: frozenset[str] = frozenset(),
    diagnose: Diagnose = diagnose_log,
    cache: MutableMapping[int, str] | None = None,
    read_logs: bool = True,
) -> Facts:
    """Find out what there is to say about a pull request's head. Costs about 5 requests and 3 a failing workflow."""
    facts = Facts(pull)
    runs = github.pages("/actions/runs", "workflow_runs", most=300, head_sha=pull.head)
    facts.runs = newest((run_of(data) for data in runs), ignore)
    reader = Logs(github, diagnose, cache if cache is not None else {})
    for run in facts.runs:
        facts.jobs[run.id] = [job_of(j) for j in github.pages(f"/actions/runs/{run.id}/jobs", "jobs", filter="latest")]
        if read_logs:
            facts.logs |= reader.of(run, _to_read(facts.jobs[run.id]))
    for step in (_past, _files, _artifacts):
        try:
            step(github, facts)
        except BudgetError:
            reader.short_of_budget = True
    if reader.short_of_budget:
        facts.notes.append("budget")
    return facts


def _to_read(jobs: list[Job]) -> list[Job]:
    cancelled = [job for job in jobs if job.status is Status.CANCELLED]
    wanted = [job for job in jobs if job.status in WANTS_LOG]
    return wanted + (cancelled if len(cancelled) <= MAX_CANCELLED_LOGS else [])


def _past(github: GitHub, facts: Facts) -> None:
    for run in facts.runs:
        for attempt in range(run.attempt - 1, max(0, run.attempt - 1 - MAX_PAST), -1):
            path = f"/actions/runs/{run.id}/attempts/{attempt}/jobs"
            jobs = [job_of(j) for j in github.pages(path, "jobs")]
            failed = tuple(j.name for j in jobs if j.status in (*WANTS_LOG, Status.CANCELLED))
            passed = sum(j.status is Status.PASSED for j in jobs)
            facts.past.append(Past(str(run.id), attempt, failed, passed, run.url))


def _files(github: GitHub, facts: Facts) -> None:
    failed = any(job.status in WANTS_LOG for jobs in facts.jobs.values() for job in jobs)
    if not failed or not facts.pull.number:  # a branch has no pull request to annotate
        return
    facts.files = [f["filename"] for f in github.pages(f"/pulls/{facts.pull.number}/files", most=1000)]
    if facts.pull.fork and any(name.startswith(GUARDED) for name in facts.files):
        facts.notes.append("spec-from-base")


def _artifacts(github: GitHub, facts: Facts) -> None:
    """Take up records of `matrix run` from runs in which something failed."""
    for run in facts.runs:
        if not run.completed or not any(j.status in WANTS_LOG for j in facts.jobs.get(run.id, [])):
            continue
        mentioned = {i for j in facts.jobs[run.id] if j.id in facts.logs for i in facts.logs[j.id].matrix_runs}
        if not mentioned:
            continue
        for data in github.pages(f"/actions/runs/{run.id}/artifacts", "artifacts", most=100):
            if not str(data.get("name", "")).startswith(ARTIFACT) or data.get("expired"):
                continue
            try:
                if artifact := _artifact(github, run, data):
                    facts.artifacts.append(artifact)
                    _note(facts, "artifact-of-pr")
            except (HostileArchiveError, GitHubError) as e:
                log.warning("artifact %s: %s", data.get("id"), e.message)
                _note(facts, "artifact-refused")


def _note(facts: Facts, note: str) -> None:
    if note not in facts.notes:
        facts.notes.append(note)


def _artifact(github: GitHub, run: Run, data: dict[str, object]) -> Artifact | None:
    url = github.location(f"/actions/artifacts/{data['id']}/zip")
    blob = github.download(url, ARTIFACT_LIMIT + 1) if url else None
    if blob is None:
        return None
    if len(blob) > ARTIFACT_LIMIT:
        raise HostileArchiveError(f"more than {ARTIFACT_LIMIT} bytes")
    archive = SafeZip.open(blob, 4 * ARTIFACT_LIMIT)
    records = [n for n in archive.names if n == "run.json" or n.endswith("/run.json")]
    if not records:
        return None
    try:
        record = RunRecord.model_validate_json(archive.read(records[0], RECORD_LIMIT))
    except ValidationError:
        raise HostileArchiveError("run.json is not a run/1 record") from None
    if record.commit not in (None, run.head):
        return None  # of another commit: nothing to say about this one
    return Artifact(run.id, record, archive, records[0][: -len("run.json")])
