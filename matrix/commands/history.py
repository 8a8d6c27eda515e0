"""`matrix history`: bring results in, ask for what is remembered, forget."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from matrix.errors import MatrixError, UsageError

if TYPE_CHECKING:
    from matrix.history.rows import Rows
    from matrix.history.store import Store
from matrix.help import Group


def store_option(f: click.decorators.FC) -> click.decorators.FC:
    """Add --db, the URL of a history."""
    return click.option("--db", metavar="URL", help="The history; else $MATRIX_HISTORY, else .matrix/history.sqlite.")(
        f
    )


def history_url(db: str | None) -> str:
    """Return the URL of the history that a command means."""
    from matrix.history.remember import default_url  # noqa: PLC0415 - keeps --help quick

    folder = next((p / ".matrix" for p in (Path.cwd(), *Path.cwd().parents) if (p / "matrix.yaml").is_file()), None)
    return db or default_url(folder or Path(".matrix"), os.environ)


def since_time(text: str) -> float:
    """Return the time (seconds since 1970) that a date or a duration before now means."""
    from matrix.spec.units import parse_duration  # noqa: PLC0415

    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()
    except ValueError:
        pass
    try:
        return time.time() - parse_duration(text)
    except ValueError as e:
        raise UsageError(
            f"{text!r} is no time: {e}", "write a duration such as 7d, or a date such as 2026-12-01"
        ) from None


@click.group("history", cls=Group)
def command() -> None:
    """Bring results in, ask for what is remembered.

    Example: matrix history query --since 7d
    """


@command.command("import")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--junit", is_flag=True, help="PATHs are JUnit files; needs --job and --commit.")
@click.option("--github", is_flag=True, help="PATHs are folders with runs.json and jobs-ID.json of GitHub's API.")
@click.option("--job", help="The job that a JUnit file belongs to.")
@click.option("--commit", help="The commit that a JUnit file belongs to.")
@click.option("--started", help="When it ran (ISO); else the file's own time.")
@click.option("--pr", type=int, help="The pull request that a JUnit file belongs to.")
@click.option("--author", help="Who wrote the change.")
@store_option
def import_(
    paths: tuple[str, ...],
    junit: bool,
    github: bool,
    job: str | None,
    commit: str | None,
    started: str | None,
    pr: int | None,
    author: str | None,
    db: str | None,
) -> None:
    """Bring run folders (of other hosts, of CI artifacts), JUnit files or GitHub's answers into the history.

    Example: matrix history import .matrix/runs/*
    """
    from matrix.history import importing  # noqa: PLC0415
    from matrix.history.importing_github import from_github  # noqa: PLC0415
    from matrix.history.store import open_store  # noqa: PLC0415
    from matrix.report.progress import tracked  # noqa: PLC0415
    from matrix.report.text import count  # noqa: PLC0415

    if junit and not (job and commit):
        raise UsageError("history import --junit needs --job and --commit", "add --job NAME --commit SHA")
    if started:
        try:
            datetime.fromisoformat(started)
        except ValueError:
            raise UsageError(f"--started {started!r} is no time", "write 2026-12-01T09:30:00Z") from None

    def read(path: Path) -> Iterable[Rows | MatrixError]:
        if github:
            return from_github(path)
        if junit:
            about = importing.About(job or "", commit or "", started, pr, author)
            return [importing.from_junit(path, about)]
        return importing.from_folders(path)

    store = open_store(history_url(db))
    done, problems = 0, list[MatrixError]()
    for path in tracked(map(Path, paths), len(paths), "import"):
        done += _bring(store, read, path, problems)
    store.close()
    click.echo(f"{count(done, 'run')} brought into the history")
    for problem in problems[:-1]:
        click.echo(f"matrix: {problem.message}", err=True)
    if problems:
        raise problems[-1]


def _bring(
    store: Store, read: Callable[[Path], Iterable[Rows | MatrixError]], path: Path, problems: list[MatrixError]
) -> int:
    """Store what can be read, and return how many runs that is: one bad file keeps no other out.

    Raises:
        StoreAwayError: the database cannot be reached.

    """
    from matrix.history.store import StoreAwayError  # noqa: PLC0415

    done = 0
    try:
        for found in read(path):
            if isinstance(found, MatrixError):
                problems.append(found)
            else:
                store.write(found)
                done += 1
    except StoreAwayError:
        raise
    except MatrixError as e:
        problems.append(e)
    return done


def archive_option(f: click.decorators.FC) -> click.decorators.FC:
    """Add --archive, where run folders are kept."""
    return click.option("--archive", metavar="WHERE", envvar="MATRIX_ARCHIVE", required=True, show_envvar=True,
                        help="A folder, or s3://BUCKET/PREFIX?endpoint=URL.")(f)  # fmt: skip


@command.command("fetch")
@click.argument("run", metavar="RUN")
@archive_option
@store_option
def fetch(run: str, archive: str, db: str | None) -> None:
    """Bring the folder of a run back from the archive: its record, reports and logs.

    Example: matrix history fetch 20261201-093011-7f3a
    """
    from matrix.history import keeping, queries  # noqa: PLC0415
    from matrix.history.archive import open_archive  # noqa: PLC0415
    from matrix.history.store import open_store  # noqa: PLC0415
    from matrix.run.folder import repository_root, runs_folder  # noqa: PLC0415

    store = open_store(history_url(db))
    with store.begin() as c:
        known = queries.kept(c, run=run)
    store.close()
    if known is None:
        raise UsageError(f"no run {run!r} in the history", "matrix history query lists what is remembered")
    if known.archive is None:
        raise UsageError(f"run {run}: {known.status}; its logs are gone", "matrix history query tells what is known")
    folder = runs_folder(repository_root()) / run
    keeping.fetch(open_archive(archive), known.archive, folder)
    click.echo(f"{folder}")


@command.command("retain")
@click.option("--older", default="180d", show_default=True, help="Remove archived runs older than this; or `none`.")
@click.option("--size", default="none", show_default=True, help="Keep all archived runs together below this.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@archive_option
@store_option
def retain(older: str, size: str, archive: str, db: str | None, *, dry_run: bool) -> None:
    """Remove old runs from the archive. Their results stay in the history, which then says that the logs are gone.

    Example: matrix history retain --older 90d --size 200G --dry-run
    """
    from matrix.history import keeping, queries  # noqa: PLC0415
    from matrix.history.archive import open_archive  # noqa: PLC0415
    from matrix.history.store import open_store  # noqa: PLC0415
    from matrix.report import text  # noqa: PLC0415
    from matrix.spec.units import parse_duration, parse_size  # noqa: PLC0415

    try:
        age = None if older == "none" else parse_duration(older)
        most = None if size == "none" else parse_size(size)
    except ValueError as e:
        raise UsageError(str(e), "write --older 90d --size 200G, or none") from None
    opened = open_archive(archive)
    items = opened.items()
    doomed = keeping.expired(items, now=time.time(), max_age=age, max_size=most)
    store = open_store(history_url(db))
    for item in doomed:
        if not dry_run:
            # First what is said of it: a link to what is gone is worse than a file that nothing names.
            with store.begin() as c:
                queries.forget_archived(c, name=item.name)
            opened.delete(item.name)
        click.echo(f"{'would remove' if dry_run else 'removed'} {item.name} ({text.size(item.size)})")
    store.close()
    left = sum(i.size for i in items) - sum(i.size for i in doomed)
    click.echo(f"{text.count(len(items) - len(doomed), 'run')} kept in the archive, {text.size(left)}")


@command.command("verdicts")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@store_option
def verdicts(runs: tuple[str, ...], as_json: bool, db: str | None) -> None:
    """Give every failed job of run folders its verdict from all that is remembered now.

    Example: matrix history verdicts .matrix/runs/20261201-093011-7f3a
    """
    from matrix.history.importing import read_record, with_causes  # noqa: PLC0415
    from matrix.history.remember import judge  # noqa: PLC0415
    from matrix.records import BAD  # noqa: PLC0415
    from matrix.report.progress import tracked  # noqa: PLC0415

    out = []
    for folder in tracked(map(Path, runs), len(runs), "verdicts"):
        run = read_record(folder / "run.json" if folder.is_dir() else folder)
        with_causes(run, folder if folder.is_dir() else folder.parent)
        warning = judge(run, folder if folder.is_dir() else folder.parent, url=history_url(db))
        if warning:
            click.echo(f"matrix: {warning}", err=True)
        out += [{"run": run.id, "job": j.name, "verdict": j.verdict.model_dump() if j.verdict else None}
                for j in run.jobs if j.status in BAD]  # fmt: skip
    if as_json:
        click.echo(json.dumps({"schema": "verdicts/1", "verdicts": out}))
        return
    for row in out:
        verdict = row["verdict"] or {"value": "cannot-tell", "compared": []}
        click.echo(f"{row['run']} {row['job']}: {verdict['value']}")  # type: ignore[index]
        for line in verdict["compared"]:  # type: ignore[index]
            click.echo(f"    {line}")


@command.command("query")
@click.option("--since", default="7d", show_default=True, help="A duration (7d) or a date (2026-12-01).")
@click.option("--signature", help="How often this failure was seen, and in how many pull requests.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@store_option
def query(since: str, signature: str | None, as_json: bool, db: str | None) -> None:
    """Tell what failed since a time: by category, by verdict, flaky tests; or one signature.

    Example: matrix history query --since 30d --signature 8f3c2a1b9d04e6f7
    """
    from matrix.history import queries  # noqa: PLC0415
    from matrix.history.store import open_store  # noqa: PLC0415

    store, start = open_store(history_url(db)), since_time(since)
    with store.begin() as c:
        if signature:
            seen = queries.sightings(c, signature=signature, since=start)
            answer: dict[str, object] = {"signature": signature, **asdict(seen)}
        else:
            answer = {
                "runs": len(queries.runs_since(c, since=start, most=100_000)),
                "categories": dict(queries.failures_by(c, "category", since=start)),
                "verdicts": dict(queries.failures_by(c, "verdict", since=start)),
                "coverage": queries.newest_coverage(c, since=start),
                "flaky": [[f.test, f.failed, f.ran, f.low, f.high] for f in queries.flaky_tests(c, since=start)],
            }
    store.close()
    if not as_json and answer.get("runs") == 0:
        click.echo(f"no run is remembered since {since}: matrix run makes one, --since 365d looks further back")
        return
    click.echo(json.dumps(answer) if as_json else _plain(answer))


def _plain(answer: dict[str, object]) -> str:
    lines = []
    for key, value in answer.items():
        if key == "coverage" and isinstance(value, dict):
            lines += [f"{key}:", *(f"  {name}: {v}" for name, v in value.items() if name != "files")] if value else []
            lines += [f"  {covered} of {all_} lines  {name}" for name, all_, covered in value.get("files", [])[:10]]
        elif isinstance(value, dict):
            lines += [f"{key}:", *(f"  {n:6}  {name}" for name, n in value.items())]
        elif isinstance(value, list):
            lines.append(f"{key}: (failed of ran, 95 % interval of the rate)")
            lines += [
                f"  {failed} of {ran} ({low:.1%} to {high:.1%})  {test}" for test, failed, ran, low, high in value
            ]
        else:
            lines.append(f"{key}: {value}")
    return "\n".join(lines)
