"""Finds the feedback that was kept: in the history's database, or in a branch of the repository at hand."""

from __future__ import annotations

import subprocess
from pathlib import Path

from matrix.errors import UsageError
from matrix.history.feedback import BRANCH, FILE, Feedback, given_since, read_lines
from matrix.history.store import open_store


def read_feedback(url: str | None, root: Path, *, since: float = 0.0) -> list[Feedback]:
    """Return what was said since a time, oldest first: from the database at `url`, else from the branch.

    Raises:
        UsageError: neither a database was named nor is the branch there.
        StoreAwayError: the database cannot be reached.

    """
    if url is None:
        return sorted((f for f in read_lines(_branch(root)) if f.at >= since), key=lambda f: (f.at, f.id))
    store = open_store(url)
    try:
        with store.begin() as c:
            return given_since(c, since)
    finally:
        store.close()


def _branch(root: Path) -> str:
    for ref in (f"origin/{BRANCH}", BRANCH):
        done = subprocess.run(
            ["git", "-C", str(root), "show", f"{ref}:{FILE}"],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode == 0:
            return done.stdout
    raise UsageError(
        f"no feedback here: there is no branch {BRANCH}, and no database was named",
        f"fetch it with `git fetch origin {BRANCH}:{BRANCH}`, or name the database with --db or MATRIX_HISTORY",
    )
