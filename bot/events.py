"""Reads events of GitHub (webhooks, or the event file of a workflow) into the few things that the bot acts on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bot.commands import parse
from bot.runs import Run, run_of

Json = Any


@dataclass(frozen=True, slots=True)
class RunEvent:
    """A workflow run began, moved or ended."""

    run: Run


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A job ended inside a run."""

    run: int
    head: str


@dataclass(frozen=True, slots=True)
class PullEvent:
    """A pull request got a new head."""

    number: int


@dataclass(frozen=True, slots=True)
class CommandEvent:
    """A comment on a pull request holds commands."""

    number: int
    comment: int
    user: str
    body: str


Event = RunEvent | JobEvent | PullEvent | CommandEvent


def read_event(name: str, payload: Json, login: str) -> Event | None:
    """Say what an event asks of the bot; None if nothing. Payloads are read with tolerance: fields may be missing."""
    if not isinstance(payload, dict):
        return None
    action = payload.get("action")
    try:
        if name == "workflow_run" and payload.get("workflow_run"):
            return RunEvent(run_of(payload["workflow_run"]))
        if name == "workflow_job" and action in ("completed", "in_progress"):
            job = payload["workflow_job"]
            return JobEvent(int(job["run_id"]), str(job["head_sha"]))
        if name == "pull_request" and action in ("synchronize", "reopened"):
            return PullEvent(int(payload["pull_request"]["number"]))
        if name == "issue_comment" and action in ("created", "edited"):
            return _command(payload, login)
    except (KeyError, TypeError, ValueError):
        return None
    return None


def _command(payload: Json, login: str) -> CommandEvent | None:
    comment, issue = payload["comment"], payload["issue"]
    user = comment["user"]
    body = comment.get("body") or ""
    if issue.get("pull_request") is None or user.get("type") == "Bot" or user["login"] == login:
        return None
    return CommandEvent(int(issue["number"]), int(comment["id"]), user["login"], body) if parse(body) else None


def subject(name: str, payload: Json) -> str:
    """Group of events that one look at GitHub answers together: by pull request, else by commit, else by itself."""
    if not isinstance(payload, dict):
        return ""
    repository = str((payload.get("repository") or {}).get("full_name", ""))
    run = payload.get("workflow_run") or payload.get("workflow_job") or {}
    if name == "issue_comment":
        return f"{repository}!{(payload.get('comment') or {}).get('id', '')}"  # each comment is its own
    if pull := payload.get("pull_request"):
        return f"{repository}@{(pull.get('head') or {}).get('sha', '')}"
    return f"{repository}@{run.get('head_sha', '')}"
