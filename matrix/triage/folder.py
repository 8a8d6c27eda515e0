"""A folder of rank logs: one diagnosis, with the rank that failed first.

Launchers blame the rank that they see fail, which is often a neighbour of the one that failed (its collective loses a peer). So
every rank's own log is read, and what only tells of a lost peer or of the launcher's TERM is set aside.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from matrix.errors import UsageError

MAX_FILES = 4096
_RANK_FILE = (
    re.compile(r"workerlog\.(\d+)$"),
    re.compile(
        r"(?:rank|worker|trainer|proc(?:ess)?|local_rank|node|task|gpu|job|log)s?[._-]?(\d+)(?:[._-]?(?:stdout|stderr|out|err|log|txt))*(?:\.(?:gz|zst))?$",
        re.IGNORECASE,
    ),
    re.compile(r"(?:\w+[._-])?(?:rank|worker|trainer)[._-]?(\d+)\b.*", re.IGNORECASE),
    re.compile(r"(?:std(?:out|err)|log|output)[._-](\d+)(?:\.\w+)*$", re.IGNORECASE),
    re.compile(r"(\d+)(?:\.(?:log|txt|out|err|stderr|stdout))+(?:\.(?:gz|zst))?$"),
)
_STREAM_FILE = re.compile(r"(?:std(?:out|err)|out|err|output|log)(?:\.(?:log|txt))?(?:\.(?:gz|zst))?$", re.IGNORECASE)
_RANK_FOLDER = re.compile(r"(?:(?:rank|worker|trainer|proc|local_rank|task)[._-]?)?(\d+)$", re.IGNORECASE)
_LAUNCHER_FILE = re.compile(r"launch|default\.|master|driver|agent|torchrun|main|job|console|run|slurm", re.IGNORECASE)
_EXIT_FILE = re.compile(
    r"(?:launcher_|launch_|job_)?(?:exit_?code|exit_?status|returncode|rc)(?:\.txt)?$", re.IGNORECASE
)
_NO_LOG = re.compile(
    r"\.(?:json|ya?ml|toml|py|sh|pt|pth|bin|safetensors|pdparams|npz|png|html|xml|csv|tsv|md|lock|pid|cfg|ini|env)$|^(?:envlog|backup_env)\b|^\.",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class RankFile:
    """One log of a folder."""

    path: Path
    name: str  # relative to the folder
    rank: int | None  # None for the launcher's own output
    attempt: int  # of an elastic launcher that tries again


@dataclass(frozen=True, slots=True)
class Folder:
    """The logs of one job."""

    files: tuple[RankFile, ...]
    exit_code: int | None


def read_folder(root: Path) -> Folder:
    """Find rank logs and launcher logs below `root`; an elastic launcher's last attempt counts. Raises UsageError if there is none."""
    found: list[RankFile] = []
    code: int | None = None
    paths = sorted(p for p in root.rglob("*") if p.is_file())[:MAX_FILES]
    for path in paths:
        if _EXIT_FILE.match(path.name) and path.stat().st_size < 64:
            text = path.read_text("utf-8", "replace").strip()
            code = int(text) if re.fullmatch(r"-?\d+", text) else code
            continue
        if _NO_LOG.search(path.name) or (path.stat().st_size == 0 and not any(p.match(path.name) for p in _RANK_FILE)):
            continue
        name = str(path.relative_to(root))
        found.append(RankFile(path, name, _rank(root, path), _attempt(name)))
    if not found:
        raise UsageError(f"{root}: no log in this folder", "give a folder that holds rank logs, such as workerlog.0")
    last = max(f.attempt for f in found)
    return Folder(tuple(f for f in found if f.rank is None or f.attempt == last), code)


def _rank(root: Path, path: Path) -> int | None:
    for pattern in _RANK_FILE:
        if found := pattern.match(path.name):
            return int(found[1])
    if _STREAM_FILE.match(path.name) and path.parent != root and (found := _RANK_FOLDER.match(path.parent.name)):
        return int(found[1])
    return None


def _attempt(name: str) -> int:
    found = re.search(r"(?:attempt|restart)[._-]?(\d+)", name)
    return int(found[1]) if found else 0
