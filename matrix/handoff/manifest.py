"""Checkpoints that carry a manifest.json with the size, and if wanted the digest, of each of their files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from matrix.handoff.problem import Problem, size

NAME = "manifest.json"


def present(names: frozenset[str]) -> bool:
    """Tell whether a folder has a manifest."""
    return NAME in names


def check_folder(
    folder: Path, names: frozenset[str], shown: Callable[[Path], str], *, digests: bool = False
) -> Iterator[Problem]:
    """Check that each file of the manifest is there in its size; with `digests` its content too.

    The manifest is `{"files": {"name": {"bytes": 123, "sha256": "…"}}}`; the digest may be absent.
    """
    if not present(names):
        return
    file = folder / NAME
    try:
        parsed = json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return  # named where the files are checked one by one
    files = parsed.get("files") if isinstance(parsed, dict) else None
    if not isinstance(files, dict):
        return  # another program's manifest
    for name, info in sorted(files.items()):
        if Path(name).is_absolute() or ".." in Path(name).parts:
            yield Problem(shown(file), f"names {name[:200]!r}, which lies outside the folder")
            continue
        wanted = info if isinstance(info, dict) else {}
        length = size(folder / name)
        said = wanted.get("bytes", wanted.get("size"))
        if isinstance(length, str):
            yield Problem(shown(folder / name), f"{length}, though {NAME} names it")
        elif isinstance(said, int) and length != said:
            yield Problem(shown(folder / name), f"{length} bytes where {NAME} says {said}")
        elif digests and isinstance(wanted.get("sha256"), str) and _sha256(folder / name) != wanted["sha256"]:
            yield Problem(shown(folder / name), f"its SHA-256 is not the one in {NAME}")


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
