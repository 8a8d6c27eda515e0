"""The folder of a run: where it is, how it is found again, and that one runner at a time works in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from matrix.errors import UsageError

RECORD = "run.json"
LOCK = ".lock"  # held by the runner at work
# What runs leave in .matrix; rules and the quarantine stand beside it and belong to the repository.
_IGNORED = "".join(f"/{name}\n" for name in ("runs/", "times/", "spool/", "bisect/", "history.sqlite*", ".gitignore"))


def runs_folder(root: Path) -> Path:
    """Return the folder of all runs of the repository whose matrix stands in `root`."""
    return root / ".matrix" / "runs"


def repository_root() -> Path:
    """Return the folder of the nearest matrix from the working folder upward, else the working folder itself."""
    here = Path.cwd()
    return next((p for p in (here, *here.parents) if (p / "matrix.yaml").is_file()), here)


def new_id() -> str:
    """Return the id of a new run: its time in UTC, and four hex digits that tell runs of one second apart."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(2)


def ignore_leavings(root: Path) -> None:
    """Keep what runs leave in `.matrix` out of git."""
    ignore = root / ".matrix" / ".gitignore"
    if not ignore.exists():
        ignore.write_text(_IGNORED, encoding="utf-8")


def create(root: Path) -> Path:
    """Make the folder of a new run; what runs leave in `.matrix` is kept out of git."""
    runs = runs_folder(root)
    runs.mkdir(parents=True, exist_ok=True)
    ignore_leavings(root)
    while True:
        folder = runs / new_id()
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
            return folder


def find(root: Path, text: str) -> Path:
    """Find a run by its id, the beginning of one, `last`, or the path of its folder or record.

    Raises:
        UsageError: there is none, or there are several.

    """
    root = root.resolve()  # jobs have other working folders, on Slurm `/`: a relative path would lead them astray
    path = Path(text)
    for folder in (path, path.parent):
        if "/" in text and (folder / RECORD).is_file():
            return folder.resolve()
    known = sorted(p.parent for p in runs_folder(root).glob(f"*/{RECORD}"))
    found = known[-1:] if text == "last" else [p for p in known if p.name.startswith(text)]
    if len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"run {text!r} may be {found[0].name} or {found[1].name}", "write more of its id")
    if not known:
        raise UsageError(f"no run {text!r}: there is none in {runs_folder(root)} yet", "matrix run makes one")
    said = f"no run {text!r} in {runs_folder(root)}; the last is {known[-1].name}"
    raise UsageError(said, "matrix show lists the runs that are there")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a run's folder: one runner at a time changes its record.

    Raises:
        UsageError: another runner is at work in it.

    """
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(fd, 32, 0).decode(errors="replace").strip()
            raise UsageError(f"run {folder.name} is going on (process {owner})", "wait for it, or end it") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)
