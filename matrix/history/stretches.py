"""Stretches of sightings: where the base branch was broken, and when an outage lasted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from matrix.history.evidence import Evidence, Trial

HOUR = 3600.0
BURST = 6 * HOUR  # an outage is dense in time: sightings of it are no further apart
_HIT = 2.5  # how much a sighting speaks for a stretch (log odds against chance)
_PASS_IN_OUTAGE = -0.7


@dataclass
class Stretch:
    """Trials that belong together."""

    trials: list[Trial] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ids = set(map(id, self.trials))
        self.hits = [t for t in self.trials if t.hit]
        self.passed = [t for t in self.trials if not t.hit]

    def __contains__(self, t: Trial) -> bool:
        return id(t) in self.ids

    def without(self, trials: Iterable[Trial]) -> list[Trial]:
        """Leave its trials out."""
        return [t for t in trials if id(t) not in self.ids]


def places(e: Evidence) -> list[float]:
    """Where the failure may stand on the base branch: nobody knows exactly when its merge base was not tested."""
    if e.sure:
        return [e.place]
    found = {e.place}
    if e.failure.seen.base is None:
        found.add(e.failure.seen.at)
    earlier = [t.place for t in e.trials if t.on_base and not t.hit and t.place is not None and t.place <= e.place]
    if earlier:
        found.add(max(earlier) - 1.0)  # the pass may be of a later commit
    return sorted(found)


def broken_at(e: Evidence, place: float) -> Stretch:
    """Find the stretch of the base branch around a place in which it may be broken in this way."""
    # What has the same merge base stands where the failure stands.
    placed = [(place if t.place == e.place else t.place, t) for t in e.trials if t.place is not None]
    placed.sort(key=lambda p: p[0])
    left = [t for at, t in reversed(placed) if at < place]
    right = [t for at, t in placed if at > place]
    sides = [_best_start(side, [_HIT if t.hit else t.may_pass for t in side]) for side in (left, right)]
    return Stretch([*sides[0], *(t for at, t in placed if at == place), *sides[1]])


def burst_at(e: Evidence, host: str | None) -> Stretch:
    """Find the time around the failure in which an outage may have lasted, of one host or of all."""
    at = e.failure.seen.at
    near = [t for t in (*e.trials, *e.own, *e.elsewhere) if host is None or t.o.host == host]
    near.sort(key=lambda t: t.o.at)
    left, right = [t for t in reversed(near) if t.o.at <= at], [t for t in near if t.o.at > at]
    return Stretch([t for side in (left, right) for t in _best_start(side, _burst_gains(side, at))])


def _burst_gains(side: list[Trial], at: float) -> list[float]:
    gains: list[float] = []
    runs: set[str] = set()
    last = at
    for t in side:
        if abs(t.o.at - last) > BURST:
            break
        if t.hit:
            gains.append(0.3 if t.o.run in runs else _HIT)  # jobs of one run are one witness
            runs.add(t.o.run)
            last = t.o.at
        else:
            gains.append(_PASS_IN_OUTAGE)
    return gains


def _best_start(trials: list[Trial], gains: list[float]) -> list[Trial]:
    """Cut off where the sum of the gains is highest; they may end before the trials do."""
    best, upto, total = 0.0, 0, 0.0
    for i, gain in enumerate(gains, 1):
        total += gain
        if total > best:
            best, upto = total, i
    return trials[:upto]


def episodes(trials: list[Trial], e: Evidence) -> list[tuple[Stretch, float]]:
    """Find stretches with three hits or more, with the log of how likely they are if broken or out.

    None of them holds the failure: then it would come from there.
    """
    if sum(t.hit for t in trials) < 3:
        return []
    on_branch = [(t.place, t, t.may_pass) for t in trials if t.place is not None]
    found = _densest_first(on_branch, e.place, math.inf)
    taken = {id(t) for stretch, _ in found for t in stretch.trials}
    in_time = [(t.o.at, t, math.log(0.4)) for t in trials if id(t) not in taken]
    return found + _densest_first(in_time, e.failure.seen.at, BURST)


def _densest_first(points: list[tuple[float, Trial, float]], here: float, within: float) -> list[tuple[Stretch, float]]:
    found: list[tuple[Stretch, float]] = []
    points = sorted((p for p in points if p[0] != here), key=lambda p: p[0])
    sides = [[p for p in points if p[0] < here], [p for p in points if p[0] > here]]
    for side in sides:
        left = side
        while sum(t.hit for _, t, _ in left) >= 3:
            begin, end = _densest(left, within)
            stretch = Stretch([t for _, t, _ in left[begin:end]])
            if len(stretch.hits) < 3:
                break
            passes = sum(odds for _, t, odds in left[begin:end] if not t.hit)
            found.append((stretch, len(stretch.hits) * math.log(0.97) + passes))
            left = left[:begin] + left[end:]
    return found


def _densest(points: list[tuple[float, Trial, float]], within: float) -> tuple[int, int]:
    """Return the part with the highest sum of gains; sightings that are far apart for their kind gain less."""
    best, span, total, begin = 0.0, (0, 0), 0.0, 0
    last: float | None = None
    for i, (at, t, odds) in enumerate(points, 1):
        if total <= 0:
            total, begin = 0.0, i - 1
        apart = 0.0 if last is None else min((at - last) / within, 5.0)
        total += _HIT - apart if t.hit else odds
        last = at if t.hit else last
        if total > best:
            best, span = total, (begin, i)
    return span
