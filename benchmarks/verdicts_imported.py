"""Scores the verdicts on made runs that were imported: verdicts_imported.py [--seeds N] [--sparse]

Another world than `verdicts.py` simulates, written as run folders with logs and read back the way a user's would be:
the base branch is tested twice a day only (`--sparse`) or at every commit, pull requests are rebased, authors have
several of them, texts of failures hold other line numbers, temporary paths and addresses each time (their signatures
are computed by triage, not given), folders are imported in any order, times are of several zones, attempts are missing.
Prints the table by kind, the bars, and how well the likelihoods hold.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

from matrix.history import importing
from matrix.history.remember import judge
from matrix.history.store import open_store
from matrix.records import Attempt, JobRecord, RunRecord, SpecRef, Status, save

START = datetime(2026, 9, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
DAYS, JOBS, AUTHORS = 28, 30, 9


def failure_log(r: random.Random, what: str, path: str) -> str:
    """Write the log of a failed test: the same failure reads otherwise each time."""
    tmp, line, port = f"/tmp/pytest-{r.randrange(999)}/x{r.randrange(99)}", r.randint(10, 400), r.randint(2000, 60000)
    if what.startswith("net"):
        return (f"Collecting wheel-{r.randint(1, 9)}\nrequests.exceptions.ConnectionError: HTTPSConnectionPool("
                f"host='hub.example.org', port=443): Max retries exceeded with url: /api/{what} (Caused by "
                f"NewConnectionError: [Errno 111] Connection refused)\n")  # fmt: skip
    if what.startswith("lint"):
        return f"ruff check .\n{path}:{line}:5: F401 `os` imported but unused\nFound 1 error.\n"
    return f"""============================= test session starts ==============================
collected {r.randint(50, 90)} items
tmp {tmp} port {port}
=================================== FAILURES ===================================
_______________________________ test_{what} _______________________________

    def test_{what}():
>       assert run_{what}() == 0
E       ValueError: {what} does not fit at 0x{r.randrange(1 << 40):012x} in {tmp}/out.bin

{path}:{line}: ValueError
=========================== short test summary info ============================
FAILED tests/test_{what}.py::test_{what} - ValueError: {what} does not fit at...
========================= 1 failed, {r.randint(50, 80)} passed in {r.random() * 50:.2f}s ========
"""


class Maker:
    """Writes run folders, and notes the truth of each failed job of a pull request."""

    def __init__(self, seed: int, top: Path, *, sparse: bool) -> None:
        self.r, self.top, self.sparse = random.Random(seed), top, sparse
        r = self.r
        self.jobs = [f"job-{i}" for i in range(JOBS)]
        self.flaky = {j: r.choice([0.005, 0.01, 0.03, 0.08, 0.2]) for j in r.sample(self.jobs, 8)}
        times = sorted(START + r.uniform(12, DAYS * 24) * HOUR for _ in range(5))
        self.breaks = [(t, t + r.uniform(6, 60) * HOUR, r.choice(self.jobs), f"broken{i}") for i, t in enumerate(times)]
        begun = [START + r.uniform(24, DAYS * 24) * HOUR for _ in range(5)]
        self.outages = [(t, t + r.uniform(0.7, 6) * HOUR, r.uniform(0.4, 0.95), f"net{i}") for i, t in enumerate(begun)]
        self.base = [START + i * timedelta(hours=1.7) for i in range(int(DAYS * 24 / 1.7))]
        self.truth: dict[tuple[str, str], tuple[str, str]] = {}
        self.folders: list[Path] = []

    def outcome(
        self, job: str, at: datetime, forked: datetime, faults: dict[str, tuple[str, str, str]]
    ) -> tuple | None:
        """Return (what fails, file, truth, kind), or None."""
        for since, until, hits, what in self.outages:
            if since <= at <= until and self.r.random() < hits:
                return what, "", "infra", "outage"
        for since, until, broken, what in self.breaks:
            if since <= forked < until and broken == job:
                return what, f"src/{what}.py", "base", "broken base"
        if job in faults:
            return *faults[job][:2], "this-change", faults[job][2]
        if self.r.random() < self.flaky.get(job, 0):
            return f"flake_{job.replace('-', '_')}", f"tests/test_{job}.py", "flaky", "flaky"
        return None

    def write(self, name: str, at: datetime, forked: datetime, faults: dict, **about: object) -> None:
        """Write one run folder."""
        zone = timezone(timedelta(hours=self.r.choice([0, 8, -7])))
        folder = self.top / name
        records = []
        for job in self.jobs:
            attempts, when = [], at + timedelta(minutes=self.r.uniform(0, 20))
            while True:
                found = self.outcome(job, when, forked, faults)
                n = len(attempts) + 1
                log = f"logs/{job}/{n}.log"
                attempts.append(Attempt(n=n, started=when.astimezone(zone).isoformat(), exit_code=int(bool(found)),
                                        ended=(when + timedelta(minutes=5)).astimezone(zone).isoformat(), log=log,
                                        status=Status.FAILED if found else Status.PASSED))  # fmt: skip
                if found:
                    (folder / log).parent.mkdir(parents=True, exist_ok=True)
                    (folder / log).write_text(failure_log(self.r, found[0], found[1]))
                if not found or len(attempts) == 2 or self.r.random() > 0.3:
                    break
                when += self.r.uniform(0.1, 3) * HOUR
            if len(attempts) == 2 and self.r.random() < 0.2:  # the first attempt was not kept
                attempts = attempts[1:]
            status = attempts[-1].status or Status.ERROR
            records.append(JobRecord(name=job, suite="s", status=status, attempts=attempts))
            if found and about.get("pr"):
                self.truth[name, job] = found[2:]
        run = RunRecord(id=name, spec=SpecRef(path="m", sha256="0"), engine="local", host="h", repository="o/r",
                        started=at.astimezone(zone).isoformat(), status=Status.FAILED, jobs=records,
                        **about)  # fmt: skip
        folder.mkdir(exist_ok=True, parents=True)
        save(run, folder / "run.json")
        self.folders.append(folder)

    def make(self) -> None:
        """Write all runs, and put their folders into no order."""
        r = self.r
        for i, at in enumerate(self.base):
            if not self.sparse or i % 7 == 0:
                self.write(f"base-{i}", at + 0.2 * HOUR, at, {}, commit=f"b{i:04}")
        for n in range(1, 81):
            start = START + r.uniform(24, DAYS * 24) * HOUR
            author = f"a{r.randrange(AUTHORS)}"
            changed = [f"src/part{r.randrange(300)}.py" for _ in range(r.randint(1, 5))]
            faults = {}
            for k in range(r.choice([0, 0, 0, 1, 1, 2])):
                lint = r.random() < 0.1
                path = r.choice(changed) if lint or r.random() < 0.75 else f"src/else{r.randrange(50)}.py"
                faults[r.choice(self.jobs)] = (
                    f"{'lint' if lint else 'fault'}{n}_{k}",
                    path,
                    "lint" if lint else "change",
                )
            if n % 16 == 0:  # brings an old break of the base back
                old = r.choice(self.breaks)
                start = old[1] + r.uniform(3, 50) * HOUR
                faults[old[2]] = (old[3], f"src/{old[3]}.py", "revert")
                changed.append(f"src/{old[3]}.py")
            pushes, at = r.randint(1, 4), start
            fork = max(i for i, t in enumerate(self.base) if t <= start)
            for k in range(pushes):
                if k and r.random() < 0.3:  # rebased
                    fork = max(i for i, t in enumerate(self.base) if t <= at)
                fixed = k == pushes - 1 and pushes > 1 and r.random() < 0.7
                self.write(f"pr{n}-{k}", at, self.base[fork], {} if fixed else faults, commit=f"c{n:03}{k}",
                           base=f"b{fork:04}", pr=n, author=author, changed_files=changed)  # fmt: skip
                at += r.uniform(0.3, 30) * HOUR
        r.shuffle(self.folders)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sparse", action="store_true", help="the base branch is tested twice a day only")
    args = parser.parse_args()
    table: dict[str, Counter[str]] = defaultdict(Counter)
    bins: dict[int, list[float]] = defaultdict(list)
    for seed in range(args.seeds):
        with tempfile.TemporaryDirectory() as top:
            maker = Maker(seed, Path(top) / "runs", sparse=args.sparse)
            maker.make()
            url = f"sqlite:///{top}/h.sqlite"
            store = open_store(url)
            records = {}
            for folder in maker.folders:
                store.write(importing.from_folder(folder))
                records[folder.name] = importing.with_causes(importing.load(folder / "run.json"), folder)
            store.close()
            for folder in maker.folders:
                run = records[folder.name]
                judge(run, folder, url=url)
                for job in run.jobs:
                    if (run.id, job.name) not in maker.truth or job.verdict is None:
                        continue
                    truth, kind = maker.truth[run.id, job.name]
                    value, likely = job.verdict.value, job.verdict.likelihood
                    table[kind][value] += 1
                    table[kind]["right"] += value == truth
                    table["all"]["wrong-mine"] += value == "this-change" != truth
                    if likely is not None:
                        bins[int(likely * 20)].append(value == truth)
    values = ["this-change", "base", "infra", "flaky", "cannot-tell"]
    print(f"{'kind':14}{'n':>6}" + "".join(f"{v:>13}" for v in values) + f"{'accuracy':>10}")
    total: Counter[str] = Counter()
    for kind, c in sorted(table.items()):
        total.update(c)
        n = sum(c[v] for v in values)
        given = n - c["cannot-tell"]
        if n:
            print(f"{kind:14}{n:6}" + "".join(f"{c[v]:13}" for v in values) + f"{c['right'] / max(given, 1):10.3f}")
    n = sum(total[v] for v in values)
    given = n - total["cannot-tell"]
    print(f"accuracy {total['right'] / given:.3f}, given {given / n:.3f}, "
          f"this-change precision {1 - total['wrong-mine'] / max(total['this-change'], 1):.3f}")  # fmt: skip
    print("likelihood said: right of all")
    for low, right in sorted(bins.items()):
        share = sum(right) / len(right)
        print(f"    {low / 20:.2f} to {(low + 1) / 20:.2f}: {sum(right):.0f} of {len(right)} ({share:.3f})")


if __name__ == "__main__":
    sys.exit(main())
