"""Start the ranks of a job on this host, and say which one failed first.

The environment is that of paddle.distributed.launch. Its watcher looks every two seconds and blames the lowest rank
that has failed by then, which is often a neighbour of the one that did; here every exit is seen within milliseconds,
and a rank that only lost a peer says so by its exit code.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TextIO

from dsv4.errors import UsageError

LOST_PEER = 75
"""Exit code of a rank that fails because another is gone."""

GRACE = 3.0  # seconds for the others to fail by themselves and say so in their logs
STOP = 2.0  # seconds between TERM and KILL

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST_RANGE = 12000  # where connections begin lower than that, no ports are left below them to choose from


@dataclass
class Rank:
    """A started rank."""

    number: int
    process: subprocess.Popen[bytes]
    log: Path
    code: int | None = None
    order: int = 0  # in which exits were seen


@dataclass
class Outcome:
    """How a job ended: its exit code and, if it failed, the rank that did first."""

    code: int
    first: Rank | None = None
    hung: list[int] = field(default_factory=list)


def rank_environment(rank: int, endpoints: Sequence[str], base: Mapping[str, str]) -> dict[str, str]:
    """Environment of one rank, with the names that paddle.distributed.launch uses. Pure."""
    return {
        **base,
        "PADDLE_TRAINER_ID": str(rank),
        "PADDLE_TRAINERS_NUM": str(len(endpoints)),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints),
        "PADDLE_CURRENT_ENDPOINT": endpoints[rank],
        "PADDLE_LOCAL_RANK": str(rank),
        "PADDLE_RANK_IN_NODE": str(rank),
        "PADDLE_GLOBAL_RANK": str(rank),
        "PADDLE_GLOBAL_SIZE": str(len(endpoints)),
        "PADDLE_LOCAL_SIZE": str(len(endpoints)),
        "PADDLE_NNODES": "1",
        "FLAGS_selected_gpus": str(rank),
        "PYTHONUNBUFFERED": "1",
    }


def free_endpoints(count: int) -> list[str]:
    """Ports that are free now, held together until all are found so that no two are the same.

    They lie below those that the kernel gives to connections, one of which might take a port before its rank listens.
    """
    below = int(EPHEMERAL.read_text().split()[0]) if EPHEMERAL.exists() else 32768
    sockets: list[socket.socket] = []
    try:
        while len(sockets) < count:
            s = socket.socket()
            sockets.append(s)
            try:
                s.bind(("127.0.0.1", random.randrange(10000, below) if below > LOWEST_RANGE else 0))
            except OSError:
                sockets.pop().close()
        return [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]
    finally:
        for s in sockets:
            s.close()


def make_folder(path: Path, *, new: bool = False) -> bool:
    """Make a folder for logs; False where it has to be new and is there. Raises UsageError where none can be made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(exist_ok=not new)
    except OSError as e:
        if new and os.path.lexists(path):
            return False
        raise UsageError(f"{path}: no folder for logs: {e.strerror}", "name another one with --log-dir") from None
    return True


def launch(command: Sequence[str], ranks: int, log_dir: Path, out: TextIO = sys.stdout) -> Outcome:
    """Run `command` in `ranks` processes; `log_dir/workerlog.R` takes each one's output, rank 0's is shown as well.

    When a rank fails the others get a moment to end by themselves, then are stopped. `log_dir/launch.log` tells which
    failed first and how.
    """
    if log_dir.exists() and any(log_dir.glob("workerlog.*")):
        raise UsageError(f"{log_dir}: holds logs of another run", "name a new folder with --log-dir")
    make_folder(log_dir)
    job = _Job(command, ranks, log_dir, out)
    with job:
        job.start()
        outcome = job.wait()
    job.tell(outcome)
    return outcome


class _Job:
    def __init__(self, command: Sequence[str], ranks: int, log_dir: Path, out: TextIO) -> None:
        self._command, self._count, self._log_dir, self._out = list(command), ranks, log_dir, out
        self._ranks: list[Rank] = []
        self._stopping: int | None = None  # the signal that asked for it
        self._hurry = False  # a second Ctrl-C: do not wait for a checkpoint
        self._before: dict[int, Any] = {}
        self._echo: threading.Thread | None = None
        self._ended = threading.Event()

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._take)

    def __exit__(self, *_: object) -> None:
        for rank in self._ranks:
            if rank.process.poll() is None:
                rank.process.kill()
                rank.process.wait()
        self._ended.set()
        if self._echo:
            self._echo.join()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _take(self, number: int, _frame: object) -> None:
        self._hurry = self._stopping == number == signal.SIGINT
        self._stopping = number

    def start(self) -> None:
        endpoints = free_endpoints(self._count)
        for number in range(self._count):
            log = self._log_dir / f"workerlog.{number}"
            with log.open("wb") as file:
                process = subprocess.Popen(
                    self._command,
                    env=rank_environment(number, endpoints, os.environ),
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    preexec_fn=_as_rank,  # noqa: PLW1509 - two system calls; this process has no other thread yet
                )
            self._ranks.append(Rank(number, process, log))
        pids = {str(r.number): r.process.pid for r in self._ranks}
        (self._log_dir / "ranks.json").write_text(json.dumps(pids) + "\n")  # for whoever wants to look at a rank
        self._echo = threading.Thread(target=self._show, args=(self._ranks[0].log,))
        self._echo.start()

    def _show(self, log: Path) -> None:
        with log.open("rb") as file:
            while True:
                ended = self._ended.is_set()
                self._copy(file)
                if ended:
                    return
                self._ended.wait(0.1)

    def _copy(self, file: IO[bytes]) -> None:
        if text := file.read():
            with suppress(OSError):  # nobody reads our output any more: the job goes on
                self._out.write(text.decode("utf-8", "replace"))
                self._out.flush()

    def wait(self) -> Outcome:
        """Return when all ranks have ended."""
        seen = 0
        while any(r.code is None for r in self._ranks):
            if self._stopping is not None:  # first: a signal to all processes at once is no rank's failure
                return self._stopped()
            seen = self._poll(seen)
            if any(r.code for r in self._ranks):
                return self._after_failure(seen)
            time.sleep(0.02)
        return Outcome(0)

    def _poll(self, seen: int) -> int:
        for rank in self._ranks:
            if rank.code is None and (code := rank.process.poll()) is not None:
                seen += 1
                rank.code, rank.order = code, seen
        return seen

    def _after_failure(self, seen: int) -> Outcome:
        """Find the rank that failed first; those that hang show their stacks before they are stopped."""
        end = time.monotonic() + GRACE
        while any(r.code is None for r in self._ranks) and time.monotonic() < end:
            seen = self._poll(seen)
            time.sleep(0.02)
        alive = [r for r in self._ranks if r.code is None]
        failed = sorted((r for r in self._ranks if r.code), key=lambda r: r.order)
        own = [r for r in failed if r.code != LOST_PEER]
        # Without such a fault, one that ended as if all were done left the others alone.
        early = sorted((r for r in self._ranks if r.code == 0), key=lambda r: r.order)
        own = own or [r for r in early if r.order < failed[0].order]
        outcome = Outcome(3, own[0] if own else None)
        if not own:  # all that failed waited for one that is still there
            outcome.hung = [r.number for r in alive]
        first = outcome.first
        if first is not None and first.code is not None and first.code > 0:
            outcome.code = first.code
        self._stop(alive, stacks=not own)
        return outcome

    def _stopped(self) -> Outcome:
        """Pass on the signal that asked for it: ranks save and stop between two steps."""
        assert self._stopping is not None
        for rank in self._ranks:
            if rank.code is None:
                rank.process.send_signal(signal.SIGTERM)
        seen, end = 0, time.monotonic() + 60
        while any(r.code is None for r in self._ranks) and time.monotonic() < end and not self._hurry:
            seen = self._poll(seen)
            time.sleep(0.02)
        self._stop([r for r in self._ranks if r.code is None], stacks=False)
        return Outcome(128 + self._stopping)

    @staticmethod
    def _stop(ranks: Sequence[Rank], *, stacks: bool) -> None:
        if stacks:
            for rank in ranks:
                rank.process.send_signal(signal.SIGUSR1)  # faulthandler writes the stacks to its log
            time.sleep(0.5 if ranks else 0)
        for rank in ranks:
            rank.process.terminate()
        end = time.monotonic() + STOP
        for rank in ranks:
            try:
                rank.process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                rank.process.kill()
                rank.process.wait()

    def tell(self, outcome: Outcome) -> None:
        """Write how the job ended, in the words of paddle.distributed.launch where it has some."""
        lines = [f"launch: {self._count} ranks, logs in {self._log_dir}"]
        if outcome.code == 0:
            lines.append("launch: Pod completed, every rank ended with exit code 0")
        elif outcome.first is not None:
            first = outcome.first
            lines += [
                "launch: Pod failed",
                f"Container rank {first.number} status failed cmd {self._command} code {first.code} log {first.log}",
                f"launch: rank {first.number} failed first: {describe_code(first.code)}; its log is {first.log}",
            ]
        elif outcome.hung:
            names = ", ".join(map(str, outcome.hung))
            lines.append("launch: Pod failed")
            lines.append(f"launch: all others waited for rank {names}, which did not arrive; its log ends with stacks")
        elif outcome.code > 128:
            lines.append(f"launch: Terminating with signal {outcome.code - 128}")
        else:
            lines += ["launch: Pod failed", "launch: ranks lost one another; no rank failed by itself"]
        text = "\n".join(lines) + "\n"
        print(text, file=sys.stderr, end="")
        try:
            (self._log_dir / "launch.log").write_text(text)
        except OSError as e:  # such as a full disk, which may be why a rank failed
            print(f"launch: {self._log_dir / 'launch.log'} not written: {e.strerror}", file=sys.stderr)


def describe_code(code: int | None) -> str:
    """How a process ended, for people."""
    if code is None:
        return "running"
    if code == 0:
        return "ended before the others, with exit code 0"
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exit code {code}"


def _as_rank() -> None:
    """Ask the kernel to kill this rank when the launcher dies, however it does.

    Ctrl-C goes to all processes of a terminal; only the launcher takes it, and asks the ranks to save and stop.
    """
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
