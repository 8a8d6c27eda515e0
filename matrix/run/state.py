"""What the parts of a runner share: the record, what runs, what waits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from matrix.engine.base import Engine, Running
from matrix.host.health import Look
from matrix.plan import hosts, schedule
from matrix.plan.graph import needed_jobs, tails
from matrix.records import Fact, JobRecord, RunRecord, Status, save
from matrix.run.cards import Keeper
from matrix.run.folder import RECORD
from matrix.run.prepare import Place
from matrix.spec.job import Job

_LONGEST = 3600.0  # seconds of a pause that a resumed run believes; clocks are set now and then

Listener = Callable[[JobRecord], None]  # told of every change of a job


@dataclass(slots=True)
class Active:
    """A job that runs."""

    job: Job
    cards: tuple[str, ...]
    since: float  # monotonic
    handle: Running | None = None


class State:
    """A run under way. Every change is on disk (`note`) before it is acted on."""

    def __init__(
        self,
        record: RunRecord,
        jobs: Sequence[Job],
        place: Place,
        engine: Engine,
        *,
        expected: Mapping[str, float],
        cpu_jobs: int,
        memory: int | None,
        health: Look | None,
        listener: Listener,
    ) -> None:
        self.record, self.place, self.engine, self.listener = record, place, engine, listener
        self.jobs = {job.name: job for job in jobs}
        self.expected = expected
        self.tails = tails(needed_jobs(jobs), expected)
        self.cards = {card.uuid: card for card in engine.cards}
        seen = tuple(hosts.Card(c.uuid, c.model) for c in engine.cards)
        self.capacity = schedule.Capacity(seen, cpu_jobs, memory)
        self.keeper = Keeper(health, [c.uuid for c in engine.cards])
        self.active: dict[str, Active] = {}
        self.ready_since: dict[str, float] = {}  # monotonic
        self.not_before = _waits(record)  # monotonic, of jobs that are tried again
        self.notes: dict[str, list[Fact]] = {}  # of jobs whose attempt has not begun
        self.stopping = 0  # 1: no more starts, what runs is cancelled; 2: killed
        self.wake = asyncio.Event()

    def note(self, *changed: JobRecord) -> None:
        """Write the record, then tell the listener."""
        save(self.record, self.place.folder / RECORD)
        for job in changed:
            self.listener(job)

    def pending(self) -> list[JobRecord]:
        """List the jobs that have not begun."""
        return [r for r in self.record.jobs if r.status is Status.PENDING]

    def startable(self, clock: float) -> list[str]:
        """Name the jobs that may begin at a (monotonic) time: what they need is there, and no pause keeps them."""
        return [
            r.name for r in self.pending() if self.not_before.get(r.name, 0.0) <= clock and not self.lacking(r.name)
        ]

    def next_pause_ends(self) -> float | None:
        """Return the (monotonic) time at which the next job has paused long enough; None where none pauses."""
        return min((self.not_before[r.name] for r in self.pending() if r.name in self.not_before), default=None)

    def lacking(self, name: str) -> list[str]:
        """List the jobs whose hand-offs a job still lacks; what was given by hand is not lacking."""
        return [n for n in self.record.job(name).needs if self.record.job(n).status is not Status.PASSED]

    def end(self, active: Active) -> None:
        """Ask a running job to end, as hard as the run is being stopped."""
        if active.handle is not None and self.stopping:
            (active.handle.cancel if self.stopping == 1 else active.handle.kill)()


def _waits(record: RunRecord) -> dict[str, float]:
    """Return what is left of the pauses that a killed runner had begun."""
    clock, wall = time.monotonic(), time.time()
    left = {r.name: datetime.fromisoformat(r.retry.at).timestamp() - wall for r in record.jobs if r.retry}
    return {name: clock + min(max(0.0, seconds), _LONGEST) for name, seconds in left.items()}
