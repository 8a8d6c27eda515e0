"""Made histories with known truth: broken base, outages, flaky tests, faulty changes, reverts, cherry-picks, lint."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field, replace

from matrix.history.attribute import Failure, Observation

HOUR = 3600.0
DAY = 24 * HOUR


@dataclass(frozen=True)
class World:
    """Parameters of a made history."""

    seed: int = 0
    days: float = 30.0
    pulls: int = 200
    jobs: int = 60
    authors: int = 25
    faulty: float = 0.35  # share of pull requests that break something
    linked: float = 0.8  # share of their failures whose evidence names a file of the change
    flaky_jobs: int = 12
    flake_rates: tuple[float, float] = (0.005, 0.2)
    base_breaks: int = 6
    outages: int = 5
    outage_hours: tuple[float, float] = (1.0, 5.0)
    outage_hits: float = 0.7
    reverts: int = 5
    cherry_picks: int = 5
    retried: float = 0.4  # share of failing jobs that are run again on the same commit


@dataclass
class Case:
    """A failure with its truth."""

    failure: Failure
    truth: str
    kind: str


@dataclass
class History:
    """All observations, and the failures among them that were in pull requests."""

    observations: list[Observation] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)

    def __post_init__(self):
        self._by_job = defaultdict(list)
        self._by_signature = defaultdict(list)

    def add(self, o):
        self.observations.append(o)
        self._by_job[o.job].append(o)
        if o.signature:
            self._by_signature[o.signature].append(o)

    def about(self, seen):
        """What a store would be asked for: this job, and this signature in any job."""
        found = {id(o): o for o in (*self._by_job[seen.job], *self._by_signature[seen.signature])}
        return list(found.values())


@dataclass
class _Fault:
    job: str
    signature: str
    kind: str
    category: str = "worker_exception"
    files: frozenset = frozenset()


def simulate(w: World) -> History:  # noqa: C901  # one story, told from top to bottom
    r = random.Random(w.seed)
    h = History()
    jobs = [f"job-{i}" for i in range(w.jobs)]
    authors = [f"a{i}" for i in range(w.authors)]
    end = w.days * DAY
    flakes = {j: (r.uniform(*w.flake_rates), f"flake-{j}") for j in r.sample(jobs, w.flaky_jobs)}
    breaks = []  # (from, to, fault) on the base branch
    for i in range(w.base_breaks):
        at = r.uniform(DAY, end)
        breaks.append((at, at + r.uniform(2, 48) * HOUR, _Fault(r.choice(jobs), f"base-{i}", "base")))
    outages = []
    for i in range(w.outages):
        at = r.uniform(DAY, end)
        outages.append((at, at + r.uniform(*w.outage_hours) * HOUR, f"outage-{i}"))

    base_commits = []  # (time, commit)
    t = 0.0
    while t < end:
        t += r.expovariate(1 / (2.5 * HOUR))
        base_commits.append((t, f"base{len(base_commits)}"))

    def result(job, at, faults, broken):
        """Signature, category, kind and files of the first thing that goes wrong, or None."""
        for since, until, signature in outages:
            if since <= at <= until and r.random() < w.outage_hits:
                return signature, "network_failure", "outage", frozenset()
        for f in broken:
            if f.job == job:
                return f.signature, f.category, f.kind, f.files
        for f in faults:
            if f.job == job:
                return f.signature, f.category, f.kind, f.files
        if job in flakes and r.random() < flakes[job][0]:
            return flakes[job][1], "test_assertion", "flaky", frozenset({f"tests/{job}.py"})
        return None

    def run(run_id, at, commit, pr, author, changed, faults, broken, merge_base):
        for job in jobs:
            when = at
            for attempt in range(2):
                got = result(job, when, faults, broken)
                o = Observation(
                    run_id, job, when, got is None, got[0] if got else None, commit, merge_base, pr, author, changed
                )
                h.add(o)
                if got and pr is not None:
                    truth = {"outage": "infra", "flaky": "flaky", "base": "base"}.get(got[2], "this-change")
                    h.cases.append(Case(Failure(o, got[1], got[3]), truth, got[2]))
                if got is None or attempt or r.random() > w.retried:
                    break
                when = at + r.uniform(0.2, 2) * HOUR

    events = [(at, "base", commit) for at, commit in base_commits]
    pulls = _pulls(r, w, jobs, authors, end, breaks)
    for p in pulls:
        events.extend((at, "pull", (p, k)) for k, at in enumerate(p["pushes"]))
    for at, what, detail in sorted(events, key=lambda e: e[0]):
        if what == "base":
            broken = [f for since, until, f in breaks if since <= at < until]
            run(f"b-{detail}", at + 600, detail, None, r.choice(authors), frozenset(), [], broken, None)
            continue
        p, k = detail
        merged = [(t, c) for t, c in base_commits if t <= p["forked"]] or base_commits[:1]
        since_fork, merge_base = merged[-1]
        broken = [f for since, until, f in breaks if since <= since_fork < until]
        faults = p["faults"] if k < p["fixed_at"] else []
        run(f"p-{p['n']}-{k}", at, f"pr{p['n']}c{k}", p["n"], p["author"], p["changed"], faults, broken, merge_base)
    return h


def _pulls(r, w, jobs, authors, end, breaks):
    pulls = []
    for n in range(w.pulls):
        start = r.uniform(DAY, end)
        count = r.randint(1, 4)
        pushes = [start]
        for _ in range(count - 1):
            pushes.append(pushes[-1] + r.uniform(0.5, 20) * HOUR)
        changed = frozenset(f"src/m{r.randrange(400)}.py" for _ in range(r.randint(1, 6)))
        p = {"n": n, "author": r.choice(authors), "pushes": pushes, "forked": start - r.uniform(0, 12) * HOUR,
             "changed": changed, "faults": [], "fixed_at": r.randint(1, count)}  # fmt: skip
        if r.random() < w.faulty:
            for k in range(r.choice([1, 1, 1, 2, 3])):
                names = r.choice(sorted(changed)) if r.random() < w.linked else f"src/other{r.randrange(99)}.py"
                lint = r.random() < 0.15
                kind, category = ("lint", "lint_failure") if lint else ("change", "worker_exception")
                p["faults"].append(_Fault(r.choice(jobs), f"pr-{n}-{k}", kind, category, frozenset({names})))
        pulls.append(p)
    faulty = [p for p in pulls if p["faults"]]
    for p in r.sample(faulty, min(w.cherry_picks, len(faulty))):
        n = len(pulls)
        start = p["pushes"][0] + r.uniform(1, 30) * HOUR
        other = r.choice([a for a in authors if a != p["author"]])
        faults = [replace(f, kind="cherry-pick") for f in p["faults"]]
        pick = {"n": n, "author": other, "pushes": [start], "forked": start, "fixed_at": 1, "faults": faults}
        pulls.append(p | pick)
    for _, until, f in r.sample(breaks, min(w.reverts, len(breaks))):
        n = len(pulls)
        start = until + r.uniform(4, 60) * HOUR
        fault = replace(f, kind="revert", files=frozenset({f"src/fix{n}.py"}))
        pulls.append({"n": n, "author": r.choice(authors), "pushes": [start, start + 5 * HOUR], "forked": start - HOUR,
                      "changed": frozenset({f"src/fix{n}.py"}), "faults": [fault], "fixed_at": 2})  # fmt: skip
    return pulls
