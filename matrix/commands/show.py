"""`matrix show`: the runs that are there, one of them, or one of its jobs."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command("show")
@click.argument("run", required=False)
@click.argument("job", required=False)
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True, help="List so many runs.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document: runs, a run, or a job.")
def command(run: str | None, job: str | None, limit: int, as_json: bool) -> None:
    """List the runs; or show RUN (an id, the beginning of one, a path, or `last`); or show one JOB of it.

    Example: matrix show last qwen-sft
    """
    from matrix.commands.running import find_run  # noqa: PLC0415 -- keeps --help quick
    from matrix.errors import UsageError  # noqa: PLC0415
    from matrix.records import dump, load  # noqa: PLC0415
    from matrix.report import listing  # noqa: PLC0415
    from matrix.report.terminal import make_console  # noqa: PLC0415
    from matrix.run.folder import RECORD  # noqa: PLC0415
    from matrix.spec.problems import did_you_mean  # noqa: PLC0415

    if run is None:
        _list(limit, as_json=as_json)
        return
    try:
        folder = find_run(run, None)
    except UsageError:
        if said := _remembered(run):
            raise UsageError(said) from None
        raise
    record = load(folder / RECORD)
    if job is None:
        if as_json:
            click.echo(dump(record), nl=False)
        else:
            listing.print_run(make_console(), record, folder)
        return
    found = next((j for j in record.jobs if j.name == job), None)
    if found is None:
        raise UsageError(f"no job {job!r} in run {record.id}: {did_you_mean(job, [j.name for j in record.jobs])}")
    if as_json:
        document = next(j for j in json.loads(dump(record))["jobs"] if j["name"] == found.name)
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
    else:
        listing.print_job(make_console(), record, found, folder)


def _remembered(run: str) -> str | None:
    """Say what the history knows of a run whose folder was removed."""
    from matrix.commands.history import history_url  # noqa: PLC0415
    from matrix.errors import MatrixError  # noqa: PLC0415
    from matrix.history.queries import kept  # noqa: PLC0415
    from matrix.history.store import open_for_reading  # noqa: PLC0415

    try:
        store = open_for_reading(history_url(None))
        if store is None:
            return None
        with store.begin() as c:
            known = kept(c, run=run)
        store.close()
    except MatrixError:
        return None
    return known.said(run) if known else None


def _list(limit: int, *, as_json: bool) -> None:
    from matrix.errors import ToolError  # noqa: PLC0415
    from matrix.records import Status, load  # noqa: PLC0415
    from matrix.report import listing  # noqa: PLC0415
    from matrix.report.terminal import make_console  # noqa: PLC0415
    from matrix.retention import is_going  # noqa: PLC0415
    from matrix.run.folder import RECORD, runs_folder  # noqa: PLC0415
    from matrix.spec.load import find  # noqa: PLC0415

    folder = runs_folder(find(Path.cwd()).parent)
    entries = sorted((p for p in folder.glob("*") if p.is_dir() and not p.name.startswith(".")), reverse=True)
    runs = []
    for entry in entries[:limit]:
        try:
            record = load(entry / RECORD)
        except ToolError:
            runs.append(listing.Listed(entry.name, None))
            continue
        going = record.status is Status.RUNNING and is_going(entry)
        runs.append(listing.Listed(entry.name, record, going))
    if as_json:
        rows = [
            {"id": r.id, "status": str(r.run.status), "started": r.run.started, "ended": r.run.ended, "going": r.going,
             "commit": r.run.commit, "jobs": {j.name: str(j.status) for j in r.run.jobs}}
            if r.run else {"id": r.id, "status": "unreadable"}
            for r in runs
        ]  # fmt: skip
        click.echo(json.dumps({"schema": "runs/1", "runs": rows, "total": len(entries)}, indent=1))
        return
    if not runs:
        click.echo(f"no run in {folder} yet: matrix run makes one")
        return
    listing.print_runs(make_console(), runs)
    if len(entries) > limit:
        click.echo(f"and {len(entries) - limit} older; matrix show -n {len(entries)} lists all")
