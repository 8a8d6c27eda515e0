"""The process that watches tests from outside: stacks, then a signal, then KILL.

Nothing inside a process can end a call that holds the GIL. Standard library and `matrix.host` only: one runs beside
every process that runs tests. It reads lines of JSON, `{"test": ID, "limit": SECONDS}` and `{}` for the end of a test,
and ends with its standard input.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from matrix.host import process, stacks

END = signal.SIGRTMIN + 10  # asks the watched process to fail its test by itself
GRACE = 5.0  # seconds that it gets for that, at most: never more than the test had
_STACKS_LIMIT = 10.0  # seconds that all stacks together may take
_OWN_STACKS_LIMIT = 1.0  # seconds that a process gets to write its own
_KILL_LIMIT = 5.0


def main() -> None:
    """Watch process argv[1]; a hang goes to the file argv[2], the process writes its own stacks to the file argv[3]."""
    pid, hang, own, py_spy = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4] or None
    watched = process.read(pid)
    deadline: float | None = None
    test, limit, killing = "", 0.0, False
    buffer = b""
    while watched is not None:
        wait = None if deadline is None else max(0.0, deadline - time.monotonic())
        if select.select([0], [], [], wait)[0]:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                test, limit = order.get("test", ""), order.get("limit", 0.0)
                deadline, killing = (time.monotonic() + limit if test else None), False
        elif not killing:
            text = _stacks(watched, own, py_spy)
            _write(hang, {"test": test, "limit": limit, "stacks": text})
            process.send(watched, END)
            deadline, killing = time.monotonic() + min(GRACE, limit), True
        else:
            _say(hang)
            process.kill_all(lambda: _below(pid), _KILL_LIMIT)
            process.send(watched, signal.SIGKILL)
            return


def _stacks(watched: process.Process, own: str, py_spy: str | None) -> str:
    """Collect the stacks of the process, and of the Python processes that it started."""
    found: list[str] = []
    stacks.dump(
        lambda: [watched, *_below(watched.pid)], "", py_spy, _STACKS_LIMIT, lambda text: found.append(str(text))
    )
    if not any(str(watched.pid) in text and "no Python stacks" not in text for text in found):
        before = _size(own)
        process.send(watched, stacks.SIGNAL)
        until = time.monotonic() + _OWN_STACKS_LIMIT
        while time.monotonic() < until and _size(own) == before:
            time.sleep(0.02)
        time.sleep(0.05)
        with open(own, "rb") as f:  # noqa: PTH123 -- no pathlib: its import is most of the start
            f.seek(before)
            found.insert(0, f.read().decode(errors="replace"))
    return "\n".join(found)


def _below(pid: int) -> list[process.Process]:
    """List what the watched process has started, but for this process, which it has started too."""
    return [p for p in process.descendants([pid], process.table()) if p.pid != os.getpid()]


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116
    except OSError:
        return 0


def _write(path: str, document: dict[str, object]) -> None:
    with open(path + ".new", "w", encoding="utf-8") as f:  # noqa: PTH123
        json.dump(document, f)
    os.replace(path + ".new", path)  # noqa: PTH105


def _say(path: str) -> None:
    """Say it on standard error too: without xdist nobody is left to report it."""
    with open(path, encoding="utf-8") as f:  # noqa: PTH123
        said = json.load(f)
    line = f"{said['test']}: did not end within {said['limit']:g} s and could not be interrupted; its process is killed"
    sys.stderr.write(f"\nmatrix: {line}\n{said['stacks']}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
