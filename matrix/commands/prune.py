"""`matrix prune`: removes old runs."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click


class _Unit(click.ParamType[float]):
    """A duration or a size with its unit, or `none`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it, with the message of the spec's reader if it cannot be read."""
        from matrix.spec.units import parse_duration, parse_size  # noqa: PLC0415 -- keeps --help quick

        if not isinstance(value, str):
            return float(value)
        if value == "none":
            return -1
        try:
            return parse_duration(value) if self.name == "duration" else parse_size(value)
        except ValueError as e:
            self.fail(str(e), param, ctx)


@click.command("prune")
@click.option("--older", type=_Unit("duration"), default="30d", show_default=True, help="Remove runs older than this.")
@click.option("--size", type=_Unit("size"), default="20G", show_default=True, help="Keep all runs together below this.")
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(older: float, size: int, dry_run: bool, as_json: bool) -> None:
    """Remove old runs. The last red and the last green run of each job stay, and so does a run that is going on.

    Example: matrix prune --older 14d --size 5G --dry-run
    """
    from matrix import retention  # noqa: PLC0415
    from matrix.report import text  # noqa: PLC0415
    from matrix.run.folder import runs_folder  # noqa: PLC0415
    from matrix.spec.load import find  # noqa: PLC0415

    folder = runs_folder(find(Path.cwd()).parent)
    runs = retention.survey(folder)
    chosen = retention.choose(
        runs, now=time.time(), max_age=older if older >= 0 else None, max_size=size if size >= 0 else None
    )
    removed: list[retention.Removal] = []
    going: list[retention.Removal] = []
    for removal in chosen:
        run = removal.run.folder
        gone = not retention.is_going(run) if dry_run else retention.remove(run)
        (removed if gone else going).append(removal)
        if not as_json:
            what = ("would remove" if dry_run else "removed") if gone else "kept, it is going on:"
            click.echo(f"{what} {run.name} ({text.size(removal.run.size)}, {removal.why})")
    if not dry_run:
        retention.sweep(folder)
    freed = sum(r.run.size for r in removed)
    left = sum(run.size for run in runs) - freed
    if as_json:
        document = {
            "schema": "prune/1",
            "dry_run": dry_run,
            "removed": [{"id": r.run.folder.name, "bytes": r.run.size, "why": r.why} for r in removed],
            "going": [r.run.folder.name for r in going],
            "kept": len(runs) - len(removed),
            "bytes_left": left,
        }
        click.echo(json.dumps(document, indent=1))
        return
    kept = text.count(len(runs) - len(removed), "run")
    click.echo(f"{kept} kept, {text.size(left)}; {text.size(freed)} {'would be freed' if dry_run else 'freed'}")
