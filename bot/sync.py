"""Brings the comment and the check run of a pull request up to date, whoever else is writing at the same time."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bot.board import Board
from bot.checks import check_of
from bot.comment import compose
from bot.facts import Facts
from bot.facts_board import board_of_facts
from bot.github import GitHubError
from bot.lifecycle import Comment, decide, is_stale, ours, state_for
from bot.perform import Performer, comments_on
from bot.state import state_of

log = logging.getLogger("bot")

TRIES = 6  # two writers settle in two; more means that somebody else edits our comment


@contextlib.contextmanager
def pull_lock(repository: str, number: int) -> Iterator[None]:
    """One writer a pull request on this host. Writers on other hosts are met by reading the state back."""
    folder = Path(os.environ.get("BOT_LOCK_DIR") or Path(tempfile.gettempdir()) / f"bot-locks-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = hashlib.sha256(f"{repository}#{number}".encode()).hexdigest()[:24]
    with (folder / f"{name}.lock").open("w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def sync(
    performer: Performer,
    number: int,
    gather: Callable[[], Facts],
    languages: tuple[str, ...] = ("en", "zh"),
    *,
    listen: Callable[[list[Comment]], None] = lambda _: None,
) -> Board:
    """Make what stands on the pull request agree with the facts.

    Facts are gathered, the comments read, the moves decided and made, then read back: if a comment there saw more than
    we did, or ours was overwritten by a staler one, or a second one appeared, it is done again. `listen` is given our
    reports before they are changed: votes are about what stands there.
    """
    web = f"https://github.com/{performer.github.repository}"
    board = Board(None)
    for n in range(TRIES):
        if n > 1:
            time.sleep(0.05 * 2**n)
        facts = gather()
        board = board_of_facts(facts, web=web)
        existing = ours(comments_on(performer.github, number), performer.login)
        if n == 0:
            listen(existing)
        if is_stale(board, existing) and n < TRIES - 1:  # to the last, GitHub may have forgotten a run: then say so
            continue
        state = state_for(board, existing)
        body = compose(board, languages, state=state)
        intents = decide(board, existing, body)
        if not intents:
            _check(performer, number, board, facts, languages)
            return board
        if not _is_head(performer, number, board):
            continue
        try:
            performer.perform(number, intents)
        except GitHubError as e:
            if e.status != 404:  # the comment that we meant to edit is gone: look again
                raise
            continue
        stands = _stands(ours(comments_on(performer.github, number), performer.login), board, body)
        if stands and _is_head(performer, number, board):
            _check(performer, number, board, facts, languages)
            return board
    log.warning("%s#%s: the comment did not come to rest in %s tries", performer.github.repository, number, TRIES)
    return board


def _is_head(performer: Performer, number: int, board: Board) -> bool:
    """Tell if nobody pushed meanwhile: what is said of an older commit must not stay."""
    return bool(performer.github.get(f"/pulls/{number}")["head"]["sha"] == board.head)


def _stands(now: list[Comment], board: Board, body: str) -> bool:
    """Tell if one comment of ours is there and says what we wrote, or something newer."""
    if len(now) != 1:
        return False
    if now[0].body.replace("\r\n", "\n").strip() == body.strip():
        return True
    return now[0].state.is_ahead_of(state_of(board))


def _check(performer: Performer, number: int, board: Board, facts: Facts, languages: tuple[str, ...]) -> None:
    """Update the check run; a token that may not write checks still has its comment."""
    if board.colour == "none" or not board.head:
        return
    try:
        performer.perform(number, [check_of(board, facts.files, languages)])
    except GitHubError as e:
        if e.status not in (403, 404):
            raise
        log.warning("check run: %s", e.message)
