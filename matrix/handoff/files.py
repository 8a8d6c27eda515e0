"""Says whether the files that a job declares are there: each pattern matches, and nothing matched is empty."""

from __future__ import annotations

import glob
import os
from pathlib import Path

from matrix.handoff.problem import Problem, half_written, lfs_pointer, size

MAX_FILES = 100_000


def check(pattern: Path) -> list[Problem]:
    """Return what is wrong with the files that match a path or glob (`**` crosses folders)."""
    matches = [pattern] if pattern.exists() else [Path(p) for p in sorted(glob.glob(str(pattern), recursive=True))]  # noqa: PTH207
    whole = [m for m in matches if not half_written(m.name)]
    if not whole:
        unfinished = f", only {matches[0].name}, which was still being written" if matches else ""
        return [Problem(str(pattern), ("matches no file" if _is_glob(pattern) else "is not there") + unfinished)]
    problems: list[Problem] = []
    for match in whole[:MAX_FILES]:
        problems += _check_folder(match) if match.is_dir() else _check_file(match)
    return problems


def _is_glob(pattern: Path) -> bool:
    return glob.has_magic(str(pattern))


def _check_folder(folder: Path) -> list[Problem]:
    for _, _, names in os.walk(folder):
        if any(not half_written(n) for n in names):
            return []
    return [Problem(str(folder), "is an empty folder")]


def _check_file(file: Path) -> list[Problem]:
    length = size(file)
    if isinstance(length, str):
        return [Problem(str(file), length)]
    if length == 0:
        return [Problem(str(file), "is empty")]
    try:
        pointer = lfs_pointer(file, length)
    except OSError as e:
        return [Problem(str(file), f"cannot be read: {e.strerror}")]
    return [Problem(str(file), pointer)] if pointer else []
