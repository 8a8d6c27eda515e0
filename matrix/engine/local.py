"""The engine of one host: a supervisor process a job, leases by flock, everything followed by asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from matrix.engine.base import Held, Launch, Outcome
from matrix.engine.outcome import outcome, read_result
from matrix.errors import ToolError
from matrix.host import containers, process, stacks
from matrix.host.gpus import Card
from matrix.host.joblog import REMARK, JobLog
from matrix.host.leases import Busy, Lease, LeaseError, Leases
from matrix.host.nursery import Nursery
from matrix.spec.job import Cards

_INJECT = str(Path(__file__).parents[1] / "host" / "inject")
_REAP_LIMIT = 5.0  # seconds for the processes of a job whose supervisor died


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds that a job's processes get. See `matrix.host.supervisor`."""

    term: float = 10.0  # between TERM and KILL, at the limit and on cancel
    kill: float = 5.0  # after KILL, before they are given up and reported
    leftover: float = 1.0  # for what a job leaves behind when it ends by itself
    orphan: float = 1.0  # between TERM and KILL when the runner is gone
    stacks: float = 20.0  # for writing where every process hangs


class LocalEngine:
    """Runs jobs on this host."""

    name = "local"
    queue = False

    def __init__(
        self,
        cards: Sequence[Card],
        limits: Limits | None = None,
        lease_dir: str | None = None,
        *,
        owns_process: bool = False,
    ) -> None:
        """`owns_process`: nobody else starts sessions in this process.

        Then what comes to it when a supervisor dies is of that job, even what has neither its tag nor its session.
        """
        self.cards = tuple(cards)
        self._owns_process = owns_process
        self._supervisors: set[int] = set()
        self.limits = limits or Limits()
        process.become_subreaper()  # what a dead supervisor leaves behind comes to this process
        try:
            self._leases = Leases(lease_dir)
        except LeaseError as e:
            raise ToolError(str(e), "set MATRIX_LEASE_DIR to a folder that all users of this host can write") from e
        self._runs: set[LocalRun] = set()
        self._nursery = Nursery()
        self._py_spy = shutil.which("py-spy") or shutil.which("py-spy", path=os.path.dirname(sys.executable))  # noqa: PTH120

    async def held_by_others(self) -> Collection[Held]:
        """Return the cards that other runners have leased at this moment."""
        return await asyncio.to_thread(self._held_by_others) if self.cards else ()

    def _held_by_others(self) -> list[Held]:
        mine = {uuid for run in self._runs for uuid in run.card_uuids}
        others = [c.uuid for c in self.cards if c.uuid not in mine]
        free = set(self._leases.free(others))
        shared = set(self._leases.free(others, shared=True)) - free
        reserved = free.intersection(self._leases.reserved_by_others())
        held = []
        for uuid in others:
            if uuid in reserved:
                held.append(Held(uuid))
            elif uuid not in free:
                said = [e.get("until") for e in self._leases.holders(uuid)]
                held.append(Held(uuid, max((u for u in said if isinstance(u, float)), default=None), uuid in shared))
        return held

    async def start(self, launch: Launch, leased: Callable[[], None] = lambda: None) -> LocalRun | None:
        """Lease the cards, call `leased`, start a supervisor with the job; None when another runner was quicker."""
        lease = Lease(self._leases.directory, launch.tag, {})
        tool = containers.tool() if launch.container else None
        if launch.container and tool is None:
            raise ToolError(f"{launch.tag}: neither docker nor podman is on PATH", "install one, or remove 'container'")
        if launch.cards:
            facts = dict(launch.facts or {}) | ({"container": tool} if tool else {})
            uuids = [c.uuid for c in launch.cards]
            try:
                lease = await asyncio.to_thread(
                    lambda: self._leases.take(uuids, launch.tag, shared=launch.shared, **facts)
                )
            except Busy:
                return None
        try:
            leased()
            run = LocalRun(launch, self._plan(launch, lease, tool), lease, self._nursery)
            run.orphans = self._orphans
            run.seen = self._supervisors.add
        except OSError as e:
            lease.release()
            raise ToolError(f"cannot start a supervisor: {e.strerror}") from e
        except BaseException:
            lease.release()
            raise
        self._runs = {r for r in self._runs if not r.ended} | {run}
        return run

    async def adopt(self, launch: Launch) -> None:
        """Return None: jobs of this engine end with their runner."""

    def reserve(self, uuids: Collection[str], tag: str) -> None:
        """Ask other runners to leave cards to a job that waits long; none lets go again."""
        self._leases.reserve(uuids, tag)

    def elsewhere(self, want: Cards, nodes: int | None, hosts: Collection[str]) -> bool:  # noqa: ARG002 -- protocol
        """Return False: this engine has one host."""
        return False

    def _orphans(self) -> list[process.Process]:
        zygote = {self._nursery.pid} if self._nursery.pid else set()
        return process.orphans(self._supervisors | zygote) if self._owns_process else []

    def close(self) -> None:
        """Let go of what was started for supervisors; those that run go on."""
        self._leases.reserve((), "")
        self._nursery.close()

    def _plan(self, launch: Launch, lease: Lease, tool: str | None) -> dict[str, object]:
        stacks_file = launch.scratch / "stacks"
        env = job_environment(launch, stacks_file)
        argv = list(launch.argv)
        container = None
        if launch.container and tool:
            outside = {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "TMPDIR", "PYTHONPATH"}
            inside = {k: v for k, v in env.items() if k not in outside and os.environ.get(k) != v}
            real = [c.uuid for c in launch.cards if c.uuid.startswith(("GPU-", "MIG-"))]
            if real:  # the container sees its own cards only, counted from 0
                inside["CUDA_VISIBLE_DEVICES"] = ",".join(str(i) for i in range(len(real)))
            argv = containers.command(
                tool,
                image=launch.container.image,
                argv=argv,
                tag=launch.tag,
                env=inside,
                cwd=str(launch.cwd),
                mounts=[f"{p}:{p}" for p in (launch.cwd, launch.scratch)] + list(launch.container.mounts),
                shm=launch.container.shm,
                cards=real,
            )
            container = {"tool": tool, "label": launch.tag}
        return {
            "argv": argv,
            "cwd": str(launch.cwd),
            "env": env,
            "log": str(launch.log),
            "timeout": launch.timeout,
            "tag": launch.tag,
            "lease_dir": lease.directory,
            "result": str(launch.scratch / "result.json"),
            "stacks": str(stacks_file),
            "py_spy": self._py_spy,
            "container": container,
            "term": self.limits.term,
            "kill": self.limits.kill,
            "leftover": self.limits.leftover,
            "orphan": self.limits.orphan,
            "stacks_limit": self.limits.stacks,
        }


def job_environment(launch: Launch, stacks_file: Path) -> dict[str, str]:
    """Return the job's whole environment: its own, its cards, its tag, and what makes its Python processes speak."""
    env = dict(launch.env)
    env[process.TAG] = process.add_tag(launch.tag, os.environ.get(process.TAG))
    env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"  # the order in which the cards' indices are meant
    env["CUDA_VISIBLE_DEVICES"] = ",".join(c.visible for c in launch.cards)
    env["MATRIX_STACKS"] = str(stacks_file)
    env["MATRIX_STACKS_SIGNAL"] = str(int(stacks.SIGNAL))
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [_INJECT, env.get("PYTHONPATH")]))
    env.setdefault("PYTHONUNBUFFERED", "1")  # else a killed process takes its last lines along
    env.setdefault("PYTHONFAULTHANDLER", "1")  # a signal that ends a Python process says in which line
    return env


class LocalRun:
    """A supervisor under way."""

    def __init__(self, launch: Launch, plan: dict[str, object], lease: Lease, nursery: Nursery) -> None:
        launch.scratch.mkdir(parents=True, exist_ok=True)
        launch.log.parent.mkdir(parents=True, exist_ok=True)
        self._launch, self._lease, self._plan = launch, lease, plan
        self._started = time.time()
        self._sid: int | None = None
        self._supervisor: int | None = None
        self.orphans: Callable[[], list[process.Process]] = list
        self.seen: Callable[[int], None] = lambda _: None
        self._buffer = b""
        self._event: dict[str, object] | None = None
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._in, self._out = nursery.supervisor(launch.log, lease.fds)
        os.set_blocking(self._out, False)
        self._loop.add_reader(self._out, self._read)
        self._say(json.dumps(plan))

    async def wait(self) -> Outcome:
        """Return when no process of the job is left (or not even KILL helps)."""
        await self._done
        self._hang_up()
        event = self._event or read_result(Path(str(self._plan["result"])))
        if event is None:
            event = await asyncio.to_thread(self._clean_up)
        self._lease.close()
        return outcome(event, self._started)

    def cancel(self) -> None:
        """Ask for its end: TERM, a while, KILL."""
        self._say("cancel")

    def kill(self) -> None:
        """Ask for its end at once."""
        self._say("kill")

    @property
    def ended(self) -> bool:
        """Whether it has let go of its cards (or cannot: then another's eyes see them as held)."""
        return self._done.done()

    @property
    def card_uuids(self) -> list[str]:
        """Cards that it holds."""
        return [] if self.ended else [c.uuid for c in self._launch.cards]

    @property
    def supervisor(self) -> int | None:
        """Pid of the supervisor, once the job has started."""
        return self._supervisor

    def _say(self, line: str) -> None:
        data = line.encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):  # it has ended; what it left is seen to by `wait`
            while data and self._in >= 0:
                data = data[os.write(self._in, data) :]

    def _read(self) -> None:
        """Take events. The end of the pipe is the end of the supervisor: it alone holds the other side."""
        try:
            data = os.read(self._out, 1 << 16)
        except BlockingIOError:
            return
        if not data:
            self._loop.remove_reader(self._out)
            os.close(self._out)
            self._finish()
            return
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            event = json.loads(line)
            if event["event"] == "started":
                self._sid, self._supervisor = event["pid"], event["supervisor"]
                self.seen(event["supervisor"])
            elif event["event"] == "ended":
                self._event = event
                self._finish()

    def _hang_up(self) -> None:
        if self._in >= 0:
            os.close(self._in)
            self._in = -1

    def _finish(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    def _clean_up(self) -> dict[str, object]:
        """End what a dead supervisor left behind, then free the cards. The lease is held until all are gone."""
        tag, sid = self._launch.tag, self._sid
        seen: set[int] = set()

        def find() -> list[process.Process]:
            found = process.of_job(tag, sid) + self.orphans()
            seen.update(p.pid for p in found)
            return found

        def pause(seconds: float) -> None:
            process.reap(seen)
            time.sleep(seconds)

        left = process.kill_all(find, _REAP_LIMIT, pause)
        process.reap(seen)
        container = self._plan["container"]
        if isinstance(container, dict):
            containers.end(container["tool"], container["label"], dict(self._launch.env))
        said = "the job's supervisor ended before the job; all processes of the job were ended"
        log = JobLog(str(self._launch.log))
        remark = log.remark(said)
        with self._launch.log.open("rb") as f:
            remark = next((n for n, line in enumerate(f, 1) if REMARK.encode() + said[:30].encode() in line), remark)
        if not left:
            self._lease.release()
        return {"event": "ended", "why": "lost", "ended": time.time(), "left": left, "remark": remark, "problem": said}
