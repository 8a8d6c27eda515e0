"""The record of a run (`run.json`, schema run/1) and the one function that moves a job from a status to the next."""

from __future__ import annotations

import json
import math
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticSerializationError

from matrix.errors import ToolError
from matrix.files import replace
from matrix.host.gpus import Card
from matrix.triage.model import Cause


class Status(StrEnum):
    """States of a job. The first two are only seen while a run goes on."""

    PENDING = "pending"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    SKIPPED = "skipped"
    ERROR = "error"


BAD = frozenset({Status.FAILED, Status.TIMEOUT, Status.CANCELLED, Status.BLOCKED, Status.ERROR})
FINAL = frozenset(Status) - {Status.PENDING, Status.RUNNING}

_MOVES: dict[Status, frozenset[Status]] = {
    Status.PENDING: frozenset({Status.RUNNING, Status.BLOCKED, Status.SKIPPED, Status.CANCELLED, Status.ERROR}),
    Status.RUNNING: frozenset(
        {Status.PASSED, Status.FAILED, Status.TIMEOUT, Status.CANCELLED, Status.ERROR, Status.PENDING}
    ),
    # A re-run takes a finished job up again.
    **{s: frozenset({Status.PENDING}) for s in FINAL},
}

VerdictValue = Literal["this-change", "base", "infra", "flaky", "follows", "gate", "cannot-tell"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", use_enum_values=False)


class CardRecord(_Model):
    """A card as it was leased."""

    uuid: str
    index: int
    model: str


def card_record(card: Card) -> CardRecord:
    """Return what is recorded of a card."""
    return CardRecord(uuid=card.uuid, index=card.index, model=card.model)


QUARANTINED = "quarantined"  # key of the fact that names the failures that did not count
SEEN = "seen_before"  # key of the fact that says how often a failure was met in other runs


class Fact(_Model):
    """Something that was observed, with where it was observed."""

    key: str
    value: Any
    source: str | None = None

    def said(self) -> str:
        """Write it for people: a key that a job chose as it is, our own in words."""
        return f"{self.name}: {self.value}"

    @property
    def name(self) -> str:
        """Return the key as people read it."""
        return SEEN.replace("_", " ") if self.key == SEEN else self.key


class Verdict(_Model):
    """Whose failure it is, and what was compared in order to say so."""

    value: VerdictValue = "cannot-tell"
    compared: list[str] = Field(default_factory=list)
    likelihood: float | None = None


class Attempt(_Model):
    """One try of a job."""

    n: int
    started: str
    ended: str | None = None
    exit_code: int | None = None
    signal: str | None = None
    status: Status | None = None
    cards: list[CardRecord] = Field(default_factory=list)
    hosts: list[str] = Field(default_factory=list)  # nodes of a cluster that it ran on
    log: str
    causes: list[Cause] = Field(default_factory=list)
    peak_memory: int | None = None  # bytes, of the whole tree


class Retry(_Model):
    """What a further attempt of a job waits for and stays away from."""

    at: str  # not before
    cards: list[str] = Field(default_factory=list)  # uuids on which it failed
    hosts: list[str] = Field(default_factory=list)
    strict: bool = False  # rather wait for others than take these


class JobRecord(_Model):
    """All that is known of a job in this run."""

    name: str
    suite: str
    status: Status = Status.PENDING
    allowed: bool = False
    blocked_by: list[str] = Field(default_factory=list)
    needs: list[str] = Field(default_factory=list)  # names of jobs
    attempts: list[Attempt] = Field(default_factory=list)
    facts: list[Fact] = Field(default_factory=list)
    failing_tests: list[str] = Field(default_factory=list)
    verdict: Verdict | None = None
    reason: str | None = None  # why skipped, blocked, allowed or in error; of a passed one, on which attempt
    retried: int = 0  # attempts that the retry policy added; a re-run counts anew
    retry: Retry | None = None  # of the attempt that is to come


class SpecRef(_Model):
    """Which matrix was run."""

    path: str
    sha256: str


class RunRecord(_Model):
    """A run: written whole after every change of state."""

    schema_: Literal["run/1"] = Field("run/1", alias="schema")
    id: str
    spec: SpecRef
    engine: str
    host: str
    commit: str | None = None
    uncommitted: str | None = None  # what was run besides the commit: its results are then no commit's
    base: str | None = None
    companions: dict[str, str] = Field(default_factory=dict)  # repository -> commit
    # What the history compares with; unknown outside of a pull request or a CI service.
    repository: str | None = None
    branch: str | None = None
    pr: int | None = None
    author: str | None = None
    changed_files: list[str] | None = None
    notices: list[str] = Field(default_factory=list)  # what whoever reads the run has to know besides, told loudly
    started: str
    ended: str | None = None
    status: Status = Status.RUNNING
    jobs: list[JobRecord] = Field(default_factory=list)

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)

    @property
    def exact_commit(self) -> str | None:
        """The commit whose results these are; None where other files were run too."""
        return None if self.uncommitted else self.commit

    def job(self, name: str) -> JobRecord:
        """Return the record of one job.

        Raises:
            KeyError: no job of that name in this run.

        """
        for record in self.jobs:
            if record.name == name:
                return record
        raise KeyError(name)


def move(job: JobRecord, to: Status, *, reason: str | None = None) -> None:
    """Move a job to another status; every change of status in the program goes through here.

    Raises:
        ToolError: the move is not one of the legal ones.

    """
    if to not in _MOVES[job.status]:
        raise ToolError(f"job {job.name!r} cannot go from {job.status} to {to}")
    job.status = to
    job.reason = reason


def passed_at_last(job: JobRecord) -> str | None:
    """Say on which attempt a job passed, and what the ones before came to; nothing where it never did otherwise."""
    if all(a.status is Status.PASSED for a in job.attempts):
        return None
    before = [f"attempt {a.n}: {a.causes[0].category if a.causes else a.status}" for a in job.attempts[:-1]]
    return f"passed on attempt {job.attempts[-1].n} ({', '.join(before)})"


def outcome(run: RunRecord) -> Status:
    """Status of a whole run from those of its jobs.

    Allowed failures do not count, and a run where nothing ran has failed.
    """
    if any(j.status not in FINAL for j in run.jobs):
        return Status.RUNNING
    counted = [j.status for j in run.jobs if not j.allowed]
    for status in (Status.CANCELLED, Status.ERROR):
        if status in counted:
            return status
    if any(s in BAD for s in counted):
        return Status.FAILED
    return Status.PASSED if any(j.status in (Status.PASSED, *BAD) for j in run.jobs) else Status.FAILED


def save(run: RunRecord, path: Path) -> None:
    """Replace run.json whole (write, fsync, rename), so that a killed runner leaves a readable one."""
    replace(path, dump(run), durable=True)


def dump(run: RunRecord) -> str:
    """Return the document run/1 of a run. Text that UTF-8 cannot hold is replaced, never refused."""
    try:
        return run.model_dump_json(indent=1) + "\n"
    except PydanticSerializationError:
        return json.dumps(_encodable(run.model_dump(mode="python")), indent=1, ensure_ascii=False, default=str) + "\n"


def _encodable(value: Any) -> Any:
    """Copy a value with what JSON cannot hold replaced: halves of characters, and numbers that are none."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {_encodable(str(k)): _encodable(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_encodable(v) for v in value]
    return value


def load(path: Path) -> RunRecord:
    """Read a run.json.

    Raises:
        ToolError: the file is not there or is not a run/1 document.

    """
    try:
        return RunRecord.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        raise ToolError(f"{path}: no such run", "matrix show lists the runs that are there") from None
    except ValueError as e:
        raise ToolError(f"{path}: not a run/1 record: {str(e).splitlines()[0]}") from None
