"""What must hold between the jobs of a matrix: names, hand-offs, cycles, hosts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from matrix.plan.graph import cycles, needed_jobs, producers
from matrix.plan.hosts import Host
from matrix.spec.expand import Path
from matrix.spec.job import Job
from matrix.spec.problems import did_you_mean

Found = tuple[Job, Path, str]  # the job, where inside it, what is wrong


def check(jobs: Sequence[Job], hosts: Sequence[Host] | None, broken: Collection[str] = frozenset()) -> Iterator[Found]:
    """Yield everything that is wrong between jobs.

    `hosts` None: not known, so nothing is said about them. `broken`: hand-offs of jobs that have mistakes of their own.
    """
    yield from _names(jobs)
    yield from _hand_offs(jobs, broken)
    yield from _circles(jobs)
    yield from _overrides(jobs)
    if hosts is not None:
        yield from _hosts(jobs, hosts)


def _names(jobs: Sequence[Job]) -> Iterator[Found]:
    seen: dict[str, Job] = {}
    for job in jobs:
        first = seen.setdefault(job.name.lower(), job)
        if first is job:
            continue
        if first.base != job.base or first.suite != job.suite:
            yield (
                job,
                (),
                f"the name {job.name!r} is already on line {first.line}: a name is unique in the whole matrix",
            )
        else:
            yield (
                job,
                ("parameters",),
                f"two combinations are both called {job.name!r}: use values that differ in letters",
            )


def _hand_offs(jobs: Sequence[Job], broken: Collection[str]) -> Iterator[Found]:
    by_name: dict[str, Job] = {}
    by_path: dict[str, Job] = {}
    for job in jobs:
        for i, handoff in enumerate(job.produces):
            first = by_name.setdefault(handoff.name, job)
            if first is not job:
                yield (
                    job,
                    ("produces", i),
                    f"{handoff.name!r} is produced by {first.name!r} too: rename one, {_hint(job)}",
                )
            place = posixpath.normpath(posixpath.join(job.cwd, handoff.path))
            first = by_path.setdefault(place, job)
            if first is not job:
                yield job, ("produces", i), f"writes {place!r} as {first.name!r} does: give each its own, {_hint(job)}"
    made, names = producers(jobs), {job.name: job for job in jobs}
    for job in jobs:
        for i, need in enumerate(job.needs):
            if need not in made and not {need, need.split("@")[0]} & set(broken):
                yield job, ("needs", i), f"nobody produces {need!r}: {_who(need, made, names)}"


def _hint(job: Job) -> str:
    return f"with ${{{{ {next(iter(job.parameters))} }}}} in it" if job.parameters else "or remove one"


def _who(need: str, made: Mapping[str, str], names: Mapping[str, Job]) -> str:
    if need in names:
        handoffs = [handoff.name for handoff in names[need].produces]
        if handoffs:
            return f"the job {need!r} produces {', '.join(map(repr, handoffs))}"
        return f"add 'produces' to the job {need!r}"
    variants = sorted(handoff for handoff in made if handoff.startswith(f"{need}@"))
    if variants:
        return f"write one of {', '.join(variants)}"
    return did_you_mean(need, made)


def _circles(jobs: Sequence[Job]) -> Iterator[Found]:
    names = {job.name: job for job in jobs}
    for circle in cycles(needed_jobs(jobs)):
        chain = " -> ".join([*circle, circle[0]])
        yield names[circle[0]], ("needs",), f"a circle of needs: {chain}: remove one of these needs"


def _overrides(jobs: Sequence[Job]) -> Iterator[Found]:
    for job in jobs:
        text = "\n".join(job.command)
        for file in job.overrides:
            if not mentions(text, file) and "MATRIX_OVERRIDES" not in text:
                message = f"the command never names {file!r}, so its copy would not be read: "
                yield job, ("overrides", file), message + "name it, or use $MATRIX_OVERRIDES, the folder of the copies"


def mentions(text: str, file: str) -> bool:
    """Whether a command names a file."""
    return re.search(rf"(?<![\w./-]){re.escape(file)}(?![\w/-]|\.\w)", text) is not None


def _hosts(jobs: Sequence[Job], hosts: Sequence[Host]) -> Iterator[Found]:
    for job in jobs:
        want = job.cards
        if not want.count or any(host.fits(want) for host in hosts):
            continue
        most = max((len(host.suited(want.model)) for host in hosts), default=0)
        if want.model and not most:
            models = sorted({card.model for host in hosts for card in host.cards if card.model})
            has = f"there are {', '.join(models)}" if models else "no host names the model of its cards"
            yield job, ("cards", "model"), f"no host has a card of model {want.model!r}: {has}"
        else:
            of = f" of model {want.model}" if want.model else ""
            yield (
                job,
                ("cards", "count"),
                f"asks for {want.count} cards{of}, and no host has more than {most}: ask for fewer",
            )
