"""A client for GitHub's REST API that is safe to retry with.

PyGithub's requester does the HTTP (authentication, pacing, rate limits). On top: only idempotent methods are retried by
the transport; a POST whose answer was lost is looked for before it is sent again; GETs are conditional and paged; every
event has a budget of requests; logs and archives come over a redirect to another host, which never sees the token.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import requests
from github import Auth, Github, GithubException, GithubRetry, RateLimitExceededException

from matrix.errors import ToolError

log = logging.getLogger("bot")

Json = Any  # GitHub's own shapes; read with tolerance
_NEXT = re.compile(r'<([^>]+)>;\s*rel="next"')
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


class GitHubError(ToolError):
    """GitHub refused or could not be reached. `status` is 0 where there was no answer."""

    def __init__(self, status: int, message: str, call: str) -> None:
        super().__init__(f"GitHub: {call}: {status or 'no answer'} {message}")
        self.status = status


class BudgetError(ToolError):
    """The event has used up its requests."""


def transport_retry(*, total: int = 4, max_wait: float = 120.0, secondary_wait: float = 60.0) -> GithubRetry:
    """Retries for idempotent methods: PATCH writes the same text again, POST might post a comment twice."""
    return GithubRetry(
        total=total,
        backoff_factor=0.5,
        allowed_methods={"GET", "HEAD", "PUT", "PATCH", "DELETE"},
        max_rate_limit_wait=max_wait,
        secondary_rate_wait=secondary_wait,
    )


@dataclass
class Budget:
    """Requests that one event may cost. Conditional answers (304) are free of GitHub's limit and are not counted."""

    limit: int = 200
    used: int = 0

    def spend(self, call: str) -> None:
        """Count one request.

        Raises:
            BudgetError: none is left.

        """
        if self.used >= self.limit:
            raise BudgetError(f"the event used up its {self.limit} requests before {call}")
        self.used += 1


@dataclass
class ETags:
    """Answers by address, so that an unchanged page costs nothing. Bounded; shared by the events of one process."""

    most: int = 2000
    kept: dict[str, tuple[str, str, dict[str, str]]] = field(default_factory=dict)  # url -> tag, body, headers

    def keep(self, url: str, tag: str, body: str, headers: dict[str, str]) -> None:
        """Remember an answer, forgetting the oldest one over the bound."""
        self.kept.pop(url, None)
        if len(self.kept) >= self.most:
            del self.kept[next(iter(self.kept))]
        self.kept[url] = (tag, body, {"link": headers.get("link", "")})


class GitHub:
    """One repository, seen with one token."""

    def __init__(
        self,
        repository: str,
        token: str | Auth.Auth,
        *,
        base_url: str = "https://api.github.com",
        retry: GithubRetry | None = None,
        pace: float = 1.0,  # seconds between writes, as GitHub's guide asks
        budget: Budget | None = None,
        etags: ETags | None = None,
    ) -> None:
        if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
            raise ToolError(f"{repository!r} is no repository: write owner/name")
        self.repository = repository
        self.budget = budget or Budget()
        self._etags = etags if etags is not None else ETags()
        self._local = (urlsplit(base_url).hostname or "") in _LOCAL
        self._pause = 1.0 if pace else 0.01
        self._github = Github(
            auth=Auth.Token(token) if isinstance(token, str) else token,
            base_url=base_url,
            retry=retry or transport_retry(),
            timeout=30,
            seconds_between_requests=0,
            seconds_between_writes=pace,
        )

    def close(self) -> None:
        """Close the connections."""
        self._github.close()

    # ---- one request

    def _send(self, verb: str, path: str, params: Json = None, body: Json = None, headers: Json = None) -> Json:
        call = f"{verb} {path.split('?', maxsplit=1)[0]}"
        self.budget.spend(call)
        url = path if path.startswith("/") else "/" + path
        if not url.startswith(("/rate_limit", "/user", "/repos/")):
            url = f"/repos/{self.repository}{url}"
        try:
            status, answer, text = self._github.requester.requestJson(verb, url, params, headers or {}, body)
        except RateLimitExceededException:
            raise
        except GithubException as e:
            raise GitHubError(e.status, _message(e.data), call) from e
        except requests.RequestException as e:
            raise GitHubError(0, type(e).__name__, call) from e
        if status >= 400:
            data = _loads(text)
            error = self._github.requester.createException(status, answer, data if isinstance(data, dict) else {})
            if isinstance(error, RateLimitExceededException) or (status == 429):
                raise RateLimitExceededException(status, data, answer)
            raise GitHubError(status, _message(data), call)
        return status, answer, text

    def _idempotent(self, verb: str, path: str, params: Json = None, body: Json = None, headers: Json = None) -> Json:
        try:
            return self._send(verb, path, params, body, headers)
        except RateLimitExceededException as e:
            raise GitHubError(e.status, "rate limit", f"{verb} {path}") from e

    def get(self, path: str, **params: Json) -> Json:
        """Read one object. An unchanged one comes from memory."""
        return _loads(self._get(path, params)[0])

    def _get(self, path: str, params: dict[str, Json]) -> tuple[str, dict[str, str]]:
        key = f"{path}?{json.dumps(params, sort_keys=True)}"
        kept = self._etags.kept.get(key)
        status, headers, text = self._idempotent("GET", path, params, None, {"If-None-Match": kept[0]} if kept else {})
        if status == 304 and kept:
            self.budget.used -= 1
            return kept[1], kept[2]
        if tag := headers.get("etag"):
            self._etags.keep(key, tag, text, headers)
        return text, headers

    def pages(self, path: str, key: str | None = None, most: int = 3000, **params: Json) -> Iterator[Json]:
        """Read a list to its end, a hundred at a time, at most `most` items; `key` says where in the answer it is."""
        params = {"per_page": 100, **params}
        page, seen = 1, 0
        while True:
            text, headers = self._get(path, {**params, "page": page})
            data = _loads(text)
            items = data[key] if key else data
            yield from items[: most - seen]
            seen += len(items)
            # A full page may have got a successor while its text, and so its tag and remembered Link, stayed the same.
            full = len(items) >= params["per_page"]
            if seen >= most or not items or not (full or _NEXT.search(headers.get("link", ""))):
                return
            page += 1

    def find(self, path: str, **params: Json) -> Json | None:
        """Read one object, or None if it is not there."""
        try:
            return self.get(path, **params)
        except GitHubError as e:
            if e.status in (404, 410):
                return None
            raise

    def patch(self, path: str, body: Json) -> Json:
        """Change an object; repeated by the transport if the answer is lost."""
        return _loads(self._idempotent("PATCH", path, None, body)[2])

    def put(self, path: str, body: Json) -> Json:
        """Write an object whole; repeated by the transport if the answer is lost."""
        return _loads(self._idempotent("PUT", path, None, body)[2])

    def delete(self, path: str) -> None:
        """Delete an object; one that is gone already is fine."""
        try:
            self._idempotent("DELETE", path)
        except GitHubError as e:
            if e.status not in (404, 410):
                raise

    def post(self, path: str, body: Json = None, *, done: Callable[[], Json | None], tries: int = 4) -> Json:
        """Make an object. `done` looks for it: it is asked before a POST whose answer was lost is sent again.

        Raises:
            GitHubError: refused, or still failing after `tries`.

        """
        for n in range(1, tries + 1):
            try:
                return _loads(self._send("POST", path, None, body)[2])
            except RateLimitExceededException as e:  # nothing was made: wait and send again
                if n == tries:
                    raise GitHubError(e.status, "rate limit", f"POST {path}") from e
                time.sleep(min(120.0, _wait_of(e, self._pause * 2**n)))
            except GitHubError as e:
                if e.status and e.status < 500:
                    raise
                if (made := done()) is not None:
                    return made
                if n == tries:
                    raise
                time.sleep(self._pause * 2 ** (n - 1))
        raise AssertionError("unreachable")

    # ---- logs and archives

    def location(self, path: str) -> str | None:
        """Where a log or an archive is to be fetched: the target of the redirect, or None if it is not there (yet)."""
        try:
            status, headers, _ = self._idempotent("GET", path)
        except GitHubError as e:
            if e.status in (404, 410):
                return None
            raise
        found = headers.get("location")
        return str(found) if status in (302, 307) and found else None

    def download(self, url: str, limit: int, tries: int = 3) -> bytes | None:
        """Fetch a blob without the token, at most `limit` bytes of it; goes on where a broken connection stopped.

        Returns None if it is not there. The address must be https (or this machine's).
        """
        address = urlsplit(url)
        if address.scheme != "https" and not (self._local and address.hostname in _LOCAL):
            raise GitHubError(0, f"refused to fetch a log over {address.scheme}", "GET log")
        got = bytearray()
        for n in range(1, tries + 1):
            try:
                headers = {"Range": f"bytes={len(got)}-"} if got else {}
                with requests.get(url, headers=headers, stream=True, timeout=30, allow_redirects=False) as r:
                    if r.status_code in (404, 410, 403, 401):
                        return None
                    if r.status_code not in (200, 206):
                        raise GitHubError(r.status_code, "blob", "GET log")
                    if got and r.status_code == 200:  # no ranges here: from the beginning
                        got.clear()
                    for chunk in r.iter_content(1 << 16):
                        got += chunk[: limit - len(got)]
                        if len(got) >= limit:
                            return bytes(got)
                return bytes(got)
            except (requests.RequestException, GitHubError) as e:
                if n == tries:
                    raise e if isinstance(e, GitHubError) else GitHubError(0, type(e).__name__, "GET log") from e
                time.sleep(self._pause * n)
        raise AssertionError("unreachable")


def _message(data: Json) -> str:
    return str(data.get("message", ""))[:200] if isinstance(data, dict) else ""


def _loads(text: str) -> Json:
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _wait_of(error: RateLimitExceededException, otherwise: float) -> float:
    """Seconds that GitHub asks to wait: Retry-After, else the reset of the primary limit, else ours."""
    headers = {k.lower(): v for k, v in (error.headers or {}).items()}
    if (after := headers.get("retry-after", "")).isdecimal():
        return float(after)
    if headers.get("x-ratelimit-remaining") == "0" and headers.get("x-ratelimit-reset", "").isdecimal():
        return max(0.0, float(headers["x-ratelimit-reset"]) - time.time()) + 1
    return otherwise
