"""The run's heart: starts what may start, follows it, moves states on.

Every change is on disk before it is acted on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from matrix.engine.base import Engine, Held, Launch, Outcome, Running
from matrix.engine.outcome import ended_unseen
from matrix.errors import MatrixError
from matrix.history.quarantine import Quarantine
from matrix.host.gpus import Card
from matrix.host.health import Look
from matrix.host.joblog import JobLog
from matrix.plan import hosts, schedule
from matrix.plan.graph import needed_jobs, tails
from matrix.records import (
    BAD,
    Attempt,
    Fact,
    JobRecord,
    RunRecord,
    Status,
    Verdict,
    card_record,
    move,
    outcome,
    save,
)
from matrix.run import prepare
from matrix.run.cards import Keeper
from matrix.run.causes import cause
from matrix.run.clock import now, stamp
from matrix.run.folder import RECORD
from matrix.run.judge import Judgement, judge
from matrix.run.prepare import Place
from matrix.run.record import tag
from matrix.run.retry import retried
from matrix.spec.job import Job

_POLL = 0.25  # seconds between looks at cards that other runners hold
_RESERVE_AFTER = 30.0  # seconds that a job waits for cards of other runners before these leave it some
_OTHERS = 300.0  # seconds that a card of another runner is taken to be away when nothing is said of it
NO_QUARANTINE = Quarantine()

_MOVES = 3  # times that a job is started elsewhere when its node is lost or it is preempted

Listener = Callable[[JobRecord], None]  # told of every change of a job


@dataclass(slots=True)
class Active:
    """A job that runs."""

    job: Job
    cards: tuple[str, ...]
    since: float  # monotonic
    handle: Running | None = None


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
    ) -> None:
        self.record, self.place, self.engine, self.listener = record, place, engine, listener
        self.quarantine = quarantine
        self.jobs = {job.name: job for job in jobs}
        self.needs = needed_jobs(jobs)
        self.expected = expected
        self.tails = tails(self.needs, expected)
        self.cards = {card.uuid: card for card in engine.cards}
        seen = tuple(hosts.Card(c.uuid, c.model) for c in engine.cards)
        self.capacity = schedule.Capacity(seen, cpu_jobs, memory)
        self.active: dict[str, Active] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.ready_since: dict[str, float] = {}
        self.stopping = 0  # 1: no more starts, what runs is cancelled; 2: killed
        self.wake = asyncio.Event()
        self.first_attempt = {r.name: len(r.attempts) for r in record.jobs}
        self.waiting_for_others = False
        self.notes: dict[str, list[Fact]] = {}  # of jobs whose attempt has not begun
        self.keeper = Keeper(health, [c.uuid for c in engine.cards])
        self.moves: dict[str, int] = {}  # attempts that a job lost with its place

    async def run(self) -> Status:
        """Run until no job is pending or running; return the status of the run."""
        self.note()
        await self.adopt()
        while True:
            self.block()
            if self.stopping:
                self.give_up()
            elif await self.start_some():
                continue
            if not self.tasks and not self.pending():
                break
            await self.something_happens()
        self.record.ended, self.record.status = now(), outcome(self.record)
        self.note()
        return self.record.status

    async def adopt(self) -> None:
        """Take up the attempts of a killed runner: those that a queue still has, and those that ended unseen."""
        for r in self.record.jobs:
            if r.status is not Status.RUNNING:
                continue
            attempt, job = r.attempts[-1], self.jobs[r.name]
            active = Active(job, (), time.monotonic())
            active.handle = await self.engine.adopt(self.launch(job, attempt.n, ()))
            if active.handle is not None:
                self.active[r.name] = active
                self.tasks.add(asyncio.create_task(self.follow(r, attempt, active)))
                continue
            out = ended_unseen(self.place.scratch(r.name, attempt.n))
            assert out is not None
            await self.judge(r, attempt, out)

    def stop(self) -> None:
        """Cancel the run; called again, kill what still runs."""
        self.stopping += 1
        for active in self.active.values():
            self.end(active)
        self.wake.set()

    def end(self, active: Active) -> None:
        """Ask a running job to end, as hard as the run is being stopped."""
        if active.handle is not None and self.stopping:
            (active.handle.cancel if self.stopping == 1 else active.handle.kill)()

    def pending(self) -> list[JobRecord]:
        """List the jobs that have not begun."""
        return [r for r in self.record.jobs if r.status is Status.PENDING]

    def note(self, *changed: JobRecord) -> None:
        """Write the record, then tell the listener."""
        save(self.record, self.place.folder / RECORD)
        for job in changed:
            self.listener(job)

    def block(self) -> None:
        """Block what needs a job that ended badly, and name the job at the root."""
        changed: list[JobRecord] = []
        again = True
        while again:
            again = False
            for r in self.pending():
                bad = [n for n in self.lacking(r.name) if self.record.job(n).status in BAD | {Status.SKIPPED}]
                if bad:
                    roots = list(dict.fromkeys(root for n in bad for root in self.record.job(n).blocked_by or [n]))
                    r.blocked_by, r.verdict = roots, Verdict(value="follows", compared=roots)
                    r.allowed = all(self.record.job(root).allowed for root in roots)
                    move(r, Status.BLOCKED, reason=f"needs what {' and '.join(bad)} did not produce")
                    changed.append(r)
                    again = True
        if changed:
            self.note(*changed)

    def lacking(self, name: str) -> list[str]:
        """List the jobs whose hand-offs a job still lacks; what was given by hand is not lacking."""
        return [n for n in self.record.job(name).needs if self.record.job(n).status is not Status.PASSED]

    def give_up(self) -> None:
        """Cancel what has not begun."""
        waiting = self.pending()
        for r in waiting:
            move(r, Status.CANCELLED, reason="the run was cancelled before it began")
        if waiting:
            self.note(*waiting)

    async def start_some(self) -> bool:
        """Start what the planner says; whether anything was started or refused."""
        clock = time.monotonic()
        ready = [r.name for r in self.pending() if not self.lacking(r.name)]
        for name in ready:
            self.ready_since.setdefault(name, clock)
        if not ready:
            return False
        if self.engine.queue:
            return any([await self.start(self.record.job(name), ()) for name in ready])
        others = await self.engine.held_by_others() if any(self.jobs[n].cards.count for n in ready) else ()
        running = [self.seen(a, clock) for a in self.active.values()] + [self.foreign(h) for h in others]
        decision = schedule.decide([self.wish(n, clock) for n in ready], running, self.capacity)
        self.waiting_for_others = bool(others)
        self.reserve(decision.reservation, clock)
        began = False
        for start in decision.starts:
            if await self.start(self.record.job(start.name), start.cards):
                began = True
            else:
                self.waiting_for_others = True
        return began

    def reserve(self, reservation: schedule.Reservation | None, clock: float) -> None:
        """Have other runners leave cards to a job that they keep waiting; within a run, `decide` does."""
        wide = reservation and self.waiting_for_others and clock - self.ready_since[reservation.name] > _RESERVE_AFTER
        if reservation and wide:
            self.engine.reserve(reservation.cards, f"{self.record.id}/{reservation.name}")
        else:
            self.engine.reserve((), "")

    def wish(self, name: str, clock: float) -> schedule.Ready:
        """Describe a ready job to the planner."""
        job = self.jobs[name]
        expected = self.expected[name]
        return schedule.Ready(
            name,
            expected,
            job.cards.count,
            job.cards.model,
            job.cards.exclusive,
            job.memory or 0,
            waited=clock - self.ready_since[name],
            tail=max(0.0, self.tails[name] - expected),
        )

    def seen(self, active: Active, clock: float) -> schedule.Running:
        """Describe a running job to the planner."""
        job = active.job
        left = schedule.remaining(self.expected[job.name], clock - active.since, job.timeout)
        return schedule.Running(job.name, active.cards, left, job.cards.exclusive, job.memory or 0)

    def foreign(self, held: Held) -> schedule.Running:
        """Describe a card that another runner holds to the planner."""
        left = max(0.0, held.until - time.time()) if held.until is not None else _OTHERS
        return schedule.Running(f"another run on {held.uuid}", (held.uuid,), left, not held.shared)

    async def start(self, r: JobRecord, uuids: Sequence[str]) -> bool:
        """Start one attempt; False when another runner was quicker to lease its cards."""
        job, n = self.jobs[r.name], len(r.attempts) + 1
        cards = tuple(self.cards[u] for u in uuids)
        log = self.place.log(job.name, n)
        attempt = Attempt(
            n=n,
            started=now(),
            log=str(log.relative_to(self.place.folder)),
            cards=[card_record(c) for c in cards],
        )

        def leased() -> None:
            attempt.started = now()
            r.attempts.append(attempt)
            move(r, Status.RUNNING)
            self.note(r)

        try:
            launch = self.launch(job, n, cards)
            if cards and await self.set_aside(r, cards, shared=not job.cards.exclusive):
                return True
            problems = prepare.missing_inputs(job.inputs, self.place.cwd(job), launch.env)
            if problems:
                leased()
                self.refuse(r, attempt, "input_missing", problems, Status.FAILED)
                return True
            active = Active(job, tuple(uuids), time.monotonic())
            self.active[job.name] = active
            active.handle = await self.engine.start(launch, leased)
        except MatrixError as e:
            self.active.pop(job.name, None)
            if r.status is not Status.RUNNING:
                leased()
            self.refuse(r, attempt, "cannot_start", [e.message], Status.ERROR)
            return True
        if active.handle is None:
            del self.active[job.name]
            return False
        self.end(active)  # in case the run was stopped meanwhile
        self.tasks.add(asyncio.create_task(self.follow(r, attempt, active)))
        return True

    async def set_aside(self, r: JobRecord, cards: Sequence[Card], *, shared: bool) -> bool:
        """Look at cards before a job gets them; whether any had to be set aside."""
        dirty = await self.keeper.dirty([c.uuid for c in cards], shared=shared)
        if not dirty:
            return False
        self.notes.setdefault(r.name, []).extend(dirty)
        left = tuple(c for c in self.capacity.cards if c.id not in self.keeper.aside)
        self.capacity = replace(self.capacity, cards=left)
        for waiting in self.pending():
            want = self.jobs[waiting.name].cards
            if want.count > sum(hosts.card_suits(c, want.model) for c in left):
                problems = [
                    f"card {uuid} is not fit for a job: {'; '.join(why)}" for uuid, why in self.keeper.aside.items()
                ]
                n = len(waiting.attempts) + 1
                log = str(self.place.log(waiting.name, n).relative_to(self.place.folder))
                attempt = Attempt(n=n, started=now(), log=log)
                waiting.attempts.append(attempt)
                move(waiting, Status.RUNNING)
                self.note(waiting)
                self.refuse(waiting, attempt, "card_unhealthy", problems, Status.ERROR)
        return True

    def launch(self, job: Job, n: int, cards: tuple[Card, ...]) -> Launch:
        """Make everything ready for an attempt."""
        scratch = self.place.scratch(job.name, n)
        scratch.mkdir(parents=True, exist_ok=True)
        return Launch(
            tag=tag(self.record.id, job.name, n),
            argv=prepare.command(job, n, self.place),
            cwd=self.place.cwd(job),
            env=prepare.environment(job, n, self.place),
            log=self.place.log(job.name, n),
            scratch=scratch,
            timeout=job.timeout,
            cards=cards,
            shared=not job.cards.exclusive,
            container=job.container,
            facts={"run": self.record.id, "job": job.name, "until": time.time() + self.expected[job.name]},
            want=job.cards,
            nodes=job.nodes,
            memory=job.memory,
        )

    def refuse(self, r: JobRecord, attempt: Attempt, category: str, problems: list[str], status: Status) -> None:
        """Record an attempt that could not be started, with its reasons in the log."""
        log = JobLog(str(self.place.folder / attempt.log))
        causes = [cause(category, text, job=r.name, line=log.remark(text)) for text in problems]
        self.conclude(r, attempt, Judgement(status, causes))

    async def follow(self, r: JobRecord, attempt: Attempt, active: Active) -> None:
        """Wait for an attempt, judge it, and conclude."""
        assert active.handle is not None
        out: Outcome = await active.handle.wait()
        del self.active[r.name]
        self.wake.set()  # its cards are free while it is being judged
        await self.judge(r, attempt, out)

    async def judge(self, r: JobRecord, attempt: Attempt, out: Outcome) -> None:
        """Judge an attempt that ended, and conclude."""
        attempt.exit_code, attempt.signal, attempt.peak_memory = out.exit_code, out.signal, out.peak_memory
        if self.engine.queue:  # which cards, and when it began, was not ours to say
            attempt.cards, attempt.started = [card_record(c) for c in out.cards], stamp(out.started)
        card = attempt.cards[0].model if attempt.cards else None
        try:
            found = await asyncio.to_thread(judge, self.jobs[r.name], attempt.n, out, self.place, card)
        except (MatrixError, OSError) as e:
            text = f"the result cannot be judged: {e}"
            found = Judgement(Status.ERROR, [cause("runner_lost", text, job=r.name)])
        if found.status in BAD and not self.engine.queue:
            found.facts += await self.keeper.after(found.causes, [c.uuid for c in attempt.cards])
        if out.moved:
            self.moves[r.name] = self.moves.get(r.name, 0) + 1
        self.conclude(r, attempt, found, moved=out.moved and self.moves[r.name] <= _MOVES)

    def conclude(self, r: JobRecord, attempt: Attempt, found: Judgement, *, moved: bool = False) -> None:
        """Enter what was found, and try again where the policy says so, or where its place was taken away."""
        attempt.ended, attempt.status, attempt.causes = now(), found.status, found.causes
        r.facts, r.failing_tests = [*self.notes.pop(r.name, []), *found.facts], found.failing_tests
        job = self.jobs[r.name]
        today = date.today().isoformat()  # noqa: DTZ011 -- the reader's day
        r.allowed = found.status in BAD and job.allowed(today)
        r.verdict = Verdict() if found.status in BAD else None
        reason = job.allow_failure.reason if r.allowed and job.allow_failure else None
        if found.status is Status.FAILED and not r.allowed:
            reason = self.quarantine.excuse(found.failing_tests, found.causes, today, r.name)
            r.allowed = reason is not None
        move(r, found.status, reason=reason)
        done = len(r.attempts) - self.first_attempt[r.name] - self.moves.get(r.name, 0)
        if not self.stopping and (moved or retried(found.status, found.causes, done, job.retries)):
            self.note(r)
            move(r, Status.PENDING, reason=f"attempt {attempt.n} ended with {found.causes[0].category}; tried again")
        self.note(r)
        self.wake.set()

    async def something_happens(self) -> None:
        """Wait until an attempt ends, the run is stopped, or cards of other runners may have come back."""
        waker = asyncio.create_task(self.wake.wait())
        timeout = _POLL if self.waiting_for_others and not self.stopping else None
        done, _ = await asyncio.wait({*self.tasks, waker}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        waker.cancel()
        self.wake.clear()
        for task in done & self.tasks:
            self.tasks.discard(task)
            task.result()
