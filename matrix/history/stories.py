"""How well each story fits what was seen: the base branch is broken, an outage, a flake, this change.

Every story gives the failure and all related sightings a probability; what a story does not explain has to be explained
by something else that happened besides, which costs. The figures are rough beliefs about repositories, written down
once and not fitted to any; what comes out is compared with made histories in `likelihood.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise

from matrix.history.evidence import DAY, Evidence, Trial
from matrix.history.stretches import BURST, HOUR, Stretch, broken_at, burst_at, episodes, places

# Linters, compilers and gates do the same thing each time.
NEVER_FLAKY = frozenset({"lint_failure", "gate_not_met", "cpp_compile_error", "coverage_under_threshold"})
# The host is at fault by the nature of these, whoever's change it ran.
HOST_FAULTS = frozenset({"runner_lost", "driver_mismatch", "disk_full", "image_pull_failure", "shared_memory_full"})
# Services outside of the repository.
OUTSIDE = HOST_FAULTS | {"network_failure", "hub_offline", "hub_access_denied", "git_failure", "log_unavailable"}

log = math.log
# How likely each is for one job of one run, before anything is compared; a flake's is in RATES.
PRIOR = {"this-change": log(0.01), "base": log(0.01), "infra": log(0.01), "flaky": 0.0}
# Rates of a flaky test, and how likely a failure has such a rate; the first is what happens once in a blue moon.
RATES = ((1e-5, 0.76), (0.004, 0.06), (0.015, 0.06), (0.05, 0.06), (0.12, 0.04), (0.3, 0.02))
HIT_SHARES = (0.3, 0.6, 0.95)  # of the jobs that an outage reaches
BESIDES = log(0.03)  # something else that happened to look alike
RELATED = log(0.003)  # a pull request that fails alike for a reason of its own
UNSEEN = log(0.1)  # a break that no tested commit and no other pull request has met
ALWAYS = log(0.97)  # what is broken fails


def scores(e: Evidence) -> tuple[dict[str, float], Stretch, Stretch]:
    """Probability of each story; the stretch of the base branch and the one in time that the failure lies in."""
    standing = [(_base(e, stretch, place), stretch) for place in places(e) for stretch in [broken_at(e, place)]]
    broken = max(standing, key=lambda s: s[0])[1]
    infra, burst = _infra_anywhere(e)
    found = {
        "base": _sum(score - log(len(standing)) for score, _ in standing),
        "infra": infra,
        "flaky": _flaky(e),
        "this-change": _change(e, broken),
    }
    for name in found:
        found[name] += PRIOR[name] + _by_category(name, e.failure.category) + _by_files(name, e)
    whole = _sum(found.values())
    return {name: math.exp(score - whole) for name, score in found.items()}, broken, burst


def _sum(scores: Iterable[float]) -> float:
    """Add probabilities that are given as logs."""
    found = list(scores)
    top = max(found)
    return top + log(sum(math.exp(s - top) for s in found))


def _by_category(name: str, category: str) -> float:
    if name == "flaky" and category in NEVER_FLAKY:
        return -20.0
    if category in HOST_FAULTS:
        return log(20) if name == "infra" else log(0.03)
    if category in OUTSIDE:
        return log(6) if name == "infra" else log(0.2)
    return log(0.4) if name == "infra" else 0.0


def _by_files(name: str, e: Evidence) -> float:
    if not e.failure.seen.changed:
        return 0.0
    if e.linked:
        return log(0.7 if name == "this-change" else 0.03)
    return log(0.3 if name == "this-change" else 0.97)


class _Rest:
    """What a story leaves unexplained: chance, other episodes, pull requests with reasons of their own."""

    def __init__(self, trials: Sequence[Trial], e: Evidence) -> None:
        # What fails alike on another branch may have the same reason there.
        self.abroad = max(-2.0 * sum(t.hit for t in trials if t.place is None), RELATED)
        here = [t for t in trials if t.place is not None]
        self.episodes = episodes(here, e)
        inside = {id(t) for stretch, _ in self.episodes for t in stretch.trials}
        groups: dict[object, int] = defaultdict(int)
        self.passes = 0
        for t in here:
            if id(t) in inside:
                continue
            if t.hit:
                groups[t.o.pr if t.o.pr is not None else t.o.commit] += 1
            else:
                self.passes += 1
        self.groups = list(groups.values())

    def score(self, rate: float, *, same: bool = False) -> float:
        """Log of how likely the rest is. `same`: by the very flake that the failure comes from, so no coincidence."""
        total = self.passes * log(1 - rate) + sum(max(k * log(rate), RELATED) for k in self.groups)
        total += self.abroad + (BESIDES if self.groups and not same else 0.0)
        for stretch, if_episode in self.episodes:
            by_chance = len(stretch.hits) * log(rate) + len(stretch.passed) * log(1 - rate)
            total += max(by_chance, BESIDES + if_episode)
        return total


def _by_chance(rest: _Rest, own: Sequence[Trial]) -> float:
    """Sum over the rates at which the rest, and these of the own runs, happened by chance."""
    hits, passes = _counts(own)
    return _sum(log(p) + rest.score(q) + hits * log(q) + passes * log(1 - q) for q, p in RATES)


def _counts(trials: Sequence[Trial]) -> tuple[int, int]:
    hits = sum(t.hit for t in trials)
    return hits, len(trials) - hits


def _rate(e: Evidence) -> float:
    return (sum(t.hit for t in e.trials) + 1) / (len(e.trials) + 10)


def _strangers(e: Evidence, hits: Sequence[Trial], *, recurs: bool = False, shared: bool = False) -> float:
    """Log of how likely other jobs fail alike at these times: a flake that they share, or episodes of their own."""
    if not hits:
        return 0.0
    jobs_of: dict[str, set[str]] = defaultdict(set)
    for t in hits:
        jobs_of[t.o.run].add(t.o.job)
    jobs = {t.o.job for t in hits}
    together = sum(len(found) >= 2 for found in jobs_of.values())
    expected = len(jobs_of) * (0.1 + 2 * _rate(e) * (len(jobs) - 1))
    flake = log(0.1) + (len(jobs) - 1) * log(0.5) - 2.0 * max(together - expected, 0.0) + (0.0 if shared else BESIDES)
    times = sorted(t.o.at for t in hits)
    clusters = 1 + sum(later - earlier > BURST for earlier, later in pairwise(times))
    return max(flake, clusters * (-1.0 if recurs else BESIDES), -30.0)


def _flaky(e: Evidence) -> float:
    rest = _Rest(e.trials, e)
    hits, passes = _counts(e.own)
    whole = _sum(log(p) + (1 + hits) * log(q) + passes * log(1 - q) + rest.score(q, same=True) for q, p in RATES[1:])
    if e.same_commit_passes and not any(t.hit for t in e.trials):
        whole = _sum([whole, _new_flake(e)])
    whole += max(len(e.same_run) * log(max(_rate(e), 0.05)), -10.0)
    return whole + _strangers(e, e.elsewhere, shared=True)


def _new_flake(e: Evidence) -> float:
    """Weigh that the flake came with this change: then runs of others say nothing about its rate."""
    hits, passes = _counts(e.own)
    score = _sum(log(p) + (1 + hits) * log(q) + passes * log(1 - q) for q, p in RATES[1:])
    return score + log(0.05) + (log(0.7) - log(0.03) if e.linked else 0.0)  # instead of what `_by_files` takes


def _base(e: Evidence, broken: Stretch, place: float) -> float:
    standing = [t.place for t in broken.trials if t.place not in (None, e.place)] + [place]
    low, high = min(standing), max(standing)
    inside = {id(t) for t in (*e.own, *e.elsewhere) if t.place == e.place or low <= (t.place or 0.0) <= high}
    score = ALWAYS * (1 + len(broken.hits)) + sum(t.may_pass for t in broken.passed)
    score += 0.0 if broken.hits else UNSEEN
    outside = []
    for t in e.own:
        if t.o.commit is not None and t.o.commit == e.failure.seen.commit:
            score += ALWAYS if t.hit else log(0.003)
        elif not t.sure:
            score += log(0.4)  # it may have been rebased
        elif id(t) in inside:
            score += ALWAYS if t.hit else log(0.05)
        else:
            outside.append(t)
    score += _by_chance(_Rest(broken.without(e.trials), e), outside)
    jobs = {t.o.job for t in e.elsewhere if id(t) in inside} | e.same_run
    score -= 0.8 * min(len(jobs), 5)
    return score + _strangers(e, [t for t in e.elsewhere if id(t) not in inside])


def _infra_anywhere(e: Evidence) -> tuple[float, Stretch]:
    """Weigh an outage of all hosts, and one of this host only."""
    burst = burst_at(e, None)
    score, host = _infra(e, burst), e.failure.seen.host
    if host is None or all(t.o.host == host for t in burst.passed):
        return score, burst
    local = burst_at(e, host)
    of_host = _infra(e, local) + log(0.3)
    return _sum([score, of_host]), local if of_host > score else burst


def _infra(e: Evidence, burst: Stretch) -> float:
    hits, passes = _counts([t for t in burst.trials if t.o.job == e.failure.seen.job])
    score = _sum(log(1 / len(HIT_SHARES)) + (1 + hits) * log(h) + passes * log(1 - h) for h in HIT_SHARES)
    times = [t.o.at for t in burst.hits] + [e.failure.seen.at]
    score -= (max(times) - min(times)) / DAY + (1.0 if burst.hits else 0.0)  # long ones are rare, and it was sought
    own = burst.without(e.own)
    again = [t for t in own if t.hit and _in_another_burst(t, e)]
    score += _by_chance(_Rest(burst.without(e.trials), e), [t for t in own if t not in again]) - len(again)
    return score + _strangers(e, burst.without(e.elsewhere), recurs=True) + _siblings(e)


def _in_another_burst(t: Trial, e: Evidence) -> bool:
    return sum(abs(x.o.at - t.o.at) <= 2 * HOUR for x in e.elsewhere) >= 2


def _siblings(e: Evidence) -> float:
    """Tell by the other jobs of this run how much likelier an outage is: it seldom meets one job alone."""
    if not e.siblings:
        return log(0.3)
    failed = sum(e.siblings.values())
    odds = failed * log(0.5 / 0.06) + (len(e.siblings) - failed) * log(0.5 / 0.94)
    return min(max(odds, log(0.05)), log(10))


def _change(e: Evidence, broken: Stretch) -> float:
    seen = e.failure.seen
    if seen.pr is None:
        return -50.0
    trials, elsewhere = e.trials, e.elsewhere
    if e.failure.category in NEVER_FLAKY and e.linked and not any(t.on_base for t in broken.hits):
        # A linter says the same of many files: what it says of a file of this change is this change's.
        trials, elsewhere = [t for t in trials if t.on_base or not t.hit], []
    score = _by_chance(_Rest(trials, e), []) + _strangers(e, elsewhere) + ALWAYS
    states: list[bool] = []
    for t in sorted([*e.own, Trial(seen, hit=True, place=None, sure=False)], key=lambda t: t.o.at):
        if t.o.commit is not None and t.o.commit == seen.commit and not t.hit:
            score += log(0.003)
        elif not states or states[-1] != t.hit:
            states.append(t.hit)
        score += ALWAYS if t.hit else 0.0
    changes = len(states) - 1
    score -= 0.5 * min(changes, 2) + 2.0 * max(changes - 2, 0)  # broken by one push, mended by another
    return score - 0.8 * min(len(e.same_run), 5)
