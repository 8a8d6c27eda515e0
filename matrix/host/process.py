"""The process table, read from /proc: who descends from whom, who carries a job's tag, and how to end them.

Imported by the supervisor, whose start is part of every job's overhead: standard library only, and little of it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterable

# Every process of a job carries this variable. A run inside a job adds its own tag behind the outer one, so that
# both find their processes.
TAG = "MATRIX_TAG"
TAG_SEPARATOR = ":"

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Process:
    """One line of the process table. `start` (clock ticks since boot) tells a reused pid from the old one."""

    __slots__ = ("pgid", "pid", "ppid", "sid", "start", "state")

    def __init__(self, pid: int, fields: list[bytes]) -> None:
        """Take the fields of /proc/PID/stat from the third, the state, on."""
        self.pid = pid
        self.state = fields[0].decode()
        self.ppid, self.pgid, self.sid = (int(f) for f in fields[1:4])
        self.start = int(fields[19])

    @property
    def alive(self) -> bool:
        """Whether it still runs; a zombie only waits to be counted."""
        return self.state not in "ZX"


def read(pid: int) -> Process | None:
    """Look one process up; None when there is none of that pid."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            # The name stands in parentheses and may hold anything, so read from the last one.
            fields = f.read().rsplit(b")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return Process(pid, fields)


def table() -> dict[int, Process]:
    """Return the whole process table by pid."""
    found = (read(int(name)) for name in os.listdir("/proc") if name.isdecimal())
    return {p.pid: p for p in found if p is not None}


def descendants(roots: Iterable[int], processes: dict[int, Process]) -> list[Process]:
    """List the living processes below `roots`, parents first, without the roots."""
    children: dict[int, list[Process]] = {}
    for p in processes.values():
        children.setdefault(p.ppid, []).append(p)
    found: list[Process] = []
    seen = set(roots)
    queue = list(seen)
    while queue:
        for p in children.get(queue.pop(0), []):
            if p.pid not in seen:
                seen.add(p.pid)
                queue.append(p.pid)
                if p.alive:
                    found.append(p)
    return found


def environment(pid: int) -> dict[bytes, bytes] | None:
    """Return the environment that a process was started with; None when it may not be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            entries = f.read().split(b"\0")
    except OSError:
        return None
    return dict(e.split(b"=", 1) for e in entries if b"=" in e)


def tags(pid: int) -> list[str]:
    """List the job tags that a process carries, the outermost first."""
    value = (environment(pid) or {}).get(TAG.encode(), b"")
    return os.fsdecode(value).split(TAG_SEPARATOR) if value else []


def add_tag(tag: str, inherited: str | None) -> str:
    """Return the value of the tag variable for a job started where `inherited` is its value."""
    return f"{inherited}{TAG_SEPARATOR}{tag}" if inherited else tag


def of_job(tag: str, sid: int | None = None) -> list[Process]:
    """List the living processes that carry `tag` or stand in session `sid`, and all that descend from these."""
    processes = table()
    roots = [p for p in processes.values() if p.alive and ((sid and p.sid == sid) or tag in tags(p.pid))]
    known = {p.pid for p in roots}
    return roots + [p for p in descendants(known, processes) if p.pid not in known]


def orphans(ours: set[int]) -> list[Process]:
    """List the living processes that became children of this one when their parents died, and their descendants.

    These are its children in other sessions than its own, without those of `ours`, which it has started itself.
    """
    processes = table()
    me = processes[os.getpid()]
    roots = [p for p in processes.values() if p.ppid == me.pid and p.sid != me.sid and p.pid not in ours and p.alive]
    return roots + descendants({p.pid for p in roots}, processes)


def of_session(sid: int, start: int) -> list[Process]:
    """List the living processes of the session whose leader was process `sid`, started at `start`."""
    if not sid:
        return []
    processes = table()
    leader = processes.get(sid)
    if leader is not None and leader.start != start:
        return []  # another session by now
    return [p for p in processes.values() if p.sid == sid and p.alive]


def send(process: Process, sig: int) -> None:
    """Send a signal to this very process, never to another that got its pid since."""
    try:
        fd = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        now = read(process.pid)
        if now is not None and now.start == process.start:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(fd, sig)
    finally:
        os.close(fd)


def kill_all(
    find: Callable[[], list[Process]], limit: float, pause: Callable[[float], object] = time.sleep
) -> list[int]:
    """KILL what `find` returns until it returns nothing, for at most `limit` seconds; return the pids that are left.

    `pause` is called between the rounds: a parent reaps its children there.
    """
    until = time.monotonic() + limit
    while found := find():
        for p in found:
            send(p, signal.SIGKILL)
        if time.monotonic() >= until:
            return [p.pid for p in found]
        pause(0.01)
    return []


def reap(pids: Iterable[int]) -> None:
    """Collect the exit of those of `pids` that are children of this process and have ended."""
    for pid in pids:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def become_subreaper() -> None:
    """Make this process the parent of every descendant whose own parent dies (Linux prctl(2))."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent of this process dies."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno))
