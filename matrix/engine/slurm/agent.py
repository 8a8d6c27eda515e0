"""What runs on a node: in the allocation, the local engine with its supervisor, lease and limits, for one job.

Slurm is trusted with the choice of the cards, not with the end of the job: the limit is kept to the second here, the
whole tree is ended here, and should Slurm kill all of this at once, a guardian outside of its tree ends the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matrix.engine.base import Launch, Outcome
from matrix.engine.local import Limits, LocalEngine, LocalRun
from matrix.engine.slurm.files import Exchange, outcome_document, read_launch
from matrix.engine.slurm.fit import START
from matrix.engine.slurm.rendezvous import Rendezvous
from matrix.errors import MatrixError
from matrix.host import gpus, process
from matrix.host.gpus import Card
from matrix.host.health import evidence, look

_POLL = 0.25  # seconds between looks at the file that ends the job
_LEASE_WAIT = 60.0  # seconds that another runner of the node has to give back a card that Slurm gave to this job
_TERM_SHARE = 0.4  # of the time between Slurm's TERM and its KILL: what the job itself gets to end
_GUARDIAN_LIMIT = 10.0


def main() -> None:
    """Run the plan named on the command line: alone, as one node of several, or as what starts these."""
    path = Path(sys.argv[2])
    exchange = Exchange(path.parent.parent)
    plan = exchange.read("plan")
    if plan is None:
        sys.exit(f"no plan at {path}: is this folder on the node too, at the same place?")
    if plan["nodes"] > 1 and len(sys.argv) == 3:
        sys.exit(lead(plan))
    if plan["nodes"] == 1:
        exchange.plan.unlink(missing_ok=True)  # it holds the job's environment
    rank = int(os.environ.get("SLURM_NODEID", "0")) if plan["nodes"] > 1 else 0
    if exchange.read(f"begun.{rank}") is not None:
        sys.exit("this attempt has begun before: Slurm was asked not to start it again")
    out = asyncio.run(Agent(plan, exchange, rank).run())
    sys.exit(out.exit_code if out.exit_code is not None else 1)


def lead(plan: Mapping[str, Any]) -> int:
    """On the first node of several: choose where they meet, and start one agent on each."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the agents get it too, and this ends after them
    with socket.socket() as s:
        s.bind(("", 0))
        port = s.getsockname()[1]
    meet = f"{_own_address()}:{port}"
    command = ["srun", "--export=ALL", f"--nodes={plan['nodes']}", "--ntasks-per-node=1", "--kill-on-bad-exit=0"]
    words = [sys.executable, "-c", START, *sys.argv[1:3], meet]
    done = subprocess.run([*command, *words], check=False, stdin=subprocess.DEVNULL)
    Path(sys.argv[2]).unlink(missing_ok=True)
    return done.returncode


def _own_address() -> str:
    """Return the address of this node, as Slurm's other nodes reach it."""
    node = os.environ.get("SLURMD_NODENAME", "")
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(
            ["scontrol", "show", "node", "-o", node], capture_output=True, text=True, check=True, timeout=60
        ).stdout
        return next(word.removeprefix("NodeAddr=") for word in said.split() if word.startswith("NodeAddr="))
    return node or socket.gethostname()


class NoCards(Exception):  # noqa: N818 -- of this node: another may do better
    """Slurm gave other cards than were asked for: a restarted controller does, before its nodes have spoken to it."""


class Agent:
    """One node's part of one attempt."""

    def __init__(self, plan: Mapping[str, Any], exchange: Exchange, rank: int) -> None:
        self.plan, self.exchange, self.rank = plan, exchange, rank
        self.several = plan["nodes"] > 1
        self.node = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        self.run_: LocalRun | None = None
        self.ended_by: str | None = None  # the word of the stop file, or "slurm"
        self.guardian = -1

    async def run(self) -> Outcome:
        """Run the job and say how it ended."""
        started = time.time()
        self.guardian = guard(self.plan["launch"]["tag"])
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.slurm_ends_it)
        cards: tuple[Card, ...] = ()
        try:
            cards = allocated(self.plan["cards"], self.node, self.plan["model"], os.environ)
            dirty(cards)
            launch = replace(self.launch(), cards=cards)
            engine = LocalEngine(cards, Limits(**self.plan["limits"]), owns_process=True)
            try:
                out = await self.attempt(engine, launch)
            finally:
                engine.close()
        except NoCards as e:
            out = self.no_cards(started, str(e))
        except (MatrixError, OSError) as e:
            out = Outcome("lost", None, None, started, time.time(), problem=f"{self.node}: {e}")
        if self.several and (out.exit_code != 0 or out.why != "exit"):
            self.exchange.stop(f"node {self.rank}", first=True)
        out = replace(out, cards=cards)
        said = {"outcome": outcome_document(out), "node": self.node, "by": self.ended_by}
        self.exchange.write(f"ended.{self.rank}", said)
        if not out.left:
            os.write(self.guardian, b"done")
        return out

    def no_cards(self, started: float, why: str) -> Outcome:
        """Return the end of an attempt that this node had no cards for; another may have."""
        text, node = f"{self.node}: {why}", (self.node,)
        return Outcome("lost", None, None, started, time.time(), problem=text, moved=True, unfit=node)

    def launch(self) -> Launch:
        """Return what this node starts: with Slurm's variables, and, for several nodes, where these meet."""
        launch = read_launch(self.plan["launch"])
        env = {k: v for k, v in launch.env.items() if not k.startswith(("SLURM_", "SLURMD_"))}
        env |= {k: v for k, v in os.environ.items() if k.startswith(("SLURM_", "SLURMD_"))}
        if not self.several:
            return replace(launch, env=env)
        address, _, port = sys.argv[3].rpartition(":")
        meet = Rendezvous(
            address, int(port), self.plan["nodes"], self.rank, self.plan["cards"], os.environ.get("SLURM_JOB_ID", "0")
        )
        scratch = self.exchange.node(self.rank)
        return replace(launch, env=env | meet.environment(), scratch=scratch, log=self.exchange.node_log(self.rank))

    async def attempt(self, engine: LocalEngine, launch: Launch) -> Outcome:
        """Lease the cards, start the job, and follow it to its end."""
        until = time.monotonic() + _LEASE_WAIT
        if self.is_stopped():
            return Outcome("cancel", None, None, time.time(), time.time(), problem="ended before it began")
        while (run := await engine.start(launch, self.begun(launch))) is None:
            held = sorted(h.uuid for h in await engine.held_by_others())
            if time.monotonic() > until:
                return self.no_cards(
                    time.time(), f"Slurm gave this job cards that another runner holds: {', '.join(held)}"
                )
            if self.is_stopped():
                return Outcome("cancel", None, None, time.time(), time.time(), problem="ended before it began")
            await asyncio.sleep(_POLL)
        self.run_ = run
        if self.is_stopped():
            run.cancel()
        waiter = asyncio.ensure_future(run.wait())
        heard: str | None = None
        while not waiter.done():
            word = self.exchange.stopped()
            if word and word != heard:
                heard = self.ended_by = word
                (run.kill if word == "kill" else run.cancel)()
            await asyncio.wait({waiter}, timeout=_POLL)
        return await waiter

    def is_stopped(self) -> bool:
        """Whether Slurm, the run or another node wants it to end."""
        self.ended_by = self.ended_by or self.exchange.stopped()
        return self.ended_by is not None

    def begun(self, launch: Launch) -> Any:
        """Return what is to be called when the cards are leased."""
        cards = [{"uuid": c.uuid, "index": c.index, "model": c.model} for c in launch.cards]
        said = {"node": self.node, "job": os.environ.get("SLURM_JOB_ID"), "at": time.time(), "cards": cards}
        return lambda: self.exchange.write(f"begun.{self.rank}", said)

    def slurm_ends_it(self) -> None:
        """Slurm's TERM: a preemption, scancel, or its own limit. KILL follows, so the job gets a share of the time."""
        self.ended_by = self.ended_by or "slurm"
        if self.run_ is not None:
            self.run_.cancel()
            grace = self.plan["kill_wait"] * _TERM_SHARE
            asyncio.get_running_loop().call_later(grace, self.run_.kill)


def allocated(count: int, node: str, model: str, env: Mapping[str, str]) -> tuple[Card, ...]:
    """Return the cards that Slurm gave to this job on this node, by uuid where a driver can tell.

    Raises:
        NoCards: the driver does not see what Slurm gave, or Slurm gave too few.

    """
    if not count:
        return ()
    visible = [word for word in env.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
    if gpus.has_driver():
        found = gpus.discover()
        if len(found.cards) < count:
            why = found.problem or f"the driver shows {len(found.cards)}"
            raise NoCards(f"Slurm gave {count} cards, and {why}")
        return found.cards[:count]
    # Without a driver: the number of the device file, which no cgroup counts anew, on this node.
    numbers = [w for w in (env.get("SLURM_STEP_GPUS") or env.get("SLURM_JOB_GPUS") or "").split(",") if w]
    if len(numbers) < count or len(visible) < count:
        raise NoCards(f"Slurm gave cards {','.join(numbers) or 'none'} where {count} were asked for")
    pairs = zip(numbers[:count], visible[:count], strict=True)
    return tuple(Card(f"{node}-{number}", int(index), model or gpus.PRETENDED) for number, index in pairs)


def dirty(cards: Sequence[Card]) -> None:
    """Look at cards before a job gets them, as on one host.

    Raises:
        NoCards: one of them is not fit for a job, with the evidence.

    """
    if not any(card.memory for card in cards):  # pretended ones
        return
    for health in look([card.uuid for card in cards], True):
        if why := evidence(health, lambda pid: bool(process.tags(pid)), shared=False):
            raise NoCards(f"card {health.uuid} is not fit for a job: {'; '.join(why)}")


def guard(tag: str) -> int:
    """Start a process outside of this one's tree that ends all processes of the job when this one dies without a word.

    Return a descriptor: write to it before a good end.
    """
    watched, mine = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child:
        os.close(watched)
        os.waitpid(child, 0)
        return mine
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.chdir("/")
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.dup2(watched, 3)
        os.closerange(4, 4096)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if not os.read(3, 1):
            process.kill_all(lambda: process.of_job(tag), _GUARDIAN_LIMIT)
    finally:
        os._exit(0)
