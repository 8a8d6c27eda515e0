"""Companion repositories: checked out beside the matrix at a fixed commit, which is part of the run's identity."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from matrix.errors import ToolError
from matrix.records import RunRecord
from matrix.spec.job import Companion, Job

_LIMIT = 600.0  # seconds for one git call


def check_out(jobs: Sequence[Job], root: Path, record: RunRecord) -> dict[str, Path]:
    """Check out what the jobs name; return the folders by REPO@REF and enter the commits in the record.

    A commit that the record already has is used again, so that a resumed run sees the same code.

    Raises:
        ToolError: a repository or its ref cannot be had.

    """
    wanted = {f"{c.repo}@{c.ref}": c for job in jobs for c in job.companions}
    places = {}
    for key, companion in wanted.items():
        store = root / ".matrix" / "companions" / _safe(companion.repo)
        commit = record.companions.get(key) or _fetch(companion, root, store)
        places[key] = _tree(store, commit)
        record.companions[key] = commit
    return places


def address(repo: str, root: Path) -> str:
    """Return what git fetches from: a URL or a local path as it is, OWNER/NAME on GitHub."""
    local = root / Path(repo).expanduser()
    if repo.startswith((".", "/", "~")) or local.is_dir():
        return str(local.resolve())
    return f"https://github.com/{repo}" if re.fullmatch(r"[\w.-]+/[\w.-]+", repo) else repo


def _fetch(companion: Companion, root: Path, store: Path) -> str:
    if not (store / "git").is_dir():
        store.mkdir(parents=True, exist_ok=True)
        _git(store, "init", "--quiet", "--bare", "git")
    git = store / "git"
    _git(git, "fetch", "--quiet", "--no-tags", "--depth=1", "--", address(companion.repo, root), companion.ref)
    return _git(git, "rev-parse", "FETCH_HEAD^{commit}").strip()


def _tree(store: Path, commit: str) -> Path:
    """Return a folder with the files of a commit, whole or not at all."""
    tree = store / commit
    if not tree.is_dir():
        git = store / "git"
        half = store / f".{commit}.half"
        _git(git, "worktree", "prune")
        _git(git, "worktree", "add", "--quiet", "--force", "--detach", str(half), commit)
        _git(git, "worktree", "move", str(half), str(tree))
    return tree


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True, text=True, errors="replace", check=False, timeout=_LIMIT, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        raise ToolError("git is not installed, and jobs name companion repositories") from None
    except subprocess.TimeoutExpired:
        raise ToolError(f"git {arguments[0]} did not answer within {_LIMIT:.0f} s") from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ToolError(
            f"companion: git {' '.join(arguments)}: {said}", "correct `with` in matrix.yaml, or the network"
        )
    return done.stdout


def _safe(repo: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", repo).strip("-.") or "repository"
