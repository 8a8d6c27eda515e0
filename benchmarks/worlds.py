"""Made repositories of several kinds, with the truth of every failure: what the verdicts are scored on.

Each world differs in what the verdicts cannot choose: how often the base branch is tested, how long it stays broken,
what an outage reaches and how it reads, who retries, what of a pull request is known, how exact times are. `TUNING`
worlds may be looked at while attribution is worked on; `HELD_OUT` ones only tell how it did.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

HOUR = 3600.0
DAY = 24 * HOUR
START = 1_790_000_000.0


@dataclass(frozen=True)
class World:
    """Parameters of a made repository; a pair is the range that a figure is drawn from."""

    name: str
    seed: int = 0
    days: float = 30.0
    pulls: int = 120
    jobs: int = 40
    authors: int = 14
    hosts: int = 4
    commit_hours: float = 2.5  # between two commits of the base branch
    base_every: int = 1  # every n-th of them is tested
    breaks: int = 6
    break_commits: tuple[int, int] = (1, 50)
    break_jobs: tuple[int, int] = (1, 2)
    red_jobs: int = 1  # always fail on the base branch, and so everywhere
    outages: int = 5
    outage_hours: tuple[float, float] = (0.5, 6)
    outage_hits: tuple[float, float] = (0.4, 1.0)
    outage_scope: str = "all"  # all, host, some (jobs)
    outage_reads: str = "shared"  # one signature an outage; by-job; recurring: the same in every outage
    outage_category: str = "network_failure"
    flaky_share: float = 0.2
    flake_rates: tuple[float, float] = (0.005, 0.2)
    flake_signatures: tuple[int, int] = (1, 2)
    shared_flakes: int = 1  # flaky tests that three jobs run
    faulty: float = 0.35
    linked: float = 0.75  # share of the faults whose evidence names a changed file
    misleading: float = 0.02  # share of the other failures whose evidence names one by chance
    pushes: tuple[int, int] = (1, 4)
    push_hours: tuple[float, float] = (0.3, 24)
    fork_age: tuple[float, float] = (0, 12)
    rebased: float = 0.3
    fixed: float = 0.7  # share of the faults that a later push mends
    retried: float = 0.3
    attempts: int = 2
    reverts: int = 5
    repairs: int = 3
    picks: int = 5
    stacked: float = 0.1
    merged_broken: int = 3  # faults that were merged, and so became breaks of the base branch
    release: bool = False  # cherry-picks go to a release branch with runs of its own
    no_base: float = 0.0
    no_files: float = 0.0
    no_author: float = 0.0
    coarse: float = 1.0  # times are rounded down to so many seconds
    common_file: float = 0.0  # share of the pull requests that touch CHANGELOG.md
    plain: bool = False  # no category says more than that a process failed


@dataclass(frozen=True)
class Fault:
    """Something that makes a job fail, and the truth of such a failure."""

    signature: str
    truth: str
    kind: str
    category: str = "worker_exception"
    files: frozenset[str] = frozenset()


@dataclass
class Attempt:
    """One attempt of a job."""

    at: float
    fault: Fault | None


@dataclass
class Run:
    """One run of all jobs."""

    id: str
    at: float
    commit: str
    branch: str
    host: str
    base: str | None = None
    pr: int | None = None
    author: str | None = None
    changed: frozenset[str] = frozenset()
    jobs: dict[str, list[Attempt]] = field(default_factory=dict)


@dataclass
class _Pull:
    n: int
    author: str
    start: float
    changed: frozenset[str]
    faults: dict[str, Fault] = field(default_factory=dict)
    repairs: str | None = None  # signature of the break that it mends
    branch: str = "main"
    pushes: list[float] = field(default_factory=list)
    mended_at: int = 99  # the push from which on its faults are gone
    forked: float = 0.0


class Maker:
    """Plays one world."""

    def __init__(self, w: World) -> None:
        self.w, self.r = w, random.Random(w.seed)
        r = self.r
        self.jobs = [f"job-{i}" for i in range(w.jobs)]
        self.end = START + w.days * DAY
        self.commits: dict[str, list[tuple[float, str]]] = {}
        for branch in ("main", "release") if w.release else ("main",):
            t, found = START, []
            while t < self.end:
                found.append((t, f"{branch}-{len(found):04}"))
                t += r.expovariate(1 / (w.commit_hours * HOUR * (1 if branch == "main" else 8)))
            self.commits[branch] = found
        self.red = {
            j: Fault(f"red-{j}", "base", "always red", self._category()) for j in r.sample(self.jobs, w.red_jobs)
        }
        self.breaks: list[tuple[float, float, str, Fault]] = []
        main = self.commits["main"]
        for i in range(w.breaks):
            first = r.randrange(8, len(main) - 4)
            last = min(first + r.randint(*w.break_commits), len(main) - 1)
            fault = Fault(f"break-{i}", "base", "broken base", self._category(), frozenset({f"src/broken{i}.py"}))
            for job in r.sample(self.jobs, r.randint(*w.break_jobs)):
                self.breaks.append((main[first][0], main[last][0], job, fault))
        self._make_outages()
        self.flakes: dict[str, list[tuple[float, Fault]]] = {j: [] for j in self.jobs}
        for j in r.sample(self.jobs, int(w.flaky_share * w.jobs)):
            self._add_flake([j], r.randint(*w.flake_signatures))
        for _ in range(w.shared_flakes):
            self._add_flake(r.sample(self.jobs, 3), 1)
        self.runs: list[Run] = []

    def _category(self) -> str:
        kinds = ["worker_exception", "test_assertion", "import_error", "unknown"]
        return "worker_exception" if self.w.plain else self.r.choice(kinds)

    def _make_outages(self) -> None:
        w, r = self.w, self.r
        self.outages = []
        for i in range(w.outages):
            begin = START + r.uniform(1, w.days) * DAY
            some = set(r.sample(self.jobs, max(2, w.jobs // 4))) if w.outage_scope == "some" else set(self.jobs)
            host = f"host-{r.randrange(w.hosts)}" if w.outage_scope == "host" else None
            reads = "out" if w.outage_reads == "recurring" else f"out-{i}"
            until = begin + r.uniform(*w.outage_hours) * HOUR
            self.outages.append((begin, until, r.uniform(*w.outage_hits), some, host, reads))

    def _add_flake(self, jobs: list[str], signatures: int) -> None:
        low, high = self.w.flake_rates
        rate = low * (high / low) ** self.r.random()
        for k in range(signatures):
            name = f"flake-{jobs[0]}-{len(jobs)}-{k}"
            category = "worker_exception" if self.w.plain else "test_assertion"
            fault = Fault(name, "flaky", "flaky", category, frozenset({f"tests/test_{name}.py"}))
            for j in jobs:
                self.flakes[j].append((rate / signatures, fault))

    def outcome(self, job: str, at: float, run: Run, forked: float, pull: _Pull | None, faults: dict) -> Fault | None:
        """Return what makes this attempt fail, if anything does."""
        r, w = self.r, self.w
        for begin, until, hits, some, host, reads in self.outages:
            if begin <= at <= until and job in some and host in (None, run.host) and r.random() < hits:
                name = f"{reads}-{job}" if w.outage_reads == "by-job" else reads
                return Fault(name, "infra", "outage", "worker_exception" if w.plain else w.outage_category)
        for since, until, broken, fault in self.breaks:
            mends = pull is not None and pull.repairs == fault.signature
            if broken == job and since <= forked < until and run.branch != "release" and not mends:
                return fault
        if job in self.red:
            return self.red[job]
        if job in faults:
            return faults[job]
        for rate, fault in self.flakes[job]:
            if r.random() < rate:
                return fault
        return None

    def run(self, run: Run, forked: float, pull: _Pull | None = None, faults: dict | None = None) -> None:
        """Run all jobs once, and some of the failed ones again."""
        r, w = self.r, self.w
        for job in self.jobs:
            at, tries = run.at + r.uniform(0, 0.4) * HOUR, run.jobs.setdefault(job, [])
            while True:
                fault = self.outcome(job, at, run, forked, pull, faults or {})
                if fault and run.changed and fault.truth != "this-change" and r.random() < w.misleading:
                    fault = replace(fault, files=frozenset({r.choice(sorted(run.changed))}))
                tries.append(Attempt(at // w.coarse * w.coarse, fault))
                if fault is None or len(tries) == w.attempts or r.random() > w.retried:
                    break
                at += r.uniform(0.1, 3) * HOUR
        run.at = run.at // w.coarse * w.coarse
        self.runs.append(run)

    def _pulls(self) -> list[_Pull]:
        r, w = self.r, self.w
        pulls: list[_Pull] = []
        for n in range(1, w.pulls + 1):
            start = START + r.uniform(1, w.days) * DAY
            changed = {f"src/m{r.randrange(300)}.py" for _ in range(r.randint(1, 6))}
            if r.random() < w.common_file:
                changed.add("CHANGELOG.md")
            pull = _Pull(n, f"a{r.randrange(w.authors)}", start, frozenset(changed))
            if r.random() < w.faulty:
                for k in range(r.choice([1, 1, 1, 2, 4])):
                    lint = r.random() < 0.1 and not w.plain
                    category = "lint_failure" if lint else self._category()
                    named = (
                        r.choice(sorted(changed)) if lint or r.random() < w.linked else f"src/other{r.randrange(99)}.py"
                    )
                    fault = Fault(
                        f"fault-{n}-{k}", "this-change", "lint" if lint else "change", category, frozenset({named})
                    )
                    pull.faults[r.choice(self.jobs)] = fault
            if pulls and r.random() < w.stacked:  # on top of another one of the same author
                below = r.choice(pulls)
                pull.author, pull.start = below.author, below.start + r.uniform(1, 20) * HOUR
                pull.changed |= below.changed
                pull.faults = {j: replace(f, kind="stacked") for j, f in below.faults.items()} | pull.faults
            pulls.append(pull)
        faulty = [p for p in pulls if p.faults]
        for p in r.sample(faulty, min(w.picks, len(faulty))):
            author = r.choice([f"a{i}" for i in range(w.authors) if f"a{i}" != p.author])
            faults = {j: replace(f, kind="cherry-pick") for j, f in p.faults.items()}
            pulls.append(_Pull(len(pulls) + 1, author, p.start + r.uniform(2, 90) * HOUR, p.changed, faults,
                               branch="release" if w.release else "main"))  # fmt: skip
        for _, until, job, fault in r.sample(self.breaks, min(w.reverts, len(self.breaks))):
            back = replace(fault, truth="this-change", kind="revert")
            changed = fault.files | {f"src/m{r.randrange(300)}.py"}
            if r.random() > w.linked:
                back = replace(back, files=frozenset({f"src/other{r.randrange(99)}.py"}))
            pulls.append(_Pull(len(pulls) + 1, f"a{r.randrange(w.authors)}", until + r.uniform(3, 60) * HOUR, changed,
                               {job: back}))  # fmt: skip
        for since, until, _, fault in r.sample(self.breaks, min(w.repairs, len(self.breaks))):
            pulls.append(_Pull(len(pulls) + 1, f"a{r.randrange(w.authors)}", r.uniform(since, until), fault.files,
                               repairs=fault.signature))  # fmt: skip
        return [p for p in pulls if p.start < self.end]

    def make(self) -> list[Run]:
        """Play it; the runs come in no order."""
        r, w = self.r, self.w
        pulls = self._pulls()
        for p in pulls:
            at = p.start
            for _ in range(r.randint(*w.pushes)):
                p.pushes.append(at)
                at += r.uniform(*w.push_hours) * HOUR
            if len(p.pushes) > 1 and r.random() < w.fixed:
                p.mended_at = r.randint(1, len(p.pushes) - 1)
            p.forked = p.start - r.uniform(*w.fork_age) * HOUR
        merged = [p for p in pulls if p.faults and p.mended_at == 99 and p.branch == "main"][: w.merged_broken]
        for p in merged:
            for job, fault in p.faults.items():
                since = p.pushes[-1] + 2 * HOUR
                as_break = replace(fault, truth="base", kind="merged break")
                self.breaks.append((since, since + r.uniform(4, 60) * HOUR, job, as_break))
        for branch, commits in self.commits.items():
            for i, (at, commit) in enumerate(commits):
                if i % w.base_every == 0 or branch == "release":
                    self.run(Run(f"run-{commit}", at + r.uniform(0.05, 0.6) * HOUR, commit, branch, self._host(),
                                 author=f"a{r.randrange(w.authors)}"), at)  # fmt: skip
        for p in pulls:
            self._run_pull(p)
        r.shuffle(self.runs)
        return self.runs

    def _run_pull(self, p: _Pull) -> None:
        r, w = self.r, self.w
        commits = self.commits[p.branch]
        no_base, no_files, no_author = (r.random() < share for share in (w.no_base, w.no_files, w.no_author))
        for k, at in enumerate(p.pushes):
            if k and r.random() < w.rebased:
                p.forked = at
            forked, base = [c for c in commits if c[0] <= p.forked][-1:][0] if commits[0][0] <= p.forked else commits[0]
            run = Run(f"run-p{p.n}-{k}", at, f"p{p.n}c{k}", "release" if p.branch == "release" else f"topic-{p.n}",
                      self._host(), None if no_base else base, p.n, None if no_author else p.author,
                      frozenset() if no_files else p.changed)  # fmt: skip
            self.run(run, forked, p, {} if k >= p.mended_at else p.faults)

    def _host(self) -> str:
        return f"host-{self.r.randrange(self.w.hosts)}"


TUNING = [
    World("usual", 1),
    World("sparse base", 2, base_every=7),
    World("nightly base", 3, base_every=10, commit_hours=2.4, rebased=0.6),
    World("host outages", 4, outage_scope="host", outage_category="disk_full", outages=8, outage_hours=(1, 40)),
    World("outages read by job", 5, outage_reads="by-job"),
    World("outages recur alike", 6, outage_reads="recurring", outages=8, plain=True),
    World("no re-runs, plain", 7, retried=0.0, plain=True),
    World("many re-runs", 8, retried=0.8, attempts=4),
    World("little known", 9, no_base=0.5, no_files=0.3, no_author=0.3),
    World("very flaky", 10, flaky_share=0.5, flake_rates=(0.03, 0.25), flake_signatures=(1, 4), shared_flakes=5),
    World("release branch", 11, release=True, picks=15, common_file=0.7),
    World("coarse times", 12, coarse=HOUR, outages=8),
    World("broken most of the time", 13, breaks=25, break_commits=(1, 50), break_jobs=(1, 6), reverts=15, repairs=10),
]
_OTHER = {"pulls": 200, "jobs": 60, "authors": 30, "days": 45.0}
HELD_OUT = [
    World("held out: merges", 101, **_OTHER, base_every=1, pushes=(1, 6), stacked=0.25, picks=12, reverts=10),
    World("held out: weekly tests", 102, **_OTHER, base_every=5, commit_hours=3, linked=0.6, retried=0.1),
    World("held out: short outages", 103, **_OTHER, outages=20, outage_hours=(0.2, 1.5), outage_scope="some"),
    World("held out: long outages", 104, **_OTHER, outages=3, outage_hours=(12, 48), outage_hits=(0.2, 0.6)),
    World("held out: small team", 105, pulls=60, jobs=12, authors=4, flaky_share=0.4, no_base=0.2, coarse=60.0),
    World("held out: plain", 106, **_OTHER, plain=True, no_files=0.2, retried=0.5, attempts=3, hosts=1),
]  # fmt: skip
