"""Which jobs run, and why: by name, by tag, by what changed. Never nothing because of an empty diff."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from matrix.errors import ToolError, UsageError
from matrix.plan.graph import downstream, needed_jobs, producers, upstream
from matrix.spec.concerned import by_imports
from matrix.spec.globs import matching
from matrix.spec.job import Job
from matrix.spec.load import Spec
from matrix.spec.problems import did_you_mean
from matrix.spec.wishes import fitting

# Files whose change concerns every job: what runs, and how.
_ALWAYS = ("matrix.yaml", ".github/workflows/**")


@dataclass(frozen=True, slots=True)
class Choice:
    """Whether a job runs, and why or why not."""

    job: Job
    selected: bool
    reason: str


def select(
    spec: Spec,
    *,
    only: Sequence[str] = (),
    tags: Sequence[str] = (),
    changed: Sequence[str] | None = None,
    handoffs: Iterable[str] = (),
) -> list[Choice]:
    """Choose the jobs of a run, in the order of the matrix.

    `only`: names, globs of names, suites, or tag:NAME. `changed`: files relative to the matrix, or None when that is
    not asked. Jobs that produce what a chosen one needs are chosen too, unless the hand-off is in `handoffs` (given
    from outside).

    Raises:
        UsageError: a name or tag fits no job.

    """
    jobs = spec.jobs
    reasons: dict[str, str] = {}
    if only or tags:
        for wish in [*only, *(f"tag:{tag}" for tag in tags)]:
            for job in fitting(jobs, wish):
                reasons.setdefault(job.name, f"named by {wish}")
    else:
        reasons = {job.name: "all jobs" for job in jobs}
    if changed is not None:
        reasons = _changed(spec, [job for job in jobs if job.name in reasons], changed)
    edges = needed_jobs(jobs)
    given = {name for name, job in producers(jobs).items() if name in set(handoffs)}
    if unknown := [name for name in handoffs if name not in producers(jobs)]:
        raise UsageError(f"nobody produces {unknown[0]!r}: {did_you_mean(unknown[0], producers(jobs))}")
    # An edge remains only if something that comes over it is not given from outside.
    by_job = {job.name: {h.name for h in job.produces} for job in jobs}
    need_names = {job.name: set(job.needs) - given for job in jobs}
    edges = {name: tuple(p for p in needs if by_job[p] & need_names[name]) for name, needs in edges.items()}
    for name in list(reasons):
        for need in upstream(edges, [name]):
            reasons.setdefault(need, f"needed by {name}")
    return [
        Choice(job, job.name in reasons, reasons.get(job.name) or ("not named" if only or tags else _left_out(job)))
        for job in jobs
    ]


def _left_out(job: Job) -> str:
    """Say why no change concerns a job: where it names paths, what it imports was not looked at."""
    by = "its paths, which alone were asked" if job.paths else "what it imports"
    return f"no changed file concerns it, by {by}"


NO_FLOOR = "all jobs: the matrix has no floor"


def floor(spec: Spec) -> dict[str, str]:
    """Jobs that run whatever changed, with the reason.

    Those that `floor` of the matrix names; without it, jobs without `paths`; where all have `paths`, all jobs.
    """
    if spec.floor:
        return {job.name: f"floor: {wish}" for wish in reversed(spec.floor) for job in fitting(spec.jobs, wish)}
    always = {job.name: "runs whatever files changed: it has no paths" for job in spec.jobs if not job.paths}
    return always or {job.name: NO_FLOOR for job in spec.jobs}


def _changed(spec: Spec, jobs: Sequence[Job], changed: Sequence[str]) -> dict[str, str]:
    """Reasons of those among `jobs` that the changed files concern; never empty."""
    wanted = {job.name for job in jobs}
    reasons = {name: why for name, why in floor(spec).items() if name in wanted}
    if not changed:
        reasons = {name: f"nothing changed; {why}" for name, why in reasons.items()}
        return reasons or dict.fromkeys(wanted, "nothing changed; named, and no named job is in the floor")
    whole = matching([*_ALWAYS, spec.path.name], changed)
    touched = []
    for job in jobs:
        hits = matching(job.paths, changed) if job.paths else []
        if whole:
            reasons[job.name] = f"{whole[0]} changed, which concerns all jobs"
        elif hits:
            touched.append(job.name)
            reasons[job.name] = hits[0] + (f" and {len(hits) - 1} more" if len(hits) > 1 else "") + " changed"
        elif not job.paths and job.name not in reasons:
            why = by_imports(spec, job, changed)
            if why:
                reasons[job.name] = why
    edges = needed_jobs(spec.jobs)
    for name in touched:
        for follower in downstream(edges, name):
            if follower in wanted:
                reasons.setdefault(follower, f"needs what {name} produces")
    return reasons or dict.fromkeys(wanted, "named; no changed file concerns any of the named jobs")


def changed_files(root: Path, revision: str) -> list[str]:
    """Files that differ between where this branch left `revision` and the working tree, relative to `root`.

    Committed, staged, unstaged and untracked ones; of a renamed file, both names.

    Raises:
        UsageError: not a repository, or no such revision.
        ToolError: git is not installed or failed.

    """
    if revision.startswith("-"):
        raise UsageError(f"bad revision {revision!r}", "name a commit or branch, such as origin/main")
    top = _git(root, "rev-parse", "--show-toplevel", wrong=f"{root} is not in a git repository").strip()
    wrong = f"git knows no revision {revision!r} here"
    _git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}", wrong=wrong)
    base = _git(root, "merge-base", revision, "HEAD", wrong=f"{revision!r} and HEAD have no commit in common").strip()
    diff = _git(root, "diff", "--name-only", "--no-renames", "-z", base, "--")
    new = _git(root, "ls-files", "--others", "--exclude-standard", "--full-name", "-z", ":/")
    prefix = root.resolve().relative_to(Path(top).resolve()).as_posix()
    names = {name for name in (diff + new).split("\0") if name}
    start = "" if prefix == "." else f"{prefix}/"
    inside = (name.removeprefix(start) for name in names if name.startswith(start))
    return sorted(name for name in inside if not name.startswith(".matrix/"))


_SILENT = "no message"


def _advice(root: Path) -> str:
    asked = ["git", "-C", str(root), "rev-parse", "--is-shallow-repository"]
    if subprocess.run(asked, capture_output=True, check=False, stdin=subprocess.DEVNULL).stdout.strip() == b"true":
        return "this clone is shallow: git fetch --unshallow, or fetch-depth: 0 of actions/checkout"
    return "mend --changed-since, or fetch it first"


def _git(root: Path, *arguments: str, wrong: str | None = None) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *arguments],
            capture_output=True,
            check=False,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        raise ToolError("git is not installed", "install git, or leave out --changed-since") from None
    except subprocess.TimeoutExpired:
        raise ToolError(f"git {arguments[0]} did not answer within two minutes") from None
    if done.returncode != 0:
        said = (done.stderr.decode(errors="replace").strip().splitlines() or [_SILENT])[0]
        if wrong:
            raise UsageError(wrong, _advice(root) + (f"; git: {said}" if said != _SILENT else ""))
        raise ToolError(f"git {arguments[0]} failed: {said}")
    return done.stdout.decode("utf-8", "backslashreplace")  # a name that is no text is shown, stored and printed
