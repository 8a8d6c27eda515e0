"""Where a run comes from: repository, branch, pull request, author, changed files; from the environment and git."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Origin:
    """What is known of where a run comes from; None where nothing says so."""

    repository: str | None = None
    branch: str | None = None
    pr: int | None = None
    author: str | None = None
    base: str | None = None  # merge base with the base branch, of a pull request or of a branch of its own
    changed_files: list[str] | None = None


def repository(env: Mapping[str, str]) -> str | None:
    """Return the repository that a run here belongs to, OWNER/NAME; None where nothing says so."""
    return env.get("MATRIX_REPOSITORY") or env.get("GITHUB_REPOSITORY")


def origin(root: Path, env: Mapping[str, str]) -> Origin:
    """Find out where a run in `root` comes from.

    `MATRIX_PR`, `MATRIX_AUTHOR`, `MATRIX_BRANCH`, `MATRIX_REPOSITORY` and `MATRIX_BASE` speak first, for CI services
    other than GitHub Actions.
    """
    reference = re.fullmatch(r"refs/pull/(\d+)/(?:merge|head)", env.get("GITHUB_REF", ""))
    number = env.get("MATRIX_PR") or (reference[1] if reference else "")
    pr = int(number) if number.isdecimal() else None
    base = env.get("MATRIX_BASE")
    if base is None and env.get("GITHUB_BASE_REF"):
        base = _git(root, "merge-base", "HEAD", f"origin/{env['GITHUB_BASE_REF']}")
    branch = env.get("MATRIX_BRANCH") or env.get("GITHUB_HEAD_REF") or env.get("GITHUB_REF_NAME")
    if branch is None and pr is None and (branch := _git(root, "symbolic-ref", "--quiet", "--short", "HEAD")):
        base = base or _forked(root, branch)
    return Origin(
        repository=repository(env),
        branch=branch,
        pr=pr,
        author=env.get("MATRIX_AUTHOR") or env.get("GITHUB_ACTOR"),
        base=base,
        changed_files=_changed(root, base) if base else None,
    )


def _forked(root: Path, branch: str) -> str | None:
    """Return the commit at which a branch left the repository's default one; None of that one itself, or if unknown."""
    remote = _git(root, "symbolic-ref", "--quiet", "--short", "refs/remotes/origin/HEAD")
    configured = _git(root, "config", "--get", "init.defaultBranch")
    for name in filter(None, (remote, configured, "main", "master")):
        if name.removeprefix("origin/") == branch:
            return None
        if _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"):
            return _git(root, "merge-base", "HEAD", name)
    return None


def _changed(root: Path, base: str) -> list[str] | None:
    # A renamed file counts under both of its names: a traceback may hold either.
    out = _git(root, "diff", "--name-status", "--find-renames", "-z", base, "HEAD")
    if out is None:
        return None
    names: set[str] = set()
    fields = iter(out.split("\0"))
    for status in fields:
        if not status:
            continue
        names.add(next(fields))
        if status[0] in "RC":
            names.add(next(fields))
    return sorted(names)


def _git(root: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *args], capture_output=True, text=True, errors="backslashreplace", check=False
        )
    except OSError:  # no git here
        return None
    return done.stdout.strip("\n") if done.returncode == 0 else None


def named_files(text: str, changed: list[str]) -> frozenset[str]:
    """Find the changed files that a piece of log names: by path, by dotted module, or as the file of a failing test.

    A bare file name is not enough: every repository has many an `__init__.py` and `utils.py`.
    """
    found = set()
    for path in changed:
        spelled = [path, path.replace("/", "\\")]
        if path.endswith(".py"):
            spelled.append(path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
        # Packages are often installed from src/: the traceback then starts below it.
        spelled += [path.removeprefix(top) for top in ("src/", "python/") if path.startswith(top)]
        if any(re.search(r"[/.\\]", s) and _whole(s, text) for s in spelled):
            found.add(path)
    return frozenset(found)


def _whole(name: str, text: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) is not None
