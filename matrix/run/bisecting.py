"""Runs one job at commits of the past, in worktrees, and leads the search by what it did there."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from matrix.errors import MatrixError, ToolError, UsageError
from matrix.files import replace
from matrix.history.flakiness import seen_at
from matrix.history.origin import repository
from matrix.history.remember import default_url
from matrix.history.search import Search
from matrix.history.store import open_for_reading
from matrix.host import process
from matrix.plan.graph import needed_jobs
from matrix.records import RunRecord, Status
from matrix.report.text import count, duration
from matrix.run.folder import ignore_leavings
from matrix.run.patience import PATIENCE, within
from matrix.spec.load import read

Said = Literal["failed", "passed", "other"]
_PAST = 500  # commits before the good one of which the history is asked
_MOST_UNTESTABLE = 3  # runs of one commit that say nothing, before it is left out


@dataclass(frozen=True, slots=True)
class Result:
    """What one run of the job at a commit said."""

    said: Said  # failed: with the failure that is looked for; other: neither passed nor that
    run: str  # folder of the run
    signature: str | None
    text: str


@dataclass
class Bisection:
    """A search under way."""

    root: Path
    spec: str  # the matrix file, relative to the repository
    job: str
    commits: list[str]  # candidates, oldest first; the last is the bad one
    good: str
    signature: str | None = None
    cards: str | None = None
    flakes: tuple[int, int] = (0, 0)  # the same failure before the good commit: (times, runs), from the history
    results: dict[str, list[Result]] = field(default_factory=dict)
    untested: list[str] = field(default_factory=list)  # commits right before the one found that could not be tested
    took: list[float] = field(default_factory=list)  # seconds of the runs made by this search

    @property
    def cache(self) -> Path:
        """File of the results by commit: a search that was broken off goes on from it."""
        return self.root / ".matrix" / "bisect" / f"{self.job}.json"


def begin(root: Path, spec: Path, job: str, good: str, bad: str, cards: str | None) -> Bisection:
    """Find the commits between a good and a bad one.

    Raises:
        UsageError: a revision is unknown, or the good one does not come before the bad one.

    """
    top = Path(_git(root, "rev-parse", "--show-toplevel"))
    good, bad = (_git(root, "rev-parse", "--verify", "--quiet", f"{r}^{{commit}}") for r in (good, bad))
    if subprocess.run(["git", "-C", root, "merge-base", "--is-ancestor", good, bad], check=False).returncode:
        raise UsageError(f"{good[:10]} does not come before {bad[:10]}", "name a good commit in the history of the bad")
    commits = _git(root, "rev-list", "--reverse", "--first-parent", f"{good}..{bad}").split()
    if not commits:
        raise UsageError("--good and --bad are the same commit", "name two")
    return Bisection(top, str(spec.resolve().relative_to(top)), job, commits, good, cards=cards)


def follow(b: Bisection, tell: Callable[[str], None], most_runs: int) -> str | None:
    """Search to the end; return the first bad commit, or None when it cannot be told.

    Raises:
        UsageError: the bad commit does not fail, the good one fails alike, or no commit makes a difference.
        ToolError: a run could not be made.

    """
    _load(b)
    bad = _first(b, b.commits[-1], tell)
    if bad.said == "passed":
        raise UsageError(
            f"{b.job} passed at the bad commit {b.commits[-1][:10]}", "a flake? name the failing run's commit"
        )
    if bad.said == "other":
        raise UsageError(
            f"{b.job} did not fail by itself at the bad commit {b.commits[-1][:10]}: {bad.text or 'see its run'}",
            "where another job blocks it, bisect that one",
        )
    b.signature = bad.signature
    _relabel(b)
    b.flakes = _flakes(b, tell)
    if _first(b, b.good, tell).said == "failed":
        tell(f"{b.good[:10]} (good) fails alike: once may be chance, so the search goes on and counts it")
    candidates = list(b.commits)
    search = _search(b, candidates)
    while (found := search.answer()) is None:
        if search.runs >= most_runs:
            return None
        index = search.next()
        commit = b.good if index < 0 else candidates[index]
        result = _run(b, commit, tell)
        if result.said == "other":
            if not result.run or sum(r.said == "other" for r in b.results[commit]) >= _MOST_UNTESTABLE:
                if commit in (b.good, b.commits[-1]):
                    return None
                tell(f"{commit[:10]} cannot be tested: left out")
                candidates.remove(commit)
                search = _search(b, candidates)
            continue
        search.tell(index, failed=result.said == "failed")
        best, chance = search.likeliest()
        tell(f"  {chance:.1%} for {candidates[best][:10]}{_left(b, search, most_runs)}")
    if found < 0:
        raise UsageError(
            f"{b.job} fails alike at the good commit {b.good[:10]}: the break is older", "name an older one"
        )
    if found == len(candidates):
        raise UsageError(
            f"no commit broke {b.job}: it fails by chance at good and bad ones alike", f"see the runs in {b.cache}"
        )
    b.untested = _just_before(b, candidates, found)
    return candidates[found]


def _just_before(b: Bisection, candidates: list[str], found: int) -> list[str]:
    """List the commits that were left out right before the one that was found: it may as well be one of them."""
    end = b.commits.index(candidates[found])
    begin = b.commits.index(candidates[found - 1]) + 1 if found else 0
    return b.commits[begin:end]


def _left(b: Bisection, search: Search, most_runs: int) -> str:
    """Say how long the rest takes, if runs go on to last as long as they did."""
    runs = min(search.left(), most_runs - search.runs)
    if runs <= 0:
        return ""
    each = f", about {duration(round(runs * sum(b.took) / len(b.took)))}" if b.took else ""
    return f"; about {count(runs, 'more run')}{each}"


def _search(b: Bisection, candidates: list[str]) -> Search:
    search = Search(len(candidates), flakes=b.flakes)
    for i, commit in [(-1, b.good), *enumerate(candidates)]:
        for result in b.results.get(commit, []):
            if result.said != "other":
                search.tell(i, failed=result.said == "failed")
    return search


def _flakes(b: Bisection, tell: Callable[[str], None]) -> tuple[int, int]:
    """Ask the history how often the job failed alike before the good commit, where it answers."""
    if not b.signature:
        return (0, 0)
    before = _git(b.root, "rev-list", f"--max-count={_PAST}", b.good).split()[1:]

    def ask() -> tuple[int, int]:
        store = open_for_reading(default_url((b.root / b.spec).parent / ".matrix", os.environ))
        if store is None:
            return (0, 0)
        with contextlib.closing(store), store.begin() as c:
            return seen_at(
                c, repository=repository(os.environ) or "", job=b.job, signature=b.signature or "", commits=before
            )

    try:
        failed, ran = within(PATIENCE, ask)
    except (MatrixError, OSError) as e:
        tell(f"the history was not asked: {e}")
        return (0, 0)
    if ran:
        tell(f"history: before {b.good[:10]} it failed alike in {failed} of {ran} runs")
    return failed, ran


def _first(b: Bisection, commit: str, tell: Callable[[str], None]) -> Result:
    return b.results[commit][0] if b.results.get(commit) else _run(b, commit, tell)


def _run(b: Bisection, commit: str, tell: Callable[[str], None]) -> Result:
    tell(f"{commit[:10]} runs")
    began = time.monotonic()
    with _worktree(b.root, commit) as tree:
        try:
            record = _matrix_run(b, tree, commit)
        except MatrixError as e:  # no such job there, or a matrix with mistakes
            if commit in (b.good, b.commits[-1]):
                raise
            b.results.setdefault(commit, []).append(Result("other", "", None, e.message))
            tell(f"{commit[:10]} {e.message}")
            return b.results[commit][-1]
        job = record.job(b.job)
        cause = job.attempts[-1].causes[0] if job.attempts and job.attempts[-1].causes else None
        signature = cause.signature if cause else None
        kept = b.cache.parent / commit[:12] / record.id
        kept.parent.mkdir(parents=True, exist_ok=True)
        (tree / Path(b.spec).parent / ".matrix" / "runs" / record.id).rename(kept)
    result = Result(
        _said(b, job.status, signature), str(kept.relative_to(b.root)), signature, cause.text if cause else ""
    )
    b.results.setdefault(commit, []).append(result)
    b.took.append(time.monotonic() - began)
    _save(b)
    tell(
        f"{commit[:10]} {result.said if result.said != 'other' else job.status.value + ', not the failure looked for'}"
    )
    return result


def _said(b: Bisection, status: Status, signature: str | None) -> Said:
    if status is Status.PASSED:
        return "passed"
    if status in (Status.FAILED, Status.TIMEOUT) and (b.signature is None or signature == b.signature):
        return "failed"
    return "other"


def _relabel(b: Bisection) -> None:
    """Look at what is known already with the failure in mind that is looked for."""
    for commit, results in b.results.items():
        b.results[commit] = [
            Result(
                "passed" if r.said == "passed" else "failed" if r.run and r.signature == b.signature else "other",
                r.run,
                r.signature,
                r.text,
            )
            for r in results
        ]


def _matrix_run(b: Bisection, tree: Path, commit: str) -> RunRecord:
    jobs = read(tree / b.spec).jobs
    if all(job.name != b.job for job in jobs):
        raise UsageError(
            f"{b.spec} has no job {b.job!r} at {commit[:10]}", "name a good commit at which the job was there"
        )
    needs, names, waiting = needed_jobs(jobs), [b.job], [b.job]
    while waiting:
        new = [n for n in needs[waiting.pop()] if n not in names]
        names += new
        waiting += new
    command = [sys.executable, "-m", "matrix", "run", str(tree / b.spec), "--json"]
    command += [part for name in names for part in ("--only", name)]
    command += ["--cards", b.cards] if b.cards else []
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=tree,
        preexec_fn=process.die_with_parent,  # its supervisors see that and end the job
    )  # fmt: skip
    try:
        return RunRecord.model_validate_json(done.stdout)
    except ValueError:
        raise ToolError(f"the run at {commit[:10]} failed: {done.stderr.strip()[-300:]}") from None


@contextlib.contextmanager
def _worktree(root: Path, commit: str) -> Iterator[Path]:
    folder = root / ".matrix" / "bisect" / "tree"
    _remove_worktree(root, folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _git(root, "worktree", "add", "--detach", "--force", str(folder), commit)
    try:
        yield folder
    finally:
        _remove_worktree(root, folder)


def _remove_worktree(root: Path, folder: Path) -> None:
    subprocess.run(["git", "-C", root, "worktree", "remove", "--force", folder], capture_output=True, check=False)
    subprocess.run(["git", "-C", root, "worktree", "prune"], capture_output=True, check=False)


def _load(b: Bisection) -> None:
    """Take over results of an earlier search for the same job; a run says the same of a commit whoever asks."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        known = json.loads(b.cache.read_text(encoding="utf-8"))
        b.results = {c: [Result(**r) for r in rs] for c, rs in known.items() if c in {*b.commits, b.good}}


def _save(b: Bisection) -> None:
    known: dict[str, object] = {}
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(b.cache.read_text(encoding="utf-8"))
    known |= {
        c: [{"said": r.said, "run": r.run, "signature": r.signature, "text": r.text} for r in rs]
        for c, rs in b.results.items()
    }
    b.cache.parent.mkdir(parents=True, exist_ok=True)
    ignore_leavings(b.root)
    replace(b.cache, json.dumps(known, indent=1), durable=False)


def _git(root: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *args], capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        what = args[-1].removesuffix("^{commit}")
        outside = "--show-toplevel" in args
        raise UsageError(
            f"git {args[0]} {what}: {done.stderr.strip() or 'no such revision'}",
            "bisect compares commits: run it inside of a repository"
            if outside
            else "name revisions of this repository",
        )
    return done.stdout.strip()
