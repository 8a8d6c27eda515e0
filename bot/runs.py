"""Workflow runs and jobs as GitHub shows them, read with tolerance and turned into plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from matrix.records import Status

Json = Any
CONCLUSIONS: Mapping[str, Status] = {
    "success": Status.PASSED,
    "neutral": Status.PASSED,
    "failure": Status.FAILED,
    "timed_out": Status.TIMEOUT,
    "cancelled": Status.CANCELLED,
    "stale": Status.CANCELLED,
    "skipped": Status.SKIPPED,
    "startup_failure": Status.ERROR,
    "action_required": Status.PENDING,
}


def status_of(status: str | None, conclusion: str | None) -> Status:
    """Our status for GitHub's pair; a conclusion that is not known yet to us counts as a failure, never as green."""
    if status == "completed" or conclusion:
        return CONCLUSIONS.get(conclusion or "", Status.FAILED)
    return Status.RUNNING if status == "in_progress" else Status.PENDING


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull request, as far as the bot needs it."""

    number: int
    head: str
    base: str
    base_ref: str
    author: str
    fork: bool
    open: bool
    association: str = "NONE"


def pull_of(data: Json, repository: str) -> Pull:
    """Read a pull request."""
    head_repo = (data["head"].get("repo") or {}).get("full_name")
    return Pull(
        number=int(data["number"]),
        head=data["head"]["sha"],
        base=data["base"]["sha"],
        base_ref=data["base"]["ref"],
        author=(data.get("user") or {}).get("login", ""),
        fork=head_repo != repository,
        open=data.get("state") == "open",
        association=data.get("author_association", "NONE"),
    )


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one workflow, at its newest attempt."""

    id: int
    workflow: str  # its title
    path: str
    event: str
    head: str
    attempt: int
    status: Status
    conclusion: str
    url: str
    branch: str = ""
    head_owner: str = ""
    started: str = ""  # ISO, of this attempt
    pulls: tuple[int, ...] = ()

    @property
    def completed(self) -> bool:
        """True once no job of this attempt runs any more."""
        return self.status not in (Status.RUNNING, Status.PENDING)


def stored_id(run: int | str, attempt: int) -> str:
    """Return the id under which the history keeps an attempt of a workflow's run: each attempt is one of its own."""
    return f"github-{run}.{attempt}"


def run_of(data: Json) -> Run:
    """Read a workflow run."""
    return Run(
        id=int(data["id"]),
        workflow=data.get("name") or data.get("path") or str(data["id"]),
        path=(data.get("path") or data.get("name") or "").split("@")[0],
        event=data.get("event") or "",
        head=data.get("head_sha") or "",
        attempt=int(data.get("run_attempt") or 1),
        status=status_of(data.get("status"), data.get("conclusion")),
        conclusion=data.get("conclusion") or "",
        url=data.get("html_url") or "",
        branch=data.get("head_branch") or "",
        head_owner=((data.get("head_repository") or {}).get("owner") or {}).get("login", ""),
        started=data.get("run_started_at") or data.get("created_at") or "",
        pulls=tuple(int(p["number"]) for p in data.get("pull_requests") or []),
    )


@dataclass(frozen=True, slots=True)
class Job:
    """One job of a run's newest attempt."""

    id: int
    run: int
    attempt: int
    name: str
    status: Status
    url: str
    runner: str = ""
    started: str = ""  # ISO
    steps: tuple[tuple[int, str], ...] = ()  # number and name of the steps that failed


def job_of(data: Json) -> Job:
    """Read a job."""
    return Job(
        id=int(data["id"]),
        run=int(data["run_id"]),
        attempt=int(data.get("run_attempt") or 1),
        name=data.get("name") or str(data["id"]),
        status=status_of(data.get("status"), data.get("conclusion")),
        url=data.get("html_url") or "",
        runner=data.get("runner_name") or "",
        started=data.get("started_at") or "",
        steps=tuple(
            (int(s["number"]), str(s["name"]))
            for s in data.get("steps") or []
            if s.get("conclusion") in ("failure", "timed_out", "cancelled")
        ),
    )


def newest(runs: Iterable[Run], ignore: frozenset[str] = frozenset()) -> list[Run]:
    """Return the run of each workflow that counts: the one started last, whatever attempt an older one has reached.

    `ignore` holds ids or paths of workflows that are the bot's own. A workflow that a filter skipped has no run, so
    nothing waits for it.
    """
    latest: dict[tuple[str, str], Run] = {}
    for run in runs:
        if run.path in ignore or run.workflow in ignore or run.event in ("workflow_run", "issue_comment"):
            continue
        key = (run.path, run.event)
        if key not in latest or run.id > latest[key].id:
            latest[key] = run
    return sorted(latest.values(), key=lambda r: (r.workflow, r.id))
