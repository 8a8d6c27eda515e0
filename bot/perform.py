"""Carries out intents: the one thin layer that writes to GitHub."""

from __future__ import annotations

import base64
import datetime as dt
import logging
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from bot.checks import NAME
from bot.github import GitHub, GitHubError
from bot.intents import (
    Annotation,
    Cancel,
    Check,
    Create,
    Delete,
    Edit,
    Intent,
    Issue,
    OpenPull,
    React,
    Reply,
    Rerun,
    Unreact,
)
from bot.lifecycle import Comment
from bot.state import is_report

log = logging.getLogger("bot")


def comments_on(github: GitHub, number: int) -> list[Comment]:
    """All comments on a pull request or issue, paged to the end."""
    return [_comment(c) for c in github.pages(f"/issues/{number}/comments", most=10_000)]


def comments_since(github: GitHub, day: str) -> list[Comment]:
    """Comments of the whole repository that were made or edited since a day began in UTC, the newest ones."""
    listed = github.pages("/issues/comments", most=1000, since=f"{day}T00:00:00Z", sort="updated", direction="desc")
    return [_comment(c) for c in listed]


def _comment(data: dict[str, Any]) -> Comment:
    author = (data.get("user") or {}).get("login", "")
    return Comment(int(data["id"]), author, data.get("body") or "", _votes(data), data.get("updated_at") or "")


def _votes(comment: dict[str, Any]) -> int:
    counted = comment.get("reactions") or {}
    return int(counted.get("+1") or 0) + int(counted.get("-1") or 0)


class Performer:
    """Performs for one repository as one login."""

    def __init__(self, github: GitHub, login: str) -> None:
        self.github = github
        self.login = login

    def perform(self, number: int, intents: Iterable[Intent]) -> None:
        """Carry out intents in order, on pull request `number`.

        Raises:
            GitHubError: GitHub refused one; those after it are not tried.

        """
        for intent in intents:
            self._one(number, intent)

    def _one(self, number: int, intent: Intent) -> None:
        match intent:
            case Create(body):
                self._post_comment(number, body, lambda c: is_report(c.body) and c.body.strip() == body.strip())
            case Edit(comment, body):
                self.github.patch(f"/issues/comments/{comment}", {"body": body})
            case Delete(comment):
                self.github.delete(f"/issues/comments/{comment}")
            case React(comment, content):
                self._react(comment, content)
            case Unreact(comment, content):
                self._unreact(comment, content)
            case Reply(to, body):
                self._post_comment(to, body, lambda c: c.body.strip() == body.strip())
            case Rerun():
                self._rerun(intent)
            case Cancel(run):
                self._cancel(run)
            case Check():
                self._check(intent)
            case Issue(title, body):
                self._issue(title, body)
            case OpenPull():
                self.open_pull(intent)

    def open_pull(self, wanted: OpenPull) -> str:
        """Open a pull request that changes one file, or find the one that is there; returns its page.

        Raises:
            GitHubError: the token may not write contents or open pull requests.

        """
        owner = self.github.repository.partition("/")[0]

        def mine() -> Any:
            listed = self.github.pages("/pulls", most=10, head=f"{owner}:{wanted.branch}", state="open")
            return next(iter(listed), None)

        if (there := mine()) is None:
            self._branch_with(wanted)
            body = {"title": wanted.title, "head": wanted.branch, "base": wanted.base, "body": wanted.body}
            there = self.github.post("/pulls", body, done=mine)
        return f"https://github.com/{self.github.repository}/pull/{int(there['number'])}"

    def _branch_with(self, wanted: OpenPull) -> None:
        """Make a branch that holds the base's files and the new text; what an earlier try left is gone on with."""

        def branch() -> Any:
            return self.github.find(f"/commits/{quote(wanted.branch, safe='')}")

        sha = self.github.get(f"/commits/{quote(wanted.base, safe='')}")["sha"]
        try:
            self.github.post("/git/refs", {"ref": f"refs/heads/{wanted.branch}", "sha": sha}, done=branch)
        except GitHubError as e:
            if e.status != 422:  # it is there
                raise
        old = self.github.find(f"/contents/{wanted.path}", ref=wanted.branch) or {}
        content = base64.b64encode(wanted.text.encode()).decode()
        if (old.get("content") or "").replace("\n", "") == content:
            return
        body = {"message": wanted.message, "content": content, "branch": wanted.branch}
        self.github.put(f"/contents/{wanted.path}", body | ({"sha": old["sha"]} if old.get("sha") else {}))

    def _post_comment(self, number: int, body: str, is_it: Any) -> None:
        def done() -> Any:
            return next((c for c in comments_on(self.github, number) if c.author == self.login and is_it(c)), None)

        self.github.post(f"/issues/{number}/comments", {"body": body}, done=done)

    def _react(self, comment: int, content: str) -> None:
        path = f"/issues/comments/{comment}/reactions"
        try:
            self.github.post(path, {"content": content}, done=lambda: None)  # GitHub keeps one a person and kind
        except GitHubError as e:
            if e.status != 404:  # the comment was deleted meanwhile
                raise

    def _unreact(self, comment: int, content: str) -> None:
        path = f"/issues/comments/{comment}/reactions"
        try:
            mine = [r for r in self.github.pages(path, content=content) if r["user"]["login"] == self.login]
        except GitHubError as e:
            if e.status == 404:
                return
            raise
        for reaction in mine:
            self.github.delete(f"{path}/{reaction['id']}")

    def _rerun(self, intent: Rerun) -> None:
        path = {
            "failed": f"/actions/runs/{intent.run}/rerun-failed-jobs",
            "all": f"/actions/runs/{intent.run}/rerun",
            "job": f"/actions/jobs/{intent.job}/rerun",
        }[intent.what]

        def done() -> Any:
            run = self.github.get(f"/actions/runs/{intent.run}")
            return run if int(run.get("run_attempt") or 1) > intent.attempt else None

        self.github.post(path, done=done)

    def _cancel(self, run: int) -> None:
        def done() -> Any:
            seen = self.github.get(f"/actions/runs/{run}")
            return seen if seen.get("status") == "completed" else None

        try:
            self.github.post(f"/actions/runs/{run}/cancel", done=done)
        except GitHubError as e:
            if e.status != 409:  # it ended by itself
                raise

    def _check(self, check: Check) -> None:
        def mine() -> Any:
            listed = self.github.pages(f"/commits/{check.head}/check-runs", "check_runs", check_name=NAME)
            # In the document `app` tells whose it is; the name is ours by convention and the newest one counts.
            return max((c for c in listed if c["name"] == NAME), key=lambda c: int(c["id"]), default=None)

        body: dict[str, Any] = {
            "name": NAME,
            "status": "completed" if check.conclusion else "in_progress",
            "output": {"title": check.title, "summary": check.summary},
        }
        if check.conclusion:
            body["conclusion"] = check.conclusion
            body["completed_at"] = dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        old = mine()
        if old is None:
            body["output"]["annotations"] = [_annotation(a) for a in check.annotations]
            self.github.post("/check-runs", {**body, "head_sha": check.head}, done=mine)
            return
        output = old.get("output") or {}
        if (output.get("title"), output.get("summary"), old.get("conclusion")) == (
            check.title,
            check.summary,
            check.conclusion,
        ):
            return
        if check.annotations and output.get("annotations_count"):
            # Annotations are appended: those that are there already are not sent again.
            listed = self.github.pages(f"/check-runs/{old['id']}/annotations")
            there = {(a["path"], a["start_line"], a["message"]) for a in listed}
            new = [a for a in check.annotations if (a.path, a.line, a.message) not in there]
        else:
            new = list(check.annotations)
        body["output"]["annotations"] = [_annotation(a) for a in new]
        self.github.patch(f"/check-runs/{old['id']}", body)

    def _issue(self, title: str, body: str | None) -> None:
        """Open, update or close the one issue of ours with this title."""

        def mine() -> Any:
            listed = self.github.pages("/issues", state="open", creator=self.login)
            return next((i for i in listed if i["title"] == title and "pull_request" not in i), None)

        old = mine()
        if body is None:
            if old:
                self.github.patch(f"/issues/{old['number']}", {"state": "closed"})
        elif old is None:
            self.github.post("/issues", {"title": title, "body": body}, done=mine)
        elif (old.get("body") or "").strip() != body.strip():
            self.github.patch(f"/issues/{old['number']}", {"body": body})


def _annotation(a: Annotation) -> dict[str, Any]:
    return {
        "path": a.path,
        "start_line": a.line,
        "end_line": a.line,
        "annotation_level": a.level,
        "title": a.title,
        "message": a.message,
    }
