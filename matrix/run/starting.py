"""The start of an attempt: what the planner is told, cards that are looked at, and the job handed to the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from matrix.engine.base import Held, Launch
from matrix.errors import MatrixError
from matrix.host.gpus import Card
from matrix.plan import forecast, hosts, schedule
from matrix.records import Attempt, Fact, JobRecord, Status, card_record, move
from matrix.run import prepare
from matrix.run.clock import now, stamp
from matrix.run.concluding import Concluder
from matrix.run.record import tag
from matrix.run.state import Active, State
from matrix.spec.job import Job

RESERVE_AFTER = 30.0  # seconds that a job waits for cards of other runners before these leave it some
_OTHERS = 300.0  # seconds that a card of another runner is taken to be away when nothing is said of it

Follow = Callable[[JobRecord, Attempt, Active], None]  # takes over an attempt that has begun


class Starter:
    """Starts the attempts of a run."""

    def __init__(self, state: State, desk: Concluder, follow: Follow) -> None:
        self.state, self.desk, self.follow = state, desk, follow
        self.waiting_for_others = False  # runners whose cards may come back any moment

    async def start_some(self) -> bool:
        """Start what the planner says; whether anything was started or refused."""
        state, clock = self.state, time.monotonic()
        ready = state.startable(clock)
        for name in ready:
            state.ready_since.setdefault(name, clock)
        if not ready:
            return False
        if state.engine.queue:
            return any([await self.start(state.record.job(name), ()) for name in ready])
        others = await state.engine.held_by_others() if any(state.jobs[n].cards.count for n in ready) else ()
        running = [self.seen(a, clock) for a in state.active.values()] + [_foreign(h) for h in others]
        decision = schedule.decide([self.wish(n, clock) for n in ready], running, state.capacity)
        self.waiting_for_others = bool(others)
        self.reserve(decision.reservation, clock)
        began = False
        for start in decision.starts:
            if await self.start(state.record.job(start.name), start.cards):
                began = True
            else:
                self.waiting_for_others = True
        return began

    def reserve(self, reservation: schedule.Reservation | None, clock: float) -> None:
        """Have other runners leave cards to a job that they keep waiting; within a run, `decide` does."""
        state = self.state
        wide = reservation and self.waiting_for_others and clock - state.ready_since[reservation.name] > RESERVE_AFTER
        if reservation and wide:
            state.engine.reserve(reservation.cards, f"{state.record.id}/{reservation.name}")
        else:
            state.engine.reserve((), "")

    def wish(self, name: str, clock: float) -> schedule.Ready:
        """Describe a ready job to the planner."""
        state = self.state
        expected = state.expected[name]
        tail = max(0.0, state.tails[name] - expected)
        avoid, strict = self.avoid(name)
        waited = clock - state.ready_since[name]
        return forecast.as_ready(state.jobs[name], expected, waited=waited, tail=tail, avoid=avoid, strict=strict)

    def avoid(self, name: str) -> tuple[frozenset[str], bool]:
        """Return the cards on which a job failed, and whether it takes none of them.

        It does once too few others are left (some were set aside meanwhile): else it would wait for ever.
        """
        retry, want = self.state.record.job(name).retry, self.state.jobs[name].cards
        if retry is None:
            return frozenset(), False
        others = [c for c in self.state.capacity.cards if c.id not in retry.cards and hosts.card_suits(c, want.model)]
        if retry.strict and len(others) < want.count:
            retry.strict = False
            said = f"on what there is, for only {len(others)} others are fit"
            self.state.notes.setdefault(name, []).append(Fact(key="tried_again", value=said))
        return frozenset(retry.cards), retry.strict

    def seen(self, active: Active, clock: float) -> schedule.Running:
        """Describe a running job to the planner."""
        job = active.job
        left = schedule.remaining(self.state.expected[job.name], clock - active.since, job.timeout)
        return forecast.as_running(job, active.cards, left)

    async def start(self, r: JobRecord, uuids: Sequence[str]) -> bool:
        """Start one attempt; False when another runner was quicker to lease its cards."""
        state = self.state
        job, n = state.jobs[r.name], len(r.attempts) + 1
        cards = tuple(state.cards[u] for u in uuids)
        attempt = self.attempt(r, cards)

        def leased() -> None:
            attempt.started = now()
            r.attempts.append(attempt)
            move(r, Status.RUNNING, reason=f"in the queue of {state.engine.name}" if state.engine.queue else None)
            state.note(r)

        try:
            launch = self.launch(job, n, cards)
            if cards and await self.set_aside(r, cards, shared=not job.cards.exclusive):
                return True
            problems = prepare.missing_inputs(job.inputs, state.place.cwd(job), launch.env)
            if problems:
                leased()
                self.desk.refuse(r, attempt, "input_missing", problems, Status.FAILED)
                return True
            active = Active(job, tuple(uuids), time.monotonic())
            state.active[job.name] = active
            active.handle = await state.engine.start(launch, leased)
        except MatrixError as e:
            state.active.pop(job.name, None)
            if r.status is not Status.RUNNING:
                leased()
            self.desk.refuse(r, attempt, "cannot_start", [e.message], Status.ERROR)
            return True
        if active.handle is None:
            del state.active[job.name]
            return False
        state.end(active)  # in case the run was stopped meanwhile
        self.follow(r, attempt, active)
        return True

    def attempt(self, r: JobRecord, cards: Sequence[Card] = ()) -> Attempt:
        """Make the record of the next attempt of a job; it is entered when the attempt begins."""
        n = len(r.attempts) + 1
        log = self.state.place.log(r.name, n).relative_to(self.state.place.folder)
        return Attempt(n=n, started=now(), log=str(log), cards=[card_record(c) for c in cards])

    async def set_aside(self, r: JobRecord, cards: Sequence[Card], *, shared: bool) -> bool:
        """Look at cards before a job gets them; whether any had to be set aside."""
        state = self.state
        dirty = await state.keeper.dirty([c.uuid for c in cards], shared=shared)
        if not dirty:
            return False
        state.notes.setdefault(r.name, []).extend(dirty)
        left = tuple(c for c in state.capacity.cards if c.id not in state.keeper.aside)
        state.capacity = replace(state.capacity, cards=left)
        for waiting in state.pending():
            want = state.jobs[waiting.name].cards
            if want.count > sum(hosts.card_suits(c, want.model) for c in left):
                problems = [
                    f"card {uuid} is not fit for a job: {'; '.join(why)}" for uuid, why in state.keeper.aside.items()
                ]
                attempt = self.attempt(waiting)
                waiting.attempts.append(attempt)
                move(waiting, Status.RUNNING)
                state.note(waiting)
                self.desk.refuse(waiting, attempt, "card_unhealthy", problems, Status.ERROR)
        return True

    def launch(self, job: Job, n: int, cards: tuple[Card, ...]) -> Launch:
        """Make everything ready for an attempt."""
        state, place = self.state, self.state.place
        retry = state.record.job(job.name).retry
        scratch = place.scratch(job.name, n)
        scratch.mkdir(parents=True, exist_ok=True)
        return Launch(
            tag=tag(state.record.id, job.name, n),
            argv=prepare.command(job, n, place),
            cwd=place.cwd(job),
            env=prepare.environment(job, n, place),
            log=place.log(job.name, n),
            scratch=scratch,
            timeout=job.timeout,
            cards=cards,
            shared=not job.cards.exclusive,
            container=job.container,
            facts={"run": state.record.id, "job": job.name, "until": time.time() + state.expected[job.name]},
            want=job.cards,
            nodes=job.nodes,
            memory=job.memory,
            exclude=tuple(retry.hosts) if retry else (),
            began=partial(self.began, job.name, n) if state.engine.queue else None,
        )

    def began(self, name: str, n: int, nodes: Sequence[str], cards: Sequence[Card], at: float) -> None:
        """Enter where an attempt runs that a queue has let begin."""
        r = self.state.record.job(name)
        attempt = r.attempts[n - 1]
        attempt.hosts, attempt.cards, attempt.started = list(nodes), [card_record(c) for c in cards], stamp(at)
        r.reason = None
        self.state.note(r)


def _foreign(held: Held) -> schedule.Running:
    """Describe a card that another runner holds to the planner."""
    left = max(0.0, held.until - time.time()) if held.until is not None else _OTHERS
    return schedule.Running(f"another run on {held.uuid}", (held.uuid,), left, not held.shared)
