"""Where all is joined: a spec becomes a run, the run is followed to its end, and its reports are written."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path

from matrix.baseline.mistyped import mistyped
from matrix.engine.outcome import ended_unseen
from matrix.errors import ToolError, UsageError, by_system
from matrix.history import quarantine
from matrix.host import gpus, process
from matrix.host.health import look
from matrix.plan import hosts
from matrix.plan.forecast import expected_times
from matrix.records import Fact, JobRecord, RunRecord, Status, load, save
from matrix.report.text import one_line
from matrix.run import engines
from matrix.run import record as records
from matrix.run.companions import check_out
from matrix.run.folder import RECORD, create, locked
from matrix.run.loop import Runner
from matrix.run.own_cards import site_host
from matrix.run.prepare import Place, handoff_paths, shard_folder
from matrix.run.state import Listener
from matrix.run.times import known_times
from matrix.shard import times as shard_times
from matrix.spec.job import Job
from matrix.spec.load import Spec, read
from matrix.spec.select import Choice, changed_files
from matrix.triage.ruleset import check_own

_OPTIONS = "options.json"
_OLD_JOB_LIMIT = 10.0  # seconds that processes of a killed runner get to end


# Shows a run while it goes on: called with the record and the expected seconds of the jobs of which they are known.
Show = Callable[[RunRecord, Mapping[str, float]], AbstractContextManager[Listener]]


@dataclass(frozen=True, slots=True)
class Options:
    """What a run was asked for; kept beside its record, since a resumed run needs the same."""

    engine: str = "local"
    cards: str | None = None  # pretended ones, as `--cards` has them
    cpu_jobs: int | None = None  # jobs without cards at the same time
    handoffs: Mapping[str, str] = field(default_factory=dict)  # given from outside: name -> path


@dataclass(frozen=True, slots=True)
class Session:
    """A run that is about to begin or to go on."""

    spec: Spec
    folder: Path
    record: RunRecord
    options: Options


def new(spec: Spec, choices: Sequence[Choice], options: Options, changed_since: str | None = None) -> Session:
    """Make the folder and the record of a new run.

    Raises:
        UsageError: a given hand-off is not there, or a job asks for cards that are not.

    """
    if (
        options.engine == "local"
        and options.cards is None
        and spec.pretend_cards
        and not gpus.discover().cards
        and hosts.hosts_file() is None
    ):
        options = replace(options, cards=spec.pretend_cards)
    changed = changed_files(spec.root, changed_since) if changed_since else None
    engines.check(options.engine, options.cards, [c.job for c in choices if c.selected])  # before anything is written
    quarantine.load(spec.root)  # likewise
    check_own(spec.root)
    for name, path in options.handoffs.items():
        if not Path(path).exists():
            raise UsageError(f"--handoff {name}={path}: there is no such path")
    folder = create(spec.root)
    record = records.new_record(
        spec, choices, folder.name, options.engine, given=options.handoffs, base=changed_since, changed=changed
    )
    (folder / _OPTIONS).write_text(json.dumps(asdict(options)), encoding="utf-8")
    save(record, folder / RECORD)
    return Session(spec, folder, record, options)


def reopen(folder: Path) -> Session:
    """Take up a run that is there.

    Raises:
        UsageError: the matrix is another one by now.
        ToolError: the record cannot be read.

    """
    record = load(folder / RECORD)
    root = folder.parents[2]
    spec = read(root / record.spec.path)
    if spec.sha256 != record.spec.sha256:
        raise UsageError(f"{spec.path} has changed since run {record.id} began", "start a new run: matrix run")
    check_own(spec.root)  # a rule that cannot be read would only be found when a job fails
    try:
        options = Options(**json.loads((folder / _OPTIONS).read_bytes()))
    except (OSError, ValueError, TypeError):
        options = Options(engine=record.engine)
    return Session(spec, folder, record, options)


def begin(session: Session, show: Show) -> None:
    """Run a new session to its end."""
    with locked(session.folder):
        _follow(session, show)


def resume(folder: Path, show: Show) -> Session:
    """Finish what a killed runner left unfinished; what has passed is not run again."""
    with locked(folder):
        session = reopen(folder)
        _take_up(session)
        _note_files(session)
        save(session.record, folder / RECORD)
        _follow(session, show)
        return session


def rerun(folder: Path, names: Sequence[str], *, failed: bool, show: Show) -> Session:
    """Add attempts to a run: of the named jobs, of all that went badly, or of all."""
    with locked(folder):
        session = reopen(folder)
        _take_up(session)
        blocked = {j.name for j in session.record.jobs if j.status is Status.BLOCKED}
        taken = records.again(session.record, names, failed=failed)
        if names and (more := [name for name in taken if name in blocked - set(names)]):
            print(f"matrix: run again too, as they were blocked: {', '.join(map(one_line, more))}", file=sys.stderr)
        _note_files(session)
        save(session.record, folder / RECORD)
        _follow(session, show)
        return session


def _note_files(session: Session) -> None:
    said = records.note_files(session.record, session.spec.path)
    if said:
        print(f"matrix: {said}\n  for a run of these files: matrix run", file=sys.stderr)


def _take_up(session: Session) -> None:
    """Take a record up where a killed runner left it, and see to it that no process of its attempts lives."""
    place = Place(session.spec.root, session.folder)
    name = session.options.engine

    def taken_up(job: str, n: int) -> bool:
        scratch = place.scratch(job, n)
        return engines.adopts(name, scratch) or ended_unseen(scratch) is not None

    tags = records.take_up(session.record, taken_up)
    for tag in tags:
        left = process.kill_all(lambda tag=tag: process.of_job(tag), _OLD_JOB_LIMIT)  # type: ignore[misc]
        if left:
            raise ToolError(f"processes {left} of {tag} do not end", "end them, then resume the run again")


def _follow(session: Session, show: Show) -> None:
    """Follow a run to its end, give its failures their verdicts, and write its reports."""
    spec, options = session.spec, session.options
    pending = [job for job in spec.jobs if session.record.job(job.name).status is Status.PENDING]
    engine = engines.make(options.engine, options.cards, pending)
    companions = check_out(pending, spec.root, session.record)
    handoffs = {**handoff_paths(spec.root, spec.jobs), **{n: Path(p).resolve() for n, p in options.handoffs.items()}}
    place = Place(spec.root, session.folder, handoffs, companions)
    _pin_times(pending, place)
    site = site_host()
    kept = quarantine.load(spec.root)
    session.record.notices = [e.over() for e in kept.expired(date.today().isoformat())]  # noqa: DTZ011 -- reader's day
    session.record.notices += mistyped(
        [job for job in spec.jobs if session.record.job(job.name).status is not Status.SKIPPED], spec.root
    )
    for notice in session.record.notices:
        print(f"matrix: {one_line(notice, 1000)}", file=sys.stderr)
    known = known_times(spec.jobs, spec.root, {card.model for card in engine.cards}, os.environ)
    if known.problem:
        print(f"matrix: {known.problem}", file=sys.stderr)
    expected = expected_times(spec.jobs, known.past)
    try:
        with show(session.record, {name: e.seconds for name, e in expected.items() if e.known}) as listener:
            runner = Runner(
                session.record,
                spec.jobs,
                place,
                engine,
                expected={name: e.seconds for name, e in expected.items()},
                health=look if any(c.memory for c in engine.cards) else None,
                cpu_jobs=options.cpu_jobs or (site and site.cpu_jobs) or max(2, os.cpu_count() or 1),
                memory=(site and site.memory) or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
                listener=listener,
                quarantine=kept,
                policy=spec.retry,
                verdicts=lambda r: _verdict(session, r),
            )
            asyncio.run(_run(runner))
    except OSError as e:  # the record is as it was last written
        raise by_system(e, f"matrix run --resume {session.record.id}") from e
    finally:
        engine.close()
    _keep_times(pending, place)
    _compare_shards(session, pending, place)
    report(session)


def _verdict(session: Session, job: JobRecord) -> str:
    from matrix.run.memory import verdict_now  # noqa: PLC0415 -- only where a policy asks for verdicts

    return verdict_now(session.record, job, session.folder, session.spec)


async def _run(runner: Runner) -> None:
    """Run, with Ctrl-C and its like as the wish to stop: once to cancel, twice to kill."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        again = "jobs are being killed" if runner.stopping else "jobs are being ended; once more kills them at once"
        print(f"matrix: {again}", file=sys.stderr)
        runner.stop()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    await runner.run()


def report(session: Session) -> None:
    """Give failures their verdicts, remember the run, and write its reports."""
    # Loaded only now: a run should not begin by loading what it needs at its end.
    from matrix.report import html, junit  # noqa: PLC0415
    from matrix.run.memory import keep_folder, remember  # noqa: PLC0415

    if warning := remember(session.record, session.folder, session.spec):
        print(f"matrix: {warning}", file=sys.stderr)
    junit.write(session.record, session.folder)
    html.write(session.record, session.folder)
    if warning := keep_folder(session.record, session.folder, session.spec):
        print(f"matrix: {warning}", file=sys.stderr)


def _shard_stores(jobs: Sequence[Job], place: Place) -> dict[Path, Path]:
    """Return where shards exchange times in this run, and where these are kept from run to run."""
    kept = place.root / ".matrix" / "times"
    return {shard_folder(job, place): kept / f"{job.whole}.json" for job in jobs if job.shard}


def _pin_times(jobs: Sequence[Job], place: Place) -> None:
    for folder, store in _shard_stores(jobs, place).items():
        shard_times.pin(store, folder)


def _keep_times(jobs: Sequence[Job], place: Place) -> None:
    for folder, store in _shard_stores(jobs, place).items():
        shard_times.keep(folder, store)


def _compare_shards(session: Session, jobs: Sequence[Job], place: Place) -> None:
    """Say so, at every shard, when shards of one suite collected different tests."""
    for folder in _shard_stores(jobs, place):
        said = shard_times.disagreement(folder)
        if not said:
            continue
        suite = [job for job in jobs if job.shard and shard_folder(job, place) == folder]
        print(f"matrix: {suite[0].whole}: {said}", file=sys.stderr)
        for job in suite:
            source = str(folder.relative_to(session.folder))
            session.record.job(job.name).facts.append(Fact(key="shards_differ", value=said, source=source))
        save(session.record, session.folder / RECORD)
