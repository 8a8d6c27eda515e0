"""Whose failure is it? A pure function of the failure and of what else was seen, with what was compared.

The kinds of evidence, in the order in which they decide:

1. the runner itself knows that another job is the cause (`follows`), or that no code ran (`gate`);
2. the same commit passed and failed: `flaky`, or `infra` where unrelated pull requests failed alike at that time;
3. the base branch fails alike at the merge base: `base`;
4. unrelated pull requests fail alike: `infra` when all that ran since then fail, `flaky` when it comes and goes;
5. nobody else fails alike, and the failure names files of this change or comes back on every commit: `this-change`;
6. several jobs of the run lose the network, a registry or a hub alike, or a host its disk or driver: `infra`.

Guards: runs of the same author never count as unrelated, nor do changes to the same files (cherry-picks); a generic
signature is no evidence of likeness; linters, compilers and gates are never flaky; a failure that nothing could
classify is never infra by that alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from matrix.history.likelihood import likelihood
from matrix.records import Verdict, VerdictValue

DAY = 86400.0
WINDOW = 14 * DAY  # how far back another sighting counts
BURST = 6 * 3600.0  # an outage is dense in time: sightings this close to each other belong together

NEVER_FLAKY = frozenset({"lint_failure", "gate_not_met", "cpp_compile_error", "coverage_under_threshold"})
# The host is at fault by the nature of these, whoever's change it ran.
HOST_FAULTS = frozenset({"runner_lost", "driver_mismatch", "disk_full", "image_pull_failure", "shared_memory_full"})
# Services outside of the repository: several jobs of one run that lose them alike have met an outage.
OUTSIDE = HOST_FAULTS | {"network_failure", "hub_offline", "hub_access_denied", "git_failure", "log_unavailable"}


@dataclass(frozen=True, slots=True)
class Observation:
    """One attempt of a job, somewhere. `signature` is None where it passed."""

    run: str
    job: str
    at: float  # seconds since 1970
    passed: bool
    signature: str | None = None
    commit: str | None = None
    base: str | None = None  # the merge base, of a pull request
    pr: int | None = None  # None: the base branch
    author: str | None = None
    changed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure to attribute."""

    seen: Observation
    category: str
    files: frozenset[str] = frozenset()  # files of the repository that the evidence names (traceback, config, test)
    blocked_by: tuple[str, ...] = ()
    generic: bool = False  # the signature fits many unlike failures


@dataclass
class _Evidence:
    """What was found, sorted by what it can show."""

    same_commit_passes: list[Observation] = field(default_factory=list)
    own: list[Observation] = field(default_factory=list)  # this pull request, this job
    base: list[Observation] = field(default_factory=list)  # this job on the base branch up to the merge base
    others: list[Observation] = field(default_factory=list)  # this job in unrelated pull requests, within the window
    alike: list[Observation] = field(default_factory=list)  # same signature, unrelated, any job, base branch included
    same_run: set[str] = field(default_factory=set)  # jobs of this run that fail alike


def attribute(failure: Failure, history: Iterable[Observation]) -> Verdict:
    """Say whose failure it is.

    `history` may hold anything; only what counts is used. The failure itself may be in it.
    """
    if failure.blocked_by:
        compared = [f"job {name} of this run" for name in failure.blocked_by]
        return Verdict(value="follows", compared=compared, likelihood=1.0)
    if failure.category == "gate_not_met":
        return Verdict(value="gate", compared=["no code was run"], likelihood=1.0)
    e = _sort(failure, history)
    for judge in (_by_same_commit, _by_base, _by_others, _by_change, _by_host):
        verdict = judge(failure, e)
        if verdict is not None:
            return verdict
    looked = [f"{len(e.base)} runs of the base branch", f"{len(e.others)} runs of other pull requests"]
    return Verdict(value="cannot-tell", compared=[*looked, "nothing in them links the failure or clears the change"])


def _sort(failure: Failure, history: Iterable[Observation]) -> _Evidence:
    seen = failure.seen
    e = _Evidence()
    base: list[Observation] = []
    for o in history:
        if abs(seen.at - o.at) > WINDOW:
            continue
        if o.job == seen.job:
            if o.commit is not None and o.commit == seen.commit and o.passed:
                e.same_commit_passes.append(o)
            if o.pr is None and seen.pr is not None:
                base.append(o)
            elif o.pr == seen.pr:
                e.own.append(o)
            elif _unrelated(seen, o):
                e.others.append(o)
        if failure.generic or o.passed or o.signature != seen.signature:
            continue
        if o.run == seen.run:
            e.same_run.add(o.job)
        elif _unrelated(seen, o):
            e.alike.append(o)
    e.base = _up_to_merge_base(base, failure)
    closed = _closed_episodes(e.base, seen.signature)
    broken = {o.commit for o in e.base if o.signature == seen.signature and o.commit and _within(o.at, closed)}
    # A pull request that forked from a broken base fails for that, however long after the fix it runs.
    e.alike = [o for o in e.alike if not (_within(o.at, closed) or (o.base is not None and o.base in broken))]
    for group in (e.own, e.others, e.alike):
        group.sort(key=lambda o: o.at)
    return e


def _within(at: float, spans: list[tuple[float, float]]) -> bool:
    return any(begin <= at <= end for begin, end in spans)


def _closed_episodes(base: list[Observation], signature: str | None) -> list[tuple[float, float]]:
    """Spans in which the base branch was broken in this way and was mended: what was seen then says nothing about now.

    Without this a pull request that brings an old break back (a revert of its fix) would look like a flake.
    """
    spans: list[tuple[float, float]] = []
    streak: list[Observation] = []
    passes = 0
    for o in base:
        if o.passed:
            passes += 1
            if len(streak) >= 3 and passes == 3:
                # Pull requests that forked from the broken base go on failing for a while after the fix.
                spans.append((streak[0].at, streak[-1].at + 2 * DAY))
            if passes >= 1 and len(streak) < 3:
                streak = []
        elif o.signature == signature:
            if passes:
                streak = []
            passes = 0
            streak.append(o)
    return spans


def _unrelated(seen: Observation, o: Observation) -> bool:
    if o.pr == seen.pr:
        return False
    if o.pr is None:
        return True
    if o.author is not None and o.author == seen.author:
        return False
    # A cherry-pick, a revert or a rival fix touches the same files: it may well fail for the same reason.
    return not (seen.changed and o.changed and seen.changed & o.changed)


def _up_to_merge_base(base: list[Observation], failure: Failure) -> list[Observation]:
    base.sort(key=lambda o: o.at)
    at_merge_base = [i for i, o in enumerate(base) if o.commit is not None and o.commit == failure.seen.base]
    if at_merge_base:
        return base[: at_merge_base[-1] + 1]
    return [o for o in base if o.at <= failure.seen.at]


def _by_same_commit(failure: Failure, e: _Evidence) -> Verdict | None:
    if not e.same_commit_passes or failure.category in NEVER_FLAKY:
        return None
    burst = _burst(failure, e)
    passes = [f"passed on the same commit: {_name(o)}" for o in e.same_commit_passes[:3]]
    if burst.dense:
        return _verdict("infra", "same-commit, burst", [*passes, *_names("fails alike", burst.sightings)])
    return _verdict("flaky", "same-commit", passes)


def _by_base(failure: Failure, e: _Evidence) -> Verdict | None:
    signature = failure.seen.signature
    if failure.generic or not e.base:
        return None
    tail = 0
    for o in reversed(e.base):
        if o.passed:
            break
        tail += o.signature == signature  # another failure in between hides this one; it does not end it
    failing = [o for o in e.base if o.signature == signature and not o.passed]
    if tail == 0:
        return None
    came_and_went = len(failing) > tail
    burst = _burst(failure, e)
    if burst.dense and _ended(failure, e):
        return _verdict("infra", "base, burst", _names("fails alike", burst.sightings))
    if came_and_went and tail == 1 and failure.category not in NEVER_FLAKY:
        return _verdict("flaky", "base, intermittent", _names("comes and goes on the base branch", failing))
    if tail == 1 and not _confirmed(failure, e):
        return None
    strength = "base, once and here again" if tail == 1 else "base, repeatedly"
    return _verdict("base", strength, _names("fails alike on the base branch", failing[-tail:]))


def _confirmed(failure: Failure, e: _Evidence) -> bool:
    """Tell whether one failure of the base branch is more than a flake: it came again, and nothing there passed."""
    seen = failure.seen
    on_this_base = [o for o in (*e.own, *e.others) if o.base is not None and o.base == seen.base]
    again = [o for o in on_this_base if not o.passed and o.signature == seen.signature and o.at != seen.at]
    return bool(again) and not any(o.passed for o in on_this_base)


def _by_others(failure: Failure, e: _Evidence) -> Verdict | None:
    if not e.alike:
        return None
    if len(e.alike) == 1 and e.base and e.alike[0] is e.base[-1]:
        return None  # the merge base failed alike, once: broken or a flake, nobody can tell yet
    names = _names("fails alike", e.alike)
    burst = _burst(failure, e)
    if burst.dense:
        return _verdict("infra", "burst", _names("fails alike", burst.sightings))
    if failure.category in NEVER_FLAKY:
        return None
    if all(abs(o.at - failure.seen.at) <= BURST for o in e.alike):
        return None  # all of it is fresh: an outage that begins looks the same
    return _verdict("flaky", "spread, several" if len(e.alike) > 1 else "spread, once", names)


def _by_change(failure: Failure, e: _Evidence) -> Verdict | None:
    seen = failure.seen
    if seen.pr is None or e.same_commit_passes:
        return None
    # A linter says the same of many files: what it says of a file of this change is this change's.
    own_file = failure.category in NEVER_FLAKY and failure.files & seen.changed
    if e.alike and not own_file:
        return None
    passes = sum(o.passed for o in e.base) + sum(o.passed for o in e.others)
    if e.base and not e.base[-1].passed and e.base[-1].signature == seen.signature:
        return None
    own_alike = [o for o in e.own if not o.passed and o.signature == seen.signature]
    times = {o.at for o in own_alike} | {seen.at}
    tries = len(times) if max(times) - min(times) >= BURST else 1  # within one outage all tries fail alike
    newer_pass = any(o.passed and o.at > seen.at for o in e.own)
    linked = sorted(failure.files & seen.changed)
    compared = [f"{passes} {'run' if passes == 1 else 'runs'} of this job elsewhere passed, none failed alike"]
    if linked and passes:
        compared.insert(0, f"the failure names {', '.join(linked[:3])}, which this change touches")
        return _verdict("this-change", "linked, again" if tries > 1 else "linked", compared)
    if tries >= 2 and passes >= 10 * tries and not newer_pass:
        # A flake that nobody met in `passes` runs is rarer than one in `passes`: twice in a row here is not chance.
        compared.insert(0, f"failed {tries} times out of {tries} in this pull request")
        return _verdict("this-change", "repeated", compared)
    return None


def _by_host(failure: Failure, e: _Evidence) -> Verdict | None:
    jobs = sorted(e.same_run | {failure.seen.job})
    if failure.category in OUTSIDE and len(jobs) >= 3:
        return _verdict("infra", "same run, several jobs", [f"fails alike in this run: job {j}" for j in jobs[:5]])
    if failure.category in HOST_FAULTS:
        return _verdict("infra", "host", [f"{failure.category} is a fault of the host by its nature"])
    return None


@dataclass(frozen=True, slots=True)
class _Burst:
    dense: bool
    sightings: list[Observation]


def _burst(failure: Failure, e: _Evidence) -> _Burst:
    """Find sightings chained to the failure in time; dense when runs in between fail alike more often than not."""
    near: list[Observation] = []
    edge_low = edge_high = failure.seen.at
    for o in sorted(e.alike, key=lambda o: abs(o.at - failure.seen.at)):
        if edge_low - BURST <= o.at <= edge_high + BURST:
            near.append(o)
            edge_low, edge_high = min(edge_low, o.at), max(edge_high, o.at)
    independent = {o.pr if o.pr is not None else o.commit for o in near}
    if not near:
        return _Burst(dense=False, sightings=[])
    passing = sum(o.passed and edge_low <= o.at <= edge_high for o in (*e.others, *e.base))
    jobs = {o.job for o in near} | {failure.seen.job}
    # Several jobs alike at one time is an outage; one job alike needs to fail always in between.
    dense = len(jobs) >= 3 or (len(jobs) == 2 and len(independent) >= 2) or (len(independent) >= 3 and not passing)
    return _Burst(dense=dense, sightings=near)


def _ended(failure: Failure, e: _Evidence) -> bool:
    """Tell whether a burst has several jobs in it: a broken base breaks its own job, an outage does not choose."""
    return len({o.job for o in e.alike} | {failure.seen.job}) >= 3


def _verdict(value: VerdictValue, path: str, compared: Sequence[str]) -> Verdict:
    return Verdict(value=value, compared=list(compared), likelihood=likelihood(value, path))


def _names(what: str, observations: Sequence[Observation], most: int = 5) -> list[str]:
    named = [f"{what}: {_name(o)}" for o in observations[-most:]]
    return [*named, f"and {len(observations) - most} more"] if len(observations) > most else named


def _name(o: Observation) -> str:
    where = f"pull request {o.pr}" if o.pr is not None else "base branch"
    commit = f" at {o.commit[:10]}" if o.commit else ""
    return f"run {o.run}, job {o.job}, {where}{commit}"
