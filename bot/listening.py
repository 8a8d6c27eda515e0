"""Hears what people say of our diagnoses: votes on reports, corrections in commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from bot.answers import Answer
from bot.commands import Command
from bot.escape import clean
from bot.facts import Facts
from bot.feedback import Keeper, comment_url, keep, votes
from bot.github import GitHub
from bot.lifecycle import Comment, ours
from bot.perform import comments_on
from bot.policy import Policy, denial
from bot.runs import Pull, pull_of
from matrix.history.feedback import Feedback
from matrix.triage.lines import split

LOG_LIMIT = 64 << 20  # bytes of a log in which a named line is looked up
MAX_TEXT = 2000
POLLED = 30  # pull requests that a look for votes takes up, those changed last


def votes_on(
    github: GitHub, login: str, keeper: Keeper, pull: Pull, policy: Policy
) -> Callable[[Sequence[Comment]], None]:
    """Make what takes up the votes on the reports of a pull request: of people who may also correct a diagnosis."""

    def allowed(user: str) -> bool:
        permission = (github.find(f"/collaborators/{user}/permission") or {}).get("permission", "none")
        refused = denial(
            policy, Command("wrong"), user=user, permission=permission, is_author=user == pull.author,
            association=pull.association, labels=frozenset(), spent=0,
        )  # fmt: skip
        return refused is None

    def listen(reports: Sequence[Comment]) -> None:
        keep(keeper, votes(github, pull.number, reports, keeper, login, allowed))

    return listen


def poll(github: GitHub, login: str, keeper: Keeper, policy_of: Callable[[Pull], Policy]) -> None:
    """Look for votes on the reports of the pull requests that changed last, closed ones too."""
    listed = github.pages("/pulls", most=POLLED, state="all", sort="updated", direction="desc")
    for pull in [pull_of(data, github.repository) for data in listed]:
        reports = ours(comments_on(github, pull.number), login)
        if any(report.votes for report in reports):
            votes_on(github, login, keeper, pull, policy_of(pull))(reports)


def corrections(
    github: GitHub, number: int, comment: int, pairs: Iterable[tuple[Command, Answer]], facts: Facts | None
) -> list[Feedback]:
    """Return what `/wrong` said in one comment, with the text of the line that it names."""
    given = [answer.feedback for _, answer in pairs if answer.ok and answer.feedback]
    return [
        replace(
            item,
            id=f"comment-{comment}-{n}",
            at=time.time(),
            url=comment_url(github.repository, number, comment),
            text=_text(github, facts, item),
        )
        for n, item in enumerate(given, 1)
    ]


def _text(github: GitHub, facts: Facts | None, item: Feedback) -> str | None:
    text = item.text or ""
    if facts and item.job and item.corrected_line:
        text = _line(github, facts, item.job, item.corrected_line)
    return split(1, clean(text)[:MAX_TEXT]).text or None  # cleaning masks credentials too


def _line(github: GitHub, facts: Facts, name: str, number: int) -> str:
    """Return a line of a job's log; empty if there is no such line (any more)."""
    for artifact in facts.artifacts:
        for inner in artifact.record.jobs:
            if inner.name == name and inner.attempts:
                return artifact.lines(inner.attempts[-1].log, number, number)
    for _, job in facts.job_named(name):
        url = github.location(f"/actions/jobs/{job.id}/logs")
        data = github.download(url, LOG_LIMIT) if url else None
        lines = (data or b"").split(b"\n", number)
        if len(lines) >= number:
            return lines[number - 1][:MAX_TEXT].decode("utf-8", "replace")
    return ""
