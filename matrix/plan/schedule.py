"""Which job starts next, and on which cards. Pure: the engine says what is ready, what runs and what time it is.

Longest first: jobs go by the expected time of the longest chain that begins with them; wide jobs come earlier for their
width, and waiting makes any job more urgent (ageing). The first job that does not fit gets a reservation: the earliest
moment, by the expected ends of what runs, at which its cards will be free. Others start before it only if they end by
then or leave it its cards (EASY backfill: Lifka, The ANL/IBM SP scheduling system, 1995). So a wide job never starves,
and a card never idles when something fits behind the reservation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from matrix.plan.hosts import Card, card_suits

# A second of waiting counts as so many seconds of chain: enough that nothing is passed over for ever.
AGEING = 0.02
# So many jobs that are not exclusive may be on one card.
SHARERS = 4


@dataclass(frozen=True, slots=True)
class Ready:
    """A job that may start: all that it needs is there."""

    name: str
    expected: float  # seconds
    cards: int = 0
    model: str | None = None
    exclusive: bool = True
    memory: int = 0  # bytes of main memory
    waited: float = 0.0  # seconds since it became ready
    tail: float = 0.0  # expected seconds of the longest chain that follows it
    avoid: frozenset[str] = frozenset()  # cards on which it failed: taken last
    strict: bool = False  # not even last

    @property
    def chain(self) -> float:
        """Expected seconds of the longest chain that begins with this job."""
        return self.expected + self.tail


@dataclass(frozen=True, slots=True)
class Running:
    """A job that runs, and when its cards are expected back (seconds from now, see `remaining`)."""

    name: str
    cards: tuple[str, ...]
    remaining: float
    exclusive: bool = True
    memory: int = 0


def remaining(expected: float, elapsed: float, limit: float = math.inf) -> float:
    """Guess how much longer a job runs: an overdue one once more as long as it is overdue, but to its limit at most.

    Were an overdue job expected back at any moment, all cards would idle beside it for a reservation that it holds up.
    """
    left = expected - elapsed
    return max(0.0, min(left if left > 0 else -left, limit - elapsed))


@dataclass(frozen=True, slots=True)
class Start:
    """Start this job now, on these cards."""

    name: str
    cards: tuple[str, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Reservation:
    """The job that waits for its cards, and when it is expected to start (seconds from now)."""

    name: str
    cards: tuple[str, ...]
    after: float


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now."""

    starts: tuple[Start, ...] = ()
    reservation: Reservation | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a host offers. `cpu_jobs`: how many jobs without cards may run at once; memory None: not counted."""

    cards: tuple[Card, ...]
    cpu_jobs: int = 1
    memory: int | None = None


@dataclass(slots=True)
class _State:
    """Who is where: for each card the exclusive holder or the number of sharers."""

    capacity: Capacity
    held: set[str] = field(default_factory=set)
    sharers: dict[str, int] = field(default_factory=dict)
    cpu: int = 0
    memory: int = 0

    def copy(self) -> _State:
        return replace(self, held=set(self.held), sharers=dict(self.sharers))

    def take(self, cards: Sequence[str], memory: int, *, exclusive: bool, sign: int = 1) -> None:
        self.memory += sign * memory
        if not cards:
            self.cpu += sign
        elif not exclusive:
            for card in cards:
                self.sharers[card] = self.sharers.get(card, 0) + sign
        elif sign > 0:
            self.held.update(cards)
        else:
            self.held.difference_update(cards)

    def place(self, job: Ready, avoid: frozenset[str] = frozenset()) -> tuple[str, ...] | None:
        """Cards for a job as things stand, those outside `avoid` first; None when it does not fit."""
        if self.capacity.memory is not None and self.memory + job.memory > self.capacity.memory and self.memory:
            return None
        if not job.cards:
            return () if self.cpu < max(1, self.capacity.cpu_jobs) else None
        free = [card for card in suited(job, self.capacity.cards) if self._open(card.id, job)]
        if len(free) < job.cards:
            return None
        # Sharers fill cards that are shared already; a job that takes any model leaves the rarer cards alone.
        counts: dict[str | None, int] = {}
        for card in self.capacity.cards:
            counts[card.model] = counts.get(card.model, 0) + 1
        free.sort(
            key=lambda card: (
                card.id in job.avoid,
                card.id in avoid,
                -self.sharers.get(card.id, 0),
                -counts[card.model],
            )
        )
        return tuple(card.id for card in free[: job.cards])

    def _open(self, card: str, job: Ready) -> bool:
        if card in self.held:
            return False
        return self.sharers.get(card, 0) < (1 if job.exclusive else SHARERS)


def suited(job: Ready, cards: Iterable[Card]) -> list[Card]:
    """Cards that a job could have if all were free."""
    return [c for c in cards if card_suits(c, job.model) and not (job.strict and c.id in job.avoid)]


def by_urgency(ready: Sequence[Ready], cards: int) -> list[Ready]:
    """Most urgent first: long chains, wide jobs, long waits.

    A job that takes every card counts as if its chain were longer by the time that all ready work takes, narrower ones
    by their share. Wide jobs early are no loss: one after the other they leave no card idle, and later each would have
    to wait until all cards are free at the same moment.
    """
    work = sum(job.cards * job.expected for job in ready) / max(1, cards)

    def urgency(job: Ready) -> float:
        return job.chain + work * job.cards / max(1, cards) + AGEING * job.waited

    return sorted(ready, key=lambda job: (-urgency(job), -job.cards, job.name))


def decide(ready: Iterable[Ready], running: Iterable[Running], capacity: Capacity) -> Decision:
    """Say which of the ready jobs start now, on which cards, and for which job cards are being kept.

    A job that would not even fit an empty host is passed over: it must be refused before (see `Host.fits`).
    """
    state, busy = _State(capacity), list(running)
    for held in busy:
        state.take(held.cards, held.memory, exclusive=held.exclusive)
    empty = _State(capacity)
    queue = by_urgency([job for job in ready if empty.place(job) is not None], len(capacity.cards))
    starts: list[Start] = []
    reserved: tuple[Ready, float] | None = None
    kept: tuple[str, ...] = ()
    for job in queue:
        cards = state.place(job, frozenset(kept))
        if cards is None:
            if reserved is None:
                reserved, kept = _reserve(job, busy, state)
            continue
        why = "most urgent"
        if reserved is not None:
            if not _harmless(job, cards, busy, state, reserved):
                continue
            why = f"fits behind {reserved[0].name}"
        starts.append(Start(job.name, cards, why))
        busy.append(Running(job.name, cards, job.expected, job.exclusive, job.memory))
        state.take(cards, job.memory, exclusive=job.exclusive)
    reservation = Reservation(reserved[0].name, kept, reserved[1]) if reserved else None
    return Decision(tuple(starts), reservation)


def _reserve(job: Ready, busy: Sequence[Running], state: _State) -> tuple[tuple[Ready, float], tuple[str, ...]]:
    """When the running jobs have ended one by one as expected, the first moment at which the job fits."""
    later = state.copy()
    for other in sorted(busy, key=lambda other: other.remaining):
        later.take(other.cards, other.memory, exclusive=other.exclusive, sign=-1)
        cards = later.place(job)
        if cards is not None:
            return (job, other.remaining), cards
    return (job, math.inf), ()


def _harmless(
    job: Ready, cards: tuple[str, ...], busy: Sequence[Running], state: _State, reserved: tuple[Ready, float]
) -> bool:
    """Whether the reserved job can start as early as promised when this one starts now."""
    first, after = reserved
    if job.expected <= after:
        return True
    later = state.copy()
    later.take(cards, job.memory, exclusive=job.exclusive)
    for other in busy:
        if other.remaining <= after:
            later.take(other.cards, other.memory, exclusive=other.exclusive, sign=-1)
    return later.place(first) is not None
