"""The run's heart: blocks what cannot run, starts what may start, follows it to its end, until nothing is left.

How attempts begin is in `starting`, what they came to in `concluding`; what both see is in `state`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from matrix.engine.base import Engine
from matrix.engine.outcome import ended_unseen
from matrix.history.quarantine import Quarantine
from matrix.host.health import Look
from matrix.records import BAD, Attempt, JobRecord, RunRecord, Status, Verdict, move, outcome
from matrix.run.clock import now
from matrix.run.concluding import NO_QUARANTINE, Concluder, Verdicts
from matrix.run.prepare import Place
from matrix.run.starting import Starter
from matrix.run.state import Active, Listener, State
from matrix.spec.job import Job
from matrix.spec.retry import RetryRule, shipped

_POLL = 0.25  # seconds between looks at cards that other runners hold


class Runner:
    """Runs the pending jobs of a record to their end."""

    def __init__(
        self,
        record: RunRecord,
        jobs: Sequence[Job],
        place: Place,
        engine: Engine,
        *,
        expected: Mapping[str, float],
        cpu_jobs: int,
        memory: int | None = None,
        health: Look | None = None,
        listener: Listener = lambda _: None,
        quarantine: Quarantine = NO_QUARANTINE,
        policy: Sequence[RetryRule] | None = None,
        verdicts: Verdicts | None = None,
    ) -> None:
        self.state = State(
            record, jobs, place, engine,
            expected=expected, cpu_jobs=cpu_jobs, memory=memory, health=health, listener=listener,
        )  # fmt: skip
        self.desk = Concluder(self.state, quarantine, shipped() if policy is None else policy, verdicts)
        self.starter = Starter(self.state, self.desk, self.follow)
        self.tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> Status:
        """Run until no job is pending or running; return the status of the run."""
        state = self.state
        state.note()
        await self.adopt()
        while True:
            self.block()
            if state.stopping:
                self.give_up()
            elif await self.starter.start_some():
                continue
            if not self.tasks and not state.pending():
                break
            await self.something_happens()
        state.record.ended, state.record.status = now(), outcome(state.record)
        state.note()
        return state.record.status

    async def adopt(self) -> None:
        """Take up the attempts of a killed runner: those that a queue still has, and those that ended unseen."""
        state = self.state
        for r in state.record.jobs:
            if r.status is not Status.RUNNING:
                continue
            attempt, job = r.attempts[-1], state.jobs[r.name]
            active = Active(job, (), time.monotonic())
            active.handle = await state.engine.adopt(self.starter.launch(job, attempt.n, ()))
            if active.handle is not None:
                state.active[r.name] = active
                self.follow(r, attempt, active)
                continue
            out = ended_unseen(state.place.scratch(r.name, attempt.n))
            assert out is not None
            await self.desk.judge(r, attempt, out)

    @property
    def stopping(self) -> int:
        """How hard the run is being stopped: 0 not at all, 1 what runs is cancelled, 2 killed."""
        return self.state.stopping

    def stop(self) -> None:
        """Cancel the run; called again, kill what still runs."""
        self.state.stopping += 1
        for active in self.state.active.values():
            self.state.end(active)
        self.state.wake.set()

    def block(self) -> None:
        """Block what needs a job that ended badly, and name the job at the root."""
        record, changed = self.state.record, list[JobRecord]()
        again = True
        while again:
            again = False
            for r in self.state.pending():
                bad = [n for n in self.state.lacking(r.name) if record.job(n).status in BAD | {Status.SKIPPED}]
                if bad:
                    roots = list(dict.fromkeys(root for n in bad for root in record.job(n).blocked_by or [n]))
                    r.blocked_by, r.verdict = roots, Verdict(value="follows", compared=roots)
                    r.allowed = all(record.job(root).allowed for root in roots)
                    move(r, Status.BLOCKED, reason=f"needs what {' and '.join(bad)} did not produce")
                    changed.append(r)
                    again = True
        if changed:
            self.state.note(*changed)

    def give_up(self) -> None:
        """Cancel what has not begun."""
        waiting = self.state.pending()
        for r in waiting:
            move(r, Status.CANCELLED, reason="the run was cancelled before it began")
        if waiting:
            self.state.note(*waiting)

    def follow(self, r: JobRecord, attempt: Attempt, active: Active) -> None:
        """Follow an attempt that has begun to its end."""
        self.tasks.add(asyncio.create_task(self._follow(r, attempt, active)))

    async def _follow(self, r: JobRecord, attempt: Attempt, active: Active) -> None:
        assert active.handle is not None
        out = await active.handle.wait()
        del self.state.active[r.name]
        self.state.wake.set()  # its cards are free while it is being judged
        await self.desk.judge(r, attempt, out)

    def next_look(self) -> float | None:
        """Return the seconds after which something may begin though nothing has ended; None: nothing will."""
        due = self.state.next_pause_ends()
        left = [] if due is None else [max(0.0, due - time.monotonic())]
        return min([_POLL, *left] if self.starter.waiting_for_others else left, default=None)

    async def something_happens(self) -> None:
        """Wait until an attempt ends, the run is stopped, or cards of other runners may have come back."""
        waker = asyncio.create_task(self.state.wake.wait())
        timeout = None if self.state.stopping else self.next_look()
        done, _ = await asyncio.wait({*self.tasks, waker}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        waker.cancel()
        self.state.wake.clear()
        for task in done & self.tasks:
            self.tasks.discard(task)
            task.result()
