"""`bot action`: the entry from a GitHub Actions workflow."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from bot.board import Board, all_rows
from bot.comment import compose
from bot.escape import clean
from bot.events import PullEvent, RunEvent, read_event
from bot.feedback import keeper_for
from bot.github import Budget, GitHub, GitHubError
from bot.runs import pull_of, run_of
from bot.service import Bot
from matrix.errors import ToolError, UsageError
from matrix.triage.titles import title

log = logging.getLogger("bot")
SWEEP = 30  # open pull requests that a scheduled run looks at


def _need(name: str) -> str:
    value = os.environ.get(name, "")
    if not value:
        raise UsageError(f"{name} is not set: bot action runs inside a GitHub Actions workflow")
    return value


def own_workflow() -> frozenset[str]:
    """Path of the workflow that this runs in: the bot does not report on itself."""
    found = re.search(r"(\.github/workflows/[^@]+)@", os.environ.get("GITHUB_WORKFLOW_REF", ""))
    return frozenset({found[1]}) if found else frozenset()


def error_lines(boards: Iterable[Board]) -> list[str]:
    """`::error` lines for the run's own page, one a failing job; nothing of the text can begin another command."""
    lines = []
    for board in boards:
        for row in all_rows(board.rows):
            said = row.findings[0].evidence.text if row.findings else row.reason or str(row.status)
            heading = f"{row.job}: {title(row.category, 'en') if row.findings else row.status}"
            lines.append(f"::error title={_escaped(heading[:200], for_property=True)}::{_escaped(said[:800])}")
    return lines[:50]


def _escaped(text: str, *, for_property: bool = False) -> str:
    text = clean(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if for_property else text


def write_summary(boards: Iterable[Board]) -> None:
    """Write what the comment says into the run's summary, where the token may not comment."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    texts = [compose(board, ("en", "zh")) for board in boards if board.rows]
    if path and texts:
        with Path(path).open("a", encoding="utf-8") as f:
            f.write("\n".join(texts))


def handle(bot: Bot, name: str, payload: Any) -> list[Board]:
    """Have the bot act on one event of a workflow."""
    if name in ("schedule", "workflow_dispatch"):
        listed = bot.github.pages("/pulls", most=SWEEP, state="open", sort="updated", direction="desc")
        boards = []
        for data in list(listed):
            boards += bot.handle(PullEvent(pull_of(data, bot.github.repository).number))
        bot.listen()
        return boards
    if name == "pull_request":  # inside the pull request's own run: what can be told goes to the summary
        return bot.handle(PullEvent(int(payload["pull_request"]["number"])))
    event = read_event(name, payload, bot.login)
    if isinstance(event, RunEvent):  # the event may be older than the run: attempts move on
        event = RunEvent(run_of(bot.github.get(f"/actions/runs/{event.run.id}")))
    return bot.handle(event) if event else []


@click.command(name="action")
def command() -> None:
    r"""Act on the event of this GitHub Actions workflow: workflow_run, issue_comment, pull_request or schedule.

    Reads GITHUB_EVENT_NAME, GITHUB_EVENT_PATH, GITHUB_REPOSITORY and GITHUB_TOKEN; BOT_LOGIN if the token is not the
    workflow's own. Where the token may not comment, the job's summary and ::error lines say the same.

    \b
    Example: bot action
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    name, path = _need("GITHUB_EVENT_NAME"), Path(_need("GITHUB_EVENT_PATH"))
    try:
        payload = json.loads(path.read_bytes())
    except (OSError, ValueError) as e:
        raise ToolError(f"{path}: {e}") from None
    github = GitHub(
        _need("GITHUB_REPOSITORY"),
        _need("GITHUB_TOKEN"),
        base_url=os.environ.get("GITHUB_API_URL", "https://api.github.com"),
        pace=float(os.environ.get("BOT_PACE", "1")),
        budget=Budget(600 if name == "schedule" else 200),
    )
    login = os.environ.get("BOT_LOGIN", "github-actions[bot]")
    bot = Bot(
        github,
        login,
        ignore=own_workflow(),
        keeper=keeper_for(github, os.environ),
        history=os.environ.get("MATRIX_HISTORY"),
    )
    try:
        boards = handle(bot, name, payload)
    except GitHubError as e:
        if e.status != 403:
            raise
        log.warning("%s; writing to the summary instead", e.message)
        boards = bot.boards_seen
        for line in error_lines(boards):
            click.echo(line)
    finally:
        github.close()
    write_summary(boards)
    log.info("used %s requests", github.budget.used)
