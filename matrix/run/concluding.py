"""The end of an attempt: what it came to, entered in the record, and whether it is tried again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import date

from matrix.engine.base import Outcome
from matrix.errors import MatrixError
from matrix.history.quarantine import Quarantine
from matrix.host.joblog import JobLog
from matrix.records import (
    BAD,
    QUARANTINED,
    Attempt,
    Fact,
    JobRecord,
    Retry,
    Status,
    Verdict,
    card_record,
    move,
    passed_at_last,
)
from matrix.report.text import count
from matrix.run.causes import cause
from matrix.run.clock import now, stamp
from matrix.run.elsewhere import away_from, elsewhere
from matrix.run.judge import Judgement, judge
from matrix.run.retry import again, asks_for_verdict
from matrix.run.state import State
from matrix.spec.retry import RetryRule
from matrix.spec.units import format_duration

NO_QUARANTINE = Quarantine()
# Seconds before a job is started elsewhere when its node is lost, has not the cards, or it is preempted; then no more.
# A controller that has just restarted gives cards away that it does not know yet: some seconds later it does.
_MOVES = (2.0, 10.0, 30.0)
_NAMED = 20  # quarantined failures of a job that are named
_TRIED = ("tried_again", "not_tried_again")  # keys of the facts that tell of further attempts

# Says what the history holds of the last attempt of a job, soon: see `memory.verdict_now`.
Verdicts = Callable[[JobRecord], str]


class Concluder:
    """Judges the attempts of a run."""

    def __init__(
        self, state: State, quarantine: Quarantine, policy: Sequence[RetryRule], verdicts: Verdicts | None
    ) -> None:
        self.state, self.quarantine, self.policy = state, quarantine, policy
        self.verdicts = verdicts if asks_for_verdict(policy) else None
        self.moves: dict[str, int] = {}  # attempts that a job lost with its place

    async def judge(self, r: JobRecord, attempt: Attempt, out: Outcome) -> None:
        """Judge an attempt that ended, and conclude."""
        state = self.state
        attempt.exit_code, attempt.signal, attempt.peak_memory = out.exit_code, out.signal, out.peak_memory
        attempt.hosts = list(out.hosts)
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
        verdict = "cannot-tell"
        if self.verdicts and found.status in BAD and r.retried < state.jobs[r.name].retries:
            attempt.status, attempt.causes = found.status, found.causes
            verdict = await asyncio.to_thread(self.verdicts, r)
        moved = out if out.moved and self.moves[r.name] <= len(_MOVES) else None
        self.conclude(r, attempt, found, moved=moved, verdict=verdict)

    def refuse(self, r: JobRecord, attempt: Attempt, category: str, problems: list[str], status: Status) -> None:
        """Record an attempt that could not be started, with its reasons in the log."""
        log = JobLog(str(self.state.place.folder / attempt.log))
        causes = [cause(category, text, job=r.name, line=log.remark(text)) for text in problems]
        self.conclude(r, attempt, Judgement(status, causes))

    def conclude(
        self,
        r: JobRecord,
        attempt: Attempt,
        found: Judgement,
        *,
        moved: Outcome | None = None,
        verdict: str = "cannot-tell",
    ) -> None:
        """Enter what was found, and try again where the policy says so, or where its place was taken away."""
        state = self.state
        attempt.ended, attempt.status, attempt.causes = now(), found.status, found.causes
        told = [f for f in r.facts if f.key in _TRIED]
        r.facts, r.failing_tests = [*told, *state.notes.pop(r.name, []), *found.facts], found.failing_tests
        job = state.jobs[r.name]
        today = date.today().isoformat()  # noqa: DTZ011 -- the reader's day
        r.allowed = found.status in BAD and job.allowed(today)
        r.verdict = Verdict() if found.status in BAD else None
        reason = job.allow_failure.reason if r.allowed and job.allow_failure else None
        if found.status is Status.FAILED and not r.allowed:
            reason = self.quarantine.excuse(found.failing_tests, found.causes, today, r.name)
            r.allowed = reason is not None
        excused = dict.fromkeys([*found.excused, *self.quarantine.told(found.failing_tests, today, r.name)])
        if excused:
            text = f"{count(len(excused), 'quarantined failure')}: {'; '.join(list(excused)[:_NAMED])}"
            more = f"; and {len(excused) - _NAMED} more" if len(excused) > _NAMED else ""
            r.facts.append(Fact(key=QUARANTINED, value=text + more))
        over = self.quarantine.expired_of(found.failing_tests, today, r.name) if found.status in BAD else []
        r.facts += [Fact(key="quarantine_expired", value=e.over()) for e in over]
        if found.status is Status.PASSED and attempt.n > 1:
            reason = passed_at_last(r)
        move(r, found.status, reason=reason)
        state.ready_since.pop(r.name, None)
        if not state.stopping and moved:
            self.move_on(r, attempt, found, moved.unfit)
        elif not state.stopping:
            self.try_again(r, attempt, found, verdict)
        state.note(r)
        state.wake.set()

    def move_on(self, r: JobRecord, attempt: Attempt, found: Judgement, unfit: Sequence[str]) -> None:
        """Put a job whose place was taken away back into the queue, away from nodes that had not what they promised."""
        state, job, earlier = self.state, self.state.jobs[r.name], r.retry or Retry(at=stamp(0.0))
        away = away_from(unfit, earlier.hosts, lambda hosts: state.engine.elsewhere(job.cards, job.nodes, hosts))
        wait = _MOVES[self.moves[r.name] - 1]
        r.retry = earlier.model_copy(update={"at": stamp(time.time() + wait), "hosts": away or earlier.hosts})
        state.not_before[r.name] = time.monotonic() + wait
        state.note(r)
        where = f" on another host than {', '.join(away)}" if away else ""
        ended = f"attempt {attempt.n} ended with {found.causes[0].category}"
        move(r, Status.PENDING, reason=f"{ended}: tried again{where} after {format_duration(wait)}")

    def try_again(self, r: JobRecord, attempt: Attempt, found: Judgement, verdict: str) -> None:
        """Put a job back into the queue where the policy says so: with a pause, away from where it failed."""
        state, job, earlier = self.state, self.state.jobs[r.name], r.retry
        r.retry = None
        how = again(
            self.policy, found.status, found.causes, found.failing_tests,
            verdict=verdict, attempt=r.retried + 1, allowed=job.retries,
        )  # fmt: skip
        if how is None:
            return
        where = elsewhere(
            how, job, attempt, earlier, state.capacity.cards,
            lambda hosts: state.engine.elsewhere(job.cards, job.nodes, hosts), queue=state.engine.queue,
        )  # fmt: skip
        ended = f"attempt {attempt.n} ended with {found.causes[0].category}"
        if not where.possible:
            r.facts.append(Fact(key="not_tried_again", value=f"{ended}: not tried again, {where.text}"))
            return
        state.note(r)
        text = f"{ended}: tried again{where.text}" + (f" after {format_duration(how.wait)}" if how.wait else "")
        r.facts.append(Fact(key="tried_again", value=text + (f" ({how.reason})" if how.reason else "")))
        r.retried += 1
        r.retry = Retry(at=stamp(time.time() + how.wait), cards=where.cards, hosts=where.hosts, strict=where.strict)
        state.not_before[r.name] = time.monotonic() + how.wait
        move(r, Status.PENDING, reason=text)
