"""Where does every Python process of a job hang? Asked before the job is ended at its limit.

py-spy reads the stacks from outside where it may trace. Elsewhere the process writes them itself: faulthandler was
registered in it by the injected sitecustomize. A signal goes only to a process that has a handler for it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

from matrix.host import process

SIGNAL = signal.SIGRTMIN + 9
_ONE_LIMIT = 5.0  # seconds py-spy gets for a process
_ANSWER_LIMIT = 1.0  # seconds a process gets to begin writing its stacks
_QUIET = 0.05  # seconds without a further byte that end an answer


def dump(
    find: Callable[[], list[process.Process]],
    stacks_file: str,
    py_spy: str | None,
    limit: float,
    write: Callable[[str], object],
) -> None:
    """Write the stacks of every Python process that `find` returns, a block of text each, within `limit` seconds."""
    until = time.monotonic() + limit
    for p in find():
        name = f"process {p.pid} ({command_line(p.pid)})"
        if not is_python(p.pid):
            write(f"{name}: no Python process, state {p.state}{_kernel_wait(p.pid)}")
            continue
        left = until - time.monotonic()
        text = None
        if left > 0:
            text = (_by_py_spy(p, py_spy, min(left, _ONE_LIMIT)) if py_spy else None) or _by_signal(p, stacks_file)
        why = "it has no handler and may not be traced, or did not answer" if left > 0 else "no time left"
        write(f"Python stacks of {name}:\n{text}" if text else f"{name}: no Python stacks: {why}, state {p.state}")


def is_python(pid: int) -> bool:
    """Whether a process runs Python: by the name of its program, or the library that it has loaded."""
    try:
        if os.path.basename(os.readlink(f"/proc/{pid}/exe")).startswith(("python", "pypy")):
            return True
        with open(f"/proc/{pid}/maps", "rb") as f:
            return b"/libpython" in f.read()
    except OSError:
        return False


def command_line(pid: int, most: int = 200) -> str:
    """Return the command line of a process, cut to `most` characters."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            text = f.read(4 * most).replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "gone"
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[:most]}…"


def catches(pid: int, sig: int) -> bool:
    """Whether a process has a handler of its own for a signal (SigCgt of /proc/PID/status)."""
    try:
        with open(f"/proc/{pid}/status", "rb") as f:
            for line in f:
                if line.startswith(b"SigCgt:"):
                    return bool(int(line.split()[1], 16) >> (sig - 1) & 1)
    except (OSError, ValueError):
        pass
    return False


def _by_py_spy(p: process.Process, py_spy: str, limit: float) -> str | None:
    try:
        done = subprocess.run(
            [py_spy, "dump", "--pid", str(p.pid)],
            capture_output=True, timeout=limit, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace").rstrip() if done.returncode == 0 and done.stdout else None


def _by_signal(p: process.Process, stacks_file: str) -> str | None:
    """Have a process write its own stacks; None when it has no handler of ours or keeps silent."""
    environment = process.environment(p.pid) or {}
    if environment.get(b"MATRIX_STACKS") != os.fsencode(stacks_file) or not catches(p.pid, SIGNAL):
        return None
    before = _size(stacks_file)
    process.send(p, SIGNAL)
    until = time.monotonic() + _ANSWER_LIMIT
    size, changed = before, time.monotonic()
    while time.monotonic() < until:
        time.sleep(0.005)
        now = _size(stacks_file)
        if now != size:
            size, changed = now, time.monotonic()
        elif size > before and time.monotonic() - changed > _QUIET:
            break
    if size == before:
        return None
    with open(stacks_file, "rb") as f:
        f.seek(before)
        return f.read().decode(errors="replace").rstrip()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _kernel_wait(pid: int) -> str:
    """Say where in the kernel a process waits, where the kernel tells."""
    try:
        with open(f"/proc/{pid}/wchan") as f:
            place = f.read().strip()
    except OSError:
        return ""
    return f", waits in {place}" if place not in ("", "0") else ""
