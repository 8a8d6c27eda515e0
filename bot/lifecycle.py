"""Which comment to post, edit or take away: a pure function of the board and of our comments that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot.board import Board
from bot.intents import Create, Delete, Edit, Intent
from bot.state import State, is_report, parse_state, state_of


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on the pull request."""

    id: int
    author: str
    body: str
    votes: int = 0  # 👍 and 👎
    updated: str = ""

    @property
    def state(self) -> State:
        """What it says for machines; empty if that cannot be read."""
        return parse_state(self.body) or State()


def ours(comments: Sequence[Comment], login: str) -> list[Comment]:
    """Our reports, oldest first. Anyone can quote the marker, so the author counts as well."""
    return sorted((c for c in comments if c.author == login and is_report(c.body)), key=lambda c: c.id)


def settled(board: Board, before: State | None) -> str:
    """Return the last colour that was a result: a run that goes on does not make people forget that it was green."""
    if board.colour in ("red", "green"):
        return board.colour
    return before.settled if before else "none"


def is_stale(board: Board, existing: Sequence[Comment]) -> bool:
    """Tell if a comment that is there saw more than this board did: the facts must be gathered again."""
    mine = state_of(board)
    return any(c.state.is_ahead_of(mine) for c in existing)


def decide(board: Board, existing: Sequence[Comment], body: str) -> list[Intent]:
    """Say what to do so that exactly one comment, with this body, stands there; nothing if nothing is to be said.

    `existing`: our reports, oldest first. The newest is kept; others are left over from a lost answer or a race.
    """
    keep = existing[-1] if existing else None
    extra: list[Intent] = [Delete(c.id) for c in existing[:-1]]
    if keep is None:
        return [Create(body)] if board.colour == "red" else []
    if board.colour == "red" and keep.state.settled == "green":
        return [Create(body), Delete(keep.id), *extra]
    if keep.body.replace("\r\n", "\n").strip() != body.strip():
        return [Edit(keep.id, body), *extra]
    return extra


def state_for(board: Board, existing: Sequence[Comment]) -> State:
    """Return the state that the next body carries."""
    before = existing[-1].state if existing else None
    return replace(state_of(board), settled=settled(board, before))
