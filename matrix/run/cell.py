"""One job of a matrix on a runner of its own: hand-offs arrive as parcels, leave as parcels, and the run is one job."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from matrix import handoff
from matrix.handoff import parcel
from matrix.plan.graph import producers
from matrix.records import Status, Verdict, move, save
from matrix.run import session
from matrix.run.folder import LOCK, RECORD
from matrix.run.prepare import handoff_paths
from matrix.run.session import Options, Session, Show
from matrix.spec.job import HandOff, Job
from matrix.spec.load import Spec
from matrix.spec.select import Choice

RUN = "run"  # what `matrix merge` takes, in the folder of a cell
HANDOFFS = "handoffs"


def run_cell(
    spec: Spec, job: Job, *, inbox: Path, out: Path, given: dict[str, str], cards: str | None, show: Show
) -> Session:
    """Run one job with what stands in `inbox`; leave its run folder and its hand-offs in `out`.

    A hand-off that did not arrive, or not whole, blocks the job: it is not run on less.
    """
    paths = handoff_paths(spec.root, spec.jobs)
    missing = _receive(spec, [n for n in job.needs if n not in given], paths, inbox)
    arrived = {name: str(paths[name]) for name in job.needs if name not in given and name not in missing}
    options = Options(cards=cards, handoffs={**arrived, **given})
    why = {True: "the job of this cell", False: "the job of another cell"}
    chosen = [Choice(each, each is job, why[each is job]) for each in spec.jobs]
    cell = session.new(spec, chosen, options)
    if missing:
        _block(cell, job, missing)
    session.begin(cell, show)
    _leave(cell, job, paths, out)
    return cell


def _receive(spec: Spec, names: Sequence[str], paths: dict[str, Path], inbox: Path) -> dict[str, str]:
    """Unpack hand-offs at their places; return the jobs at fault and why, by the name of the hand-off."""
    missing = {}
    declared: dict[str, HandOff] = {h.name: h for job in spec.jobs for h in job.produces}
    made_by = producers(spec.jobs)
    for name in names:
        found = sorted(inbox.rglob(parcel.file_name(name)))
        if not found:
            missing[name] = f"{made_by[name]} left no {name}"
            continue
        problems = parcel.unpack(found[0], paths[name]) or handoff.check(paths[name], declared[name].kind)
        if problems:
            missing[name] = f"{name} of {made_by[name]} cannot be used: {problems[0].file}: {problems[0].what}"
    return missing


def _block(cell: Session, job: Job, missing: dict[str, str]) -> None:
    made_by = producers(cell.spec.jobs)
    record = cell.record.job(job.name)
    record.needs = list(dict.fromkeys(made_by[name] for name in job.needs if name in made_by))
    record.blocked_by = list(dict.fromkeys(made_by[name] for name in missing))
    record.verdict = Verdict(value="follows", compared=record.blocked_by)
    move(record, Status.BLOCKED, reason="; ".join(missing.values()))
    save(cell.record, cell.folder / RECORD)


def _leave(cell: Session, job: Job, paths: dict[str, Path], out: Path) -> None:
    for name in (RUN, HANDOFFS):  # of an earlier job on this runner
        shutil.rmtree(out / name, ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    shutil.copytree(cell.folder, out / RUN, ignore=shutil.ignore_patterns(LOCK, "handoffs"))
    record = cell.record.job(job.name)
    save(cell.record.model_copy(update={"jobs": [record]}), out / RUN / RECORD)
    if record.status is Status.PASSED:
        for made in job.produces:
            parcel.pack(paths[made.name], out / HANDOFFS / parcel.file_name(made.name))
