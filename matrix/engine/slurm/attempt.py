"""One attempt on a cluster: submitted once, followed by what its nodes write and by what the queue says."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Coroutine, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from matrix.engine.base import Launch, Outcome
from matrix.engine.local import Limits
from matrix.engine.outcome import ended_unseen
from matrix.engine.slurm.cluster import Away, Entry, Refused
from matrix.engine.slurm.fate import ENDED, Fate, fate, never, never_starts, put_back
from matrix.engine.slurm.files import Exchange, launch_document
from matrix.engine.slurm.fit import Fit, arguments, script
from matrix.engine.slurm.logs import merge_logs, remark
from matrix.engine.slurm.queue import Queue
from matrix.engine.slurm.several import combine
from matrix.errors import MatrixError
from matrix.host.gpus import Card

_ROOT = Path(__file__).parents[3]


class SlurmRun:
    """An attempt under way: on its way to the queue, in it, or on its nodes."""

    def __init__(self, queue: Queue, launch: Launch, chosen: Fit, limits: Limits, *, again: bool) -> None:
        self.queue, self.launch, self.fit, self.limits = queue, launch, chosen, limits
        self.exchange = Exchange(launch.scratch)
        self.exchange.folder.mkdir(parents=True, exist_ok=True)
        self.id: str | None = None
        self._submitted = time.time()
        self._learnt = 0.0  # monotonic: when the id was
        self._cancelled: float | None = None  # monotonic
        self._told = launch.began is None  # whether the run knows that it has begun
        self._gone: float | None = None  # monotonic: since when Slurm says that it has ended
        self._ended: float | None = None  # monotonic: since when its nodes say so
        self._tasks: set[asyncio.Task[None]] = set()
        self._giving_up = False
        self._done: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._beside(self._submit(again=again))

    async def wait(self) -> Outcome:
        """Return when the job has ended on all its nodes, or Slurm says so and nothing more is heard of them."""
        out = await asyncio.shield(self._done)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self.queue.pace.cancel)
        for task in self._tasks:
            task.cancel()
        self.exchange.plan.unlink(missing_ok=True)
        if self.fit.nodes > 1:
            await asyncio.to_thread(merge_logs, self.exchange, self.fit.nodes, self.launch.log)
        if out.problem and out.remark is None:
            out = replace(out, remark=await asyncio.to_thread(remark, self.launch.log, out.problem))
        return out

    def cancel(self) -> None:
        """Ask for its end: TERM, a while, KILL."""
        self._end("cancel")

    def kill(self) -> None:
        """Ask for its end at once."""
        self._end("kill")

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._done.done()

    def _end(self, word: str) -> None:
        """Tell the nodes, and take it out of the queue if it still waits there."""
        self._cancelled = self._cancelled or time.monotonic()
        self.exchange.stop(word)
        if self.id:
            self._beside(self._scancel(pending=True))

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _scancel(self, *, pending: bool) -> None:
        assert self.id is not None
        until = time.monotonic() + self.queue.pace.cancel
        while time.monotonic() < until:
            try:
                await self.queue.cluster.cancel(self.id, pending=pending)
            except Away:
                await asyncio.sleep(1.0)
            else:
                return

    async def _submit(self, *, again: bool) -> None:
        """Bring the job into the queue, once: after a doubtful try, the queue is asked for its name first."""
        until = time.monotonic() + self.queue.pace.submit
        if again and (known := self.exchange.read("job")):
            self._learn(str(known["id"]))
            return
        doubtful = again
        while not self.over:
            try:
                if doubtful and (self.exchange.read("begun.0") or await self._found()):
                    break
                if self._cancelled:
                    self._finish(Fate("cancel", "the run was cancelled before Slurm had the job"))
                    break
                await self._write_plan()
                doubtful = True
                self._learn(await self.queue.cluster.submit(self._script(), self._arguments()))
                break
            except (Refused, MatrixError) as e:
                said = e.message if isinstance(e, MatrixError) else str(e)
                self._finish(Fate("refused", f"Slurm does not take the job: {said}"))
            except Away as e:
                now = time.monotonic()
                if now > until:
                    self._finish(Fate("lost", f"Slurm could not be given the job: {e}"))
                elif self._cancelled and now > self._cancelled + self.queue.pace.cancel:
                    # Should it be in the queue after all, its nodes find the word that ends it.
                    self._finish(Fate("cancel", "the run was cancelled while Slurm did not answer"))
                await asyncio.sleep(min(1.0, self.queue.pace.queue))
        if self.id and self._cancelled:
            await self._scancel(pending=True)

    async def _found(self) -> bool:
        """Look for this attempt in the queue, by its name."""
        for entry in await self.queue.cluster.queue():
            if entry.name == self.launch.tag:
                self._learn(entry.id)
                return True
        return False

    def _learn(self, job: str) -> None:
        self.id, self._learnt = job, time.monotonic()
        self.exchange.write("job", {"id": job})

    async def _write_plan(self) -> None:
        if not self._cancelled:
            self.exchange.begin_anew()
        plan = {
            "launch": launch_document(self.launch),
            "nodes": self.fit.nodes,
            "cards": self.fit.cards,
            "model": self.fit.gres or self.launch.want.model or "",
            "kill_wait": await self.queue.kill_wait(),
            "limits": asdict(self.limits),
        }
        self.exchange.write("plan", plan, secret=True)

    def _script(self) -> str:
        return script(sys.executable, _ROOT, self.exchange.plan)

    def _arguments(self) -> list[str]:
        return arguments(
            self.fit, name=self.launch.tag, output=self.exchange.output, timeout=self.launch.timeout,
            memory=self.launch.memory, env=os.environ, exclude=self.launch.exclude,
        )  # fmt: skip

    def look(self) -> None:
        """See whether it has ended: by what its nodes wrote, else by what the queue says."""
        if self.over or self._giving_up:
            return
        self._tell()
        now, entry = time.monotonic(), self.queue.entry(self.id)
        gone = self.id is not None and self.queue.asked > self._learnt and (entry is None or entry.state in ENDED)
        self._gone = (self._gone or now) if gone else None
        said = [self.exchange.read(f"ended.{rank}") for rank in range(self.fit.nodes)]
        if all(said):
            self._weigh([document for document in said if document], entry)
        elif entry is not None and never_starts(entry):
            self._beside(self._scancel(pending=True))
            self._finish(Fate("refused", never(entry)))
        elif self._gone is not None and now - self._gone >= self._patience():
            self._giving_up = True
            self._beside(self._give_up(entry))
        elif self._cancelled and now - self._cancelled > self.queue.pace.cancel and self.id:
            self._cancelled = now
            self._beside(self._scancel(pending=False))

    def _tell(self) -> None:
        """Tell the run that it has begun, once it has on all nodes."""
        if self._told or self.launch.began is None:
            return
        begun = [self.exchange.read(f"begun.{rank}") for rank in range(self.fit.nodes)]
        if all(begun):
            self._told = True
            self.launch.began(self._hosts(), self._cards(), min(float(d["at"]) for d in begun if d))

    def _patience(self) -> float:
        """Seconds to wait for the word of the nodes; there is none to come from a job that never began."""
        begun = any(self.exchange.read(f"begun.{rank}") for rank in range(self.fit.nodes))
        return self.queue.pace.settle if begun or not self._cancelled else 0.0

    def _weigh(self, said: list[Mapping[str, Any]], entry: Entry | None) -> None:
        """End as the nodes say; but why Slurm sent TERM, only the queue tells: a preemption is not a cancel."""
        out = combine(said)
        if self._cancelled or all(document["by"] != "slurm" for document in said):
            self._settle(out)
            return
        now = time.monotonic()
        self._ended = self._ended or now
        back = put_back(entry) if self.queue.asked > self._ended else None
        if back:
            self._beside(self._scancel(pending=False))
            self._settle(replace(out, why=back.why, problem=back.text, moved=True))
            return
        if self._gone is None and now - self._ended < self.queue.pace.settle:
            return
        state = entry.state if entry and entry.state in ENDED - {"COMPLETED", "FAILED"} else "CANCELLED"
        told = fate(state, entry.nodes if entry else "")
        self._settle(replace(out, why=told.why, problem=told.text, moved=told.moved))

    async def _give_up(self, entry: Entry | None) -> None:
        """Say how it ended without the word of its nodes: by the supervisor's, else by Slurm's.

        A node that Slurm lost may live on: it is told to end what it still runs, and given time for it.
        """
        self.exchange.stop("kill", first=True)
        begun = [rank for rank in range(self.fit.nodes) if self.exchange.read(f"begun.{rank}")]
        for _ in range(round(self.queue.pace.settle / self.queue.pace.files)):
            if all(self.exchange.read(f"ended.{rank}") for rank in begun):
                break
            await asyncio.sleep(self.queue.pace.files)
        seen = ended_unseen(self.launch.scratch) if self.fit.nodes == 1 else None
        if seen:
            self._settle(replace(seen, cards=self._cards()))
            return
        state = entry.state if entry else await self.queue.cluster.final_state(self.id or "")
        nodes, reason = (entry.nodes, entry.reason) if entry else ("", "")
        told = fate(state, nodes, self.exchange.said(), reason, began=bool(begun))
        unfit = (nodes,) if told.moved and not begun and state == "FAILED" and self.fit.nodes == 1 else ()
        self._finish(Fate("cancel", "the run was cancelled") if self._cancelled else told, unfit)

    def _finish(self, told: Fate, unfit: tuple[str, ...] = ()) -> None:
        """End without a word of the nodes."""
        begun = [self.exchange.read(f"begun.{rank}") for rank in range(self.fit.nodes)]
        started = min((float(document["at"]) for document in begun if document), default=self._submitted)
        self._settle(
            Outcome(
                told.why,
                None,
                None,
                started,
                time.time(),
                problem=told.text,
                moved=told.moved,
                cards=self._cards(),
                unfit=unfit,
            )
        )

    def _cards(self) -> tuple[Card, ...]:
        begun = [self.exchange.read(f"begun.{rank}") for rank in range(self.fit.nodes)]
        return tuple(Card(**card) for document in begun if document for card in document["cards"])

    def _hosts(self) -> tuple[str, ...]:
        begun = [self.exchange.read(f"begun.{rank}") for rank in range(self.fit.nodes)]
        return tuple(str(document["node"]) for document in begun if document)

    def _settle(self, out: Outcome) -> None:
        out = replace(out, hosts=self._hosts())
        with contextlib.suppress(asyncio.InvalidStateError):
            self._done.set_result(out)
