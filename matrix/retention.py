"""Which runs to keep: a decision on values, and the removal of a run's folder."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from matrix.errors import ToolError, UsageError
from matrix.records import Status, load
from matrix.run.folder import LOCK, RECORD, locked

RED = frozenset({Status.FAILED, Status.TIMEOUT, Status.ERROR})
GREEN = frozenset({Status.PASSED})
_REMOVED = ".removed-"  # what a folder is called while it is taken away


@dataclass(frozen=True, slots=True)
class Kept:
    """A run on the disk, as far as its keeping goes."""

    folder: Path
    started: float  # seconds since the epoch
    size: int  # bytes on the disk
    jobs: dict[str, Status] = field(default_factory=dict)
    readable: bool = True


@dataclass(frozen=True, slots=True)
class Removal:
    """A run to remove, and why."""

    run: Kept
    why: str


def survey(runs: Path) -> list[Kept]:
    """Return the runs of a folder, the oldest first. A link is no run: what it leads to belongs to someone else."""
    found = []
    for entry in sorted(runs.iterdir()) if runs.is_dir() else []:
        if entry.is_symlink() or not entry.is_dir() or entry.name.startswith("."):
            continue
        found.append(_look(entry))
    return sorted(found, key=lambda run: (run.started, run.folder.name))


def _look(folder: Path) -> Kept:
    size = disk_use(folder)
    try:
        record = load(folder / RECORD)
        started = datetime.fromisoformat(record.started)
    except (ToolError, ValueError):
        return Kept(folder, folder.stat().st_mtime, size, readable=False)
    started = started if started.tzinfo else started.replace(tzinfo=UTC)
    return Kept(folder, started.timestamp(), size, {j.name: j.status for j in record.jobs})


def disk_use(folder: Path) -> int:
    """Return the bytes that a folder takes on the disk, links not followed."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in (*names, "."):
            try:
                total += os.lstat(Path(parent, name)).st_blocks * 512
            except OSError:
                continue  # went away meanwhile
    return total


def choose(runs: Sequence[Kept], *, now: float, max_age: float | None, max_size: int | None) -> list[Removal]:
    """Return the runs to remove, the oldest first.

    A run goes when it is older than `max_age` seconds, or, the oldest first, until all take at most `max_size` bytes.
    The last red and the last green run of each job stay whatever their age, and so does the newest run.
    """
    runs = sorted(runs, key=lambda run: (run.started, run.folder.name))
    protected = {run.folder for run in runs[-1:]}
    for kind in (RED, GREEN):
        last = {job: run.folder for run in runs for job, status in run.jobs.items() if status in kind}
        protected.update(last.values())
    removals = [
        Removal(run, f"older than {max_age / 86400:g} days")
        for run in runs
        if max_age is not None and now - run.started > max_age and run.folder not in protected
    ]
    gone = {r.run.folder for r in removals}
    total = sum(run.size for run in runs if run.folder not in gone)
    for run in runs:
        if max_size is None or total <= max_size:
            break
        if run.folder not in protected and run.folder not in gone:
            removals.append(Removal(run, "all runs together are too large"))
            total -= run.size
    return sorted(removals, key=lambda r: r.run.started)


def is_going(folder: Path) -> bool:
    """Tell whether a runner works in the folder at this moment. Only looks: no lock is made where there is none."""
    try:
        fd = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def remove(folder: Path) -> bool:
    """Remove a run's folder unless a runner works in it; return whether it is gone.

    It is renamed first, so that half of a run is never taken for one. Links in it are removed, not followed.

    Raises:
        ToolError: the folder cannot be removed.

    """
    doomed = folder.with_name(f"{_REMOVED}{folder.name}-{secrets.token_hex(3)}")
    try:
        with locked(folder):
            folder.rename(doomed)
    except UsageError:
        return False
    except OSError as e:
        raise ToolError(f"{folder} cannot be removed: {e.strerror}") from None
    _delete(doomed)
    return True


def sweep(runs: Path) -> None:
    """Finish removals that were broken off."""
    for entry in runs.glob(f"{_REMOVED}*") if runs.is_dir() else []:
        if not entry.is_symlink():
            _delete(entry)


def _delete(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as e:
        raise ToolError(f"{folder} cannot be removed: {e.strerror}", "give yourself the right to, then prune") from None
