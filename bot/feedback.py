"""What people say of our diagnoses: reactions are read, and kept with corrections in the history or in a branch."""

from __future__ import annotations

import base64
import datetime as dt
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.github import GitHub, GitHubError
from bot.lifecycle import Comment
from bot.runs import stored_id
from matrix.history import feedback as history
from matrix.history.feedback import BRANCH, FILE, Feedback
from matrix.history.store import StoreAwayError, open_store

log = logging.getLogger("bot")
VOTES = {"+1": True, "-1": False}
_TRIES = 5  # writers of one branch that meet; each loser reads again


class Keeper(Protocol):
    """Where feedback is kept."""

    def known(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that are kept already."""

    def add(self, items: Sequence[Feedback]) -> int:
        """Keep what is new, by id; how many were."""


@dataclass(frozen=True)
class StoreKeeper:
    """Keeps feedback in the history's database."""

    url: str

    def known(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that are kept already."""
        store = open_store(self.url)
        try:
            with store.begin() as c:
                return history.known(c, ids)
        finally:
            store.close()

    def add(self, items: Sequence[Feedback]) -> int:
        """Keep what is new, by id; how many were."""
        store = open_store(self.url)
        try:
            with store.begin() as c:
                return history.add(c, items)
        finally:
            store.close()


@dataclass(frozen=True)
class BranchKeeper:
    """Keeps feedback as JSON lines in a branch of the repository that holds nothing else."""

    github: GitHub

    def known(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that are kept already."""
        return {item.id for item in history.read_lines(self._read()[0])} & set(ids)

    def add(self, items: Sequence[Feedback]) -> int:
        """Keep what is new, by id; how many were.

        Raises:
            GitHubError: the token may not write contents, or others kept on writing at the same time.

        """
        for n in range(1, _TRIES + 1):
            text, sha = self._read()
            there = {item.id for item in history.read_lines(text)}
            new = [item for item in items if item.id not in there]
            if not new:
                return 0
            text = text + ("\n" if text and not text.endswith("\n") else "") + history.write_lines(new)
            try:
                self._write(text, sha)
            except GitHubError as e:  # 409, 422: another writer was first
                if e.status not in (409, 422) or n == _TRIES:
                    raise
                continue
            return len(new)
        raise AssertionError("unreachable")

    def _read(self) -> tuple[str, str | None]:
        """Return the file and its blob; nothing of either before the first word."""
        data = self.github.find(f"/contents/{FILE}", ref=BRANCH)
        if not isinstance(data, dict):
            return "", None
        if data.get("encoding") != "base64":  # over a megabyte
            data = {**data, "content": self.github.get(f"/git/blobs/{data['sha']}")["content"]}
        return base64.b64decode(data.get("content") or "").decode("utf-8", "replace"), str(data["sha"])

    def _write(self, text: str, sha: str | None) -> None:
        if sha is None:
            self._start(text)
            return
        content = base64.b64encode(text.encode()).decode()
        body = {"message": "Feedback on diagnoses", "content": content, "branch": BRANCH, "sha": sha}
        self.github.put(f"/contents/{FILE}", body)

    def _start(self, text: str) -> None:
        """Begin the branch, without the code's history: who reads feedback needs none of it."""

        def nothing() -> None:  # what a lost answer leaves behind is reachable from nowhere: make it again
            return None

        tree = {"tree": [{"path": FILE, "mode": "100644", "type": "blob", "content": text}]}
        made = self.github.post("/git/trees", tree, done=nothing)["sha"]
        body = {"message": "Feedback on diagnoses", "tree": made, "parents": []}
        commit = self.github.post("/git/commits", body, done=nothing)["sha"]
        self.github.post("/git/refs", {"ref": f"refs/heads/{BRANCH}", "sha": commit}, done=nothing)


def keeper_for(github: GitHub, env: Mapping[str, str]) -> Keeper:
    """Return the history's database where one is named, else the branch of the repository."""
    url = env.get("MATRIX_HISTORY")
    return StoreKeeper(url) if url else BranchKeeper(github)


def votes(
    github: GitHub, number: int, reports: Iterable[Comment], keeper: Keeper, login: str, allowed: Callable[[str], bool]
) -> list[Feedback]:
    """Return the 👍 and 👎 on our reports that are not kept yet, of those people whose word counts.

    A report without a vote costs no request: the list of comments says how many there are.
    """
    found: list[Feedback] = []
    for report in reports:
        if not report.votes:
            continue
        listed = [r for r in github.pages(f"/issues/comments/{report.id}/reactions") if r["content"] in VOTES]
        people = [r for r in listed if (r.get("user") or {}).get("type") != "Bot" and r["user"]["login"] != login]
        known = keeper.known([_id(r) for r in people])
        found += [
            _feedback(github.repository, number, report, r)
            for r in people
            if _id(r) not in known and allowed(r["user"]["login"])
        ]
    return found


def _id(reaction: dict[str, object]) -> str:
    return f"reaction-{reaction['id']}"


def _feedback(repository: str, number: int, report: Comment, reaction: dict[str, object]) -> Feedback:
    user, created = reaction["user"], str(reaction["created_at"])
    assert isinstance(user, dict)
    said = report.state.said.split(":")
    # What was edited after the vote may not be what was voted on; nor is it clear which of several was meant.
    clear = len(said) == 4 and created >= report.updated
    category, rule, verdict, confidence = said if clear else ("", "", "", "")
    runs = [stored_id(run, attempt) for run, attempt, _ in report.state.runs.values()]
    return Feedback(
        id=_id(reaction),
        at=dt.datetime.fromisoformat(created).timestamp(),
        author=str(user["login"]),
        url=comment_url(repository, number, report.id),
        right=VOTES[str(reaction["content"])],
        run_id=runs[0] if clear and len(runs) == 1 else None,
        rule=rule or None,
        category=category.replace("-", "_") or None,
        verdict=verdict or None,
        confidence=float(confidence) if confidence else None,
    )


def comment_url(repository: str, number: int, comment: int) -> str:
    """Address of a comment on a pull request."""
    return f"https://github.com/{repository}/pull/{number}#issuecomment-{comment}"


def keep(keeper: Keeper, items: Sequence[Feedback]) -> None:
    """Keep feedback; where that is refused, the report and the answers are worth more than the score."""
    if not items:
        return
    try:
        log.info("feedback: %s new", keeper.add(items))
    except StoreAwayError as e:
        log.warning("feedback is not kept now: %s", e.message)
    except GitHubError as e:
        if e.status not in (403, 404, 409, 422):
            raise
        log.warning("feedback is not kept: %s (the workflow needs `contents: write`, or set MATRIX_HISTORY)", e.message)
