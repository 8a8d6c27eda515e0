"""What the bot means to do, as values: handlers return them, `perform` carries them out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Reaction = Literal["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"]


@dataclass(frozen=True, slots=True)
class Create:
    """Post the report; people are notified."""

    body: str


@dataclass(frozen=True, slots=True)
class Edit:
    """Change the report in place; nobody is notified."""

    comment: int
    body: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Take away an older report of ours."""

    comment: int


@dataclass(frozen=True, slots=True)
class React:
    """Put a reaction on somebody's comment."""

    comment: int
    content: Reaction


@dataclass(frozen=True, slots=True)
class Unreact:
    """Take our reaction away again."""

    comment: int
    content: Reaction


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer a command: the body carries the command's id, so that it is answered once."""

    number: int
    body: str


@dataclass(frozen=True, slots=True)
class Rerun:
    """Re-run a run's failed jobs, all its jobs, or one job. `attempt` is the one that was seen."""

    run: int
    attempt: int
    what: Literal["failed", "all", "job"] = "failed"
    job: int | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """Cancel a run."""

    run: int


@dataclass(frozen=True, slots=True)
class Annotation:
    """A line of a changed file with what went wrong there."""

    path: str
    line: int
    title: str
    message: str
    level: Literal["failure", "warning", "notice"] = "failure"


@dataclass(frozen=True, slots=True)
class Check:
    """The state of our check run on a commit."""

    head: str
    conclusion: Literal["success", "failure", "neutral", "cancelled"] | None  # None while jobs run
    title: str
    summary: str
    annotations: tuple[Annotation, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class OpenPull:
    """A pull request of ours that changes one file."""

    branch: str
    base: str
    path: str
    text: str  # of the whole file
    message: str
    title: str
    body: str


@dataclass(frozen=True, slots=True)
class Issue:
    """The one issue about a red branch: opened, updated, or (body None) closed."""

    title: str
    body: str | None


Intent = Create | Edit | Delete | React | Unreact | Reply | Rerun | Cancel | Check | Issue | OpenPull
