"""Keeps run folders in the archive that `$MATRIX_ARCHIVE` names, by policy. Away: they wait and are sent later."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from matrix.errors import UsageError
from matrix.history.archive import PACKED, Archive, ArchiveAwayError, Item, open_archive
from matrix.history.packing import pack, unpack
from matrix.records import RunRecord

WAITING = "archive"  # folder of the spool
_MOST_WAITING = 20 << 30  # bytes; an archive that is away for long must not fill the disk of its runner


def name_of(run: RunRecord) -> str:
    """Return the name under which a run is kept: `owner/repository/2026-12/RUN.tar.zst`."""
    repository = re.sub(r"[^\w./-]+", "_", run.repository or "local").strip("/.") or "local"
    return f"{repository.replace('..', '_')}/{run.started[:7]}/{run.id}{PACKED}"


def keep(run: RunRecord, folder: Path, spool: Path, env: Mapping[str, str]) -> str | None:
    """Pack a finished run and send it, with all that waits; return a warning where that was not possible."""
    where = env.get("MATRIX_ARCHIVE")
    if not where:
        return None
    waiting = spool / WAITING
    held = sum(p.stat().st_size for p in waiting.rglob(f"*{PACKED}")) if waiting.is_dir() else 0
    if held > _MOST_WAITING:
        return f"archive: {held >> 30} GiB wait in {waiting}; the logs of this run stay in {folder} only"
    pack(folder, waiting / name_of(run), env)
    try:
        send(open_archive(where), waiting)
    except (ArchiveAwayError, UsageError) as e:
        return f"{e.message}; the logs wait in {waiting} and are sent with the next run"
    return None


def send(archive: Archive, waiting: Path) -> int:
    """Send every packed run that waits, the oldest first; return how many.

    Raises:
        ArchiveAwayError: the archive does not answer; what was not sent stays.

    """
    paths = sorted(waiting.rglob(f"*{PACKED}"), key=lambda p: p.stat().st_mtime)
    sent = 0
    for path in (p for p in paths if not p.name.startswith(".")):
        archive.put(str(path.relative_to(waiting)), path)
        path.unlink(missing_ok=True)
        sent += 1
    return sent


def expired(items: Sequence[Item], *, now: float, max_age: float | None, max_size: int | None) -> list[Item]:
    """Choose what to remove: what is older than `max_age` seconds; then the oldest until `max_size` bytes stay."""
    old = [i for i in items if max_age is not None and now - i.at > max_age]
    rest = sorted((i for i in items if i not in old), key=lambda i: (i.at, i.name))
    total = sum(i.size for i in rest)
    for item in rest:
        if max_size is None or total <= max_size:
            break
        old.append(item)
        total -= item.size
    return sorted(old, key=lambda i: (i.at, i.name))


def fetch(archive: Archive, name: str, folder: Path) -> None:
    """Bring a kept run back into a folder that is not there yet.

    Raises:
        UsageError: the folder is there.
        GoneError: the archive holds no such run.

    """
    if folder.exists():
        raise UsageError(f"{folder} is there already", "matrix show reads it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    packed, tmp = folder.with_name(f".{folder.name}{PACKED}"), folder.with_name(f".{folder.name}.coming")
    try:
        archive.get(name, packed)
        unpack(packed, tmp)
        tmp.replace(folder)
    finally:
        packed.unlink(missing_ok=True)
