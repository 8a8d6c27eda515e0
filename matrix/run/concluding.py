"""The end of an attempt: what it came to, entered in the record, and whether it is tried again."""

from __future__ import annotations

import asyncio
from datetime import date

from matrix.engine.base import Outcome
from matrix.errors import MatrixError
from matrix.history.quarantine import Quarantine
from matrix.host.joblog import JobLog
from matrix.records import BAD, Attempt, JobRecord, Status, Verdict, card_record, move
from matrix.run.causes import cause
from matrix.run.clock import now, stamp
from matrix.run.judge import Judgement, judge
from matrix.run.retry import retried
from matrix.run.state import State

NO_QUARANTINE = Quarantine()
_MOVES = 3  # times that a job is started elsewhere when its node is lost or it is preempted


class Concluder:
    """Judges the attempts of a run."""

    def __init__(self, state: State, quarantine: Quarantine) -> None:
        self.state, self.quarantine = state, quarantine
        self.first_attempt = {r.name: len(r.attempts) for r in state.record.jobs}
        self.moves: dict[str, int] = {}  # attempts that a job lost with its place

    async def judge(self, r: JobRecord, attempt: Attempt, out: Outcome) -> None:
        """Judge an attempt that ended, and conclude."""
        state = self.state
        attempt.exit_code, attempt.signal, attempt.peak_memory = out.exit_code, out.signal, out.peak_memory
        if state.engine.queue:  # which cards, and when it began, was not ours to say
            attempt.cards, attempt.started = [card_record(c) for c in out.cards], stamp(out.started)
        card = attempt.cards[0].model if attempt.cards else None
        try:
            found = await asyncio.to_thread(judge, state.jobs[r.name], attempt.n, out, state.place, card)
        except (MatrixError, OSError) as e:
            text = f"the result cannot be judged: {e}"
            found = Judgement(Status.ERROR, [cause("runner_lost", text, job=r.name)])
        if found.status in BAD and not state.engine.queue:
            found.facts += await state.keeper.after(found.causes, [c.uuid for c in attempt.cards])
        if out.moved:
            self.moves[r.name] = self.moves.get(r.name, 0) + 1
        self.conclude(r, attempt, found, moved=out.moved and self.moves[r.name] <= _MOVES)

    def refuse(self, r: JobRecord, attempt: Attempt, category: str, problems: list[str], status: Status) -> None:
        """Record an attempt that could not be started, with its reasons in the log."""
        log = JobLog(str(self.state.place.folder / attempt.log))
        causes = [cause(category, text, job=r.name, line=log.remark(text)) for text in problems]
        self.conclude(r, attempt, Judgement(status, causes))

    def conclude(self, r: JobRecord, attempt: Attempt, found: Judgement, *, moved: bool = False) -> None:
        """Enter what was found, and try again where the policy says so, or where its place was taken away."""
        state = self.state
        attempt.ended, attempt.status, attempt.causes = now(), found.status, found.causes
        r.facts, r.failing_tests = [*state.notes.pop(r.name, []), *found.facts], found.failing_tests
        job = state.jobs[r.name]
        today = date.today().isoformat()  # noqa: DTZ011 -- the reader's day
        r.allowed = found.status in BAD and job.allowed(today)
        r.verdict = Verdict() if found.status in BAD else None
        reason = job.allow_failure.reason if r.allowed and job.allow_failure else None
        if found.status is Status.FAILED and not r.allowed:
            reason = self.quarantine.excuse(found.failing_tests, found.causes, today, r.name)
            r.allowed = reason is not None
        move(r, found.status, reason=reason)
        done = len(r.attempts) - self.first_attempt[r.name] - self.moves.get(r.name, 0)
        if not state.stopping and (moved or retried(found.status, found.causes, done, job.retries)):
            state.note(r)
            move(r, Status.PENDING, reason=f"attempt {attempt.n} ended with {found.causes[0].category}; tried again")
        state.note(r)
        state.wake.set()
