"""Does a change concern a job that names no paths? By the imports of what it runs; where these cannot decide, yes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.spec.imports import Reach, reach
from matrix.spec.job import Job

if TYPE_CHECKING:
    from matrix.spec.load import Spec

# Files that no program reads when it runs.
_PROSE = (".md", ".rst", "LICENSE", "CODEOWNERS", ".gitignore")


def by_imports(spec: Spec, job: Job, changed: Sequence[str]) -> str | None:
    """Say why changed files concern a job, or None where they do not."""
    told = [name for name in changed if not name.endswith(_PROSE)]
    other = [name for name in told if not name.endswith(".py")]
    if other:
        return f"{other[0]} changed, and imports cannot tell who reads it"
    files = _python_files(spec.root)
    entries = _entries(spec.root, job, files)
    if not entries:
        return "names no Python file, so any change concerns it" if told else None
    found = _reach(spec.root, files, tuple(told))
    if found.unsure:
        return f"any change concerns it: {found.unsure}"
    for entry in entries:
        if entry in told:
            return f"{entry} changed"
        if entry in found.of:
            return f"{entry} imports {found.of[entry]}, which changed"
    return None


def _entries(root: Path, job: Job, files: Sequence[str]) -> list[str]:
    """Python files that a job's command names: scripts, tests, all files of folders, modules after -m."""
    base = Path(job.cwd)
    out: list[str] = []
    for word in " ".join(job.command).replace("'", " ").replace('"', " ").split():
        name = (base / word.split("::")[0]).as_posix().removeprefix("./")
        module = word.replace(".", "/")
        out += [f for f in (name, f"{module}.py", f"{module}/__main__.py") if f in files]
        if (root / name).is_dir() and name not in ("", "."):
            out += [f for f in files if f.startswith(f"{name}/")]
    return list(dict.fromkeys(out))


@lru_cache(maxsize=4)
def _python_files(root: Path) -> tuple[str, ...]:
    done = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.py"],
        capture_output=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return tuple(name for name in done.stdout.decode(errors="surrogateescape").split("\0") if name)


@lru_cache(maxsize=4)
def _reach(root: Path, files: tuple[str, ...], changed: tuple[str, ...]) -> Reach:
    return reach(root, files, changed)
