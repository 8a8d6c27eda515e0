"""What else was seen of a failure, sorted by what it can show: runs of the same job, likeness elsewhere, places."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

DAY = 86400.0
WINDOW = 14 * DAY  # how far from the failure another sighting counts
_TRUNKS = frozenset({"main", "master", "develop", "trunk"})


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
    branch: str | None = None
    host: str | None = None

    @property
    def forked(self) -> bool:
        """Whether it ran on a branch of its own that has no pull request; a push to a trunk may name its base too."""
        away = self.base is not None and self.base != self.commit
        return self.pr is None and away and self.branch is not None and self.branch not in _TRUNKS


@dataclass(frozen=True, slots=True)
class Failure:
    """The failure to attribute."""

    seen: Observation
    category: str
    files: frozenset[str] = frozenset()  # files of the repository that the evidence names (traceback, config, test)
    blocked_by: tuple[str, ...] = ()
    generic: bool = False  # the signature fits many unlike failures


_PASS_ON_BASE, _PASS_SURE, _PASS_UNSURE = math.log(0.003), math.log(0.03), math.log(0.4)


@dataclass(slots=True)
class Trial:
    """An attempt of some job that failed alike (`hit`), or an attempt of this job that passed."""

    o: Observation
    hit: bool
    # Where on the base branch it stands, as the time of that commit. Sure: that commit was itself tested. None: on
    # another branch.
    place: float | None
    sure: bool

    on_base: bool = field(init=False)  # a run of the base branch itself
    # Log of how likely a run passes although the base branch is broken where it stands: a pull request may mend it, and
    # one whose merge base was not tested may stand elsewhere.
    may_pass: float = field(init=False)

    def __post_init__(self) -> None:
        self.on_base = self.o.pr is None
        self.may_pass = _PASS_ON_BASE if self.on_base else _PASS_SURE if self.sure else _PASS_UNSURE


@dataclass
class Evidence:
    """All that bears on a failure."""

    failure: Failure
    place: float
    sure: bool = False
    same_commit_passes: list[Observation] = field(default_factory=list)
    own: list[Trial] = field(default_factory=list)  # this pull request, this job
    trials: list[Trial] = field(default_factory=list)  # this job on the base branch and in unrelated pull requests
    elsewhere: list[Trial] = field(default_factory=list)  # hits of other jobs, unrelated
    same_run: set[str] = field(default_factory=set)  # other jobs of this run that fail alike
    siblings: dict[str, bool] = field(default_factory=dict)  # other jobs of this run: whether they failed

    @property
    def linked(self) -> list[str]:
        """Files of this change that the failure names."""
        return sorted(self.failure.files & self.failure.seen.changed)

    @property
    def passes(self) -> list[Trial]:
        """Unrelated runs of this job that passed."""
        return [t for t in self.trials if not t.hit]


def gather(failure: Failure, history: Iterable[Observation]) -> Evidence:
    """Sort what may count. The failure itself may be in `history`; related changes are left out.

    A failure of another kind says nothing: it may hide this one.
    """
    seen = failure.seen
    known = [o for o in history if abs(o.at - seen.at) <= WINDOW and not _same(o, seen)]
    places = _Places(seen, known)
    place, sure = places.of(seen)
    e = Evidence(failure, place or seen.at, sure and seen.base in places.tested)
    common = _common_files(known) if seen.changed else frozenset()
    for o in known:
        if o.run == seen.run and o.job != seen.job:
            e.siblings[o.job] = not o.passed
        if o.job == seen.job and o.passed and o.commit is not None and o.commit == seen.commit:
            e.same_commit_passes.append(o)
        hit = not o.passed and o.signature is not None and o.signature == seen.signature and not failure.generic
        if not (hit or (o.passed and o.job == seen.job)):
            continue
        trial = Trial(o, hit, *places.of(o))
        if o.job != seen.job:
            if o.run == seen.run:
                e.same_run.add(o.job)
            elif _unrelated(seen, o, common):
                e.elsewhere.append(trial)
        elif seen.pr is not None and o.pr == seen.pr:
            e.own.append(trial)
        elif _unrelated(seen, o, common):
            e.trials.append(trial)
    for group in (e.own, e.trials, e.elsewhere):
        group.sort(key=lambda t: t.o.at)
    return e


def _same(o: Observation, seen: Observation) -> bool:
    return o.run == seen.run and o.job == seen.job and o.at == seen.at and not o.passed


def _common_files(known: list[Observation]) -> frozenset[str]:
    """Files that so many pull requests touch (a change log) that sharing one relates nobody."""
    changed = {o.pr: o.changed for o in known if o.pr is not None and o.changed}
    touched = Counter(name for names in changed.values() for name in names)
    return frozenset(name for name, n in touched.items() if n > max(4, len(changed) / 5))


def _unrelated(seen: Observation, o: Observation, common: frozenset[str]) -> bool:
    if o.pr is None:
        return True
    if o.pr == seen.pr or (o.author is not None and o.author == seen.author):
        return False
    if not seen.changed or not o.changed:
        return True
    # A cherry-pick, a revert or a rival fix touches the same files: it may well fail for the same reason.
    return seen.changed.isdisjoint(o.changed - common)


class _Places:
    """Where runs stand on the base branch. The order of its commits is that of their first runs."""

    def __init__(self, seen: Observation, known: list[Observation]) -> None:
        self.tested: dict[str, float] = {}
        self._first: dict[str | int, float] = {}
        self._branches: dict[str, str | None] = {}
        for o in known:
            if o.pr is None:
                if o.commit is not None:
                    self.tested[o.commit] = min(o.at, self.tested.get(o.commit, o.at))
                    self._branches[o.commit] = o.branch
            else:
                for key in (o.base, o.pr):
                    if key is not None:
                        self._first[key] = min(o.at, self._first.get(key, o.at))
        self._base = seen.base
        self._branch = seen.branch if seen.pr is None else self._branches.get(seen.base or "")

    def of(self, o: Observation) -> tuple[float | None, bool]:
        commit = o.commit if o.pr is None else o.base
        branch = o.branch if o.pr is None else self._branches.get(commit or "")
        if self._branch is not None and branch is not None and branch != self._branch:
            return None, False
        if commit is not None and commit in self.tested:
            return self.tested[commit], True
        if o.pr is None:
            return o.at, True
        # A commit is no younger than the first run of a pull request that forked from it.
        key = o.pr if commit is None else commit
        return self._first.get(key, o.at), commit is not None and commit == self._base
