"""Where a further attempt may run: on other cards than those on which it failed, or on another host. Values only."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from matrix.plan import hosts
from matrix.records import Attempt, Retry
from matrix.run.retry import Again
from matrix.spec.job import Job


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What the next attempt stays away from, and how that is said. `possible`: False where it is not made at all."""

    text: str
    cards: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    strict: bool = True
    possible: bool = True


def elsewhere(
    how: Again,
    job: Job,
    attempt: Attempt,
    earlier: Retry | None,
    cards: Sequence[hosts.Card],
    other_hosts: Callable[[Collection[str]], bool],
    *,
    queue: bool,
) -> Elsewhere:
    """Say where the attempt after `attempt` runs; `earlier` is what that one itself stayed away from.

    `cards` are those that the engine may still give; with a `queue` it gives them itself, so that another card can
    only be asked for as another host.
    """
    if how.where == "any" or (how.where == "other-card" and not job.cards.count):
        return Elsewhere("")
    lacking = "there is no other host"
    if queue:
        without = away_from(attempt.hosts, earlier.hosts if earlier else [], other_hosts)
        if without:
            return Elsewhere(f" on another host than {', '.join(without)}", hosts=without)
        return _what_there_is(how, lacking)
    if how.where == "other-host" and (how.otherwise == "no" or not job.cards.count):
        return _what_there_is(how, lacking)
    here = [c.id for c in cards if hosts.card_suits(c, job.cards.model)]
    own = [c.uuid for c in attempt.cards]
    tried = list(dict.fromkeys([*(earlier.cards if earlier else []), *own]))
    for without in (tried, own):
        if without and len([c for c in here if c not in without]) >= job.cards.count:
            return Elsewhere(f" on {_other(job)} than {', '.join(without)}", cards=without)
    lacking = f"there {'are' if job.cards.count > 1 else 'is'} no {_other(job).removeprefix('an')}"
    return _what_there_is(how, lacking, tried)


def away_from(bad: Sequence[str], earlier: Sequence[str], other_hosts: Callable[[Collection[str]], bool]) -> list[str]:
    """Return the hosts to stay away from: all on which it went badly, else the last ones; none without others."""
    if not bad:
        return []
    for without in (list(dict.fromkeys([*earlier, *bad])), list(bad)):
        if other_hosts(without):
            return without
    return []


def _other(job: Job) -> str:
    return "other cards" if job.cards.count > 1 else "another card"


def _what_there_is(how: Again, lacking: str, cards: Sequence[str] = ()) -> Elsewhere:
    if how.otherwise == "no":
        return Elsewhere(lacking, possible=False)
    return Elsewhere(f" on what there is, for {lacking}", cards=list(cards), strict=False)
