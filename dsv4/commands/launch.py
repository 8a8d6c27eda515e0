"""`dsv4 launch`: the ranks of one job on this host."""

from __future__ import annotations

import itertools
import shlex
import sys
import time
from pathlib import Path

import click

FILE = click.Path(path_type=Path)


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--ranks", type=click.IntRange(min=1), help="Processes; default: the product of the degrees in CONFIG.")
@click.option("--log-dir", type=FILE, help="New folder for workerlog.R and launch.log; default logs/<time>.")
@click.option("--dry-run", is_flag=True, help="Print the command of every rank and what it would do, and stop.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="CONFIG [TRAIN OPTIONS]...")
def command(ranks: int | None, log_dir: Path | None, dry_run: bool, arguments: tuple[str, ...]) -> int:
    """Run `dsv4 train CONFIG ...` on several ranks of this host, and say which failed first if the job fails.

    Example: dsv4 launch --ranks 8 tiny.yaml --set expert_parallel=8 --tokens t.safetensors --record run.csv
    """
    from dsv4.parallel.launch import launch  # noqa: PLC0415
    from dsv4.parallel.plan import describe_job, plan_job  # noqa: PLC0415

    plan = plan_job(list(arguments), ranks)
    argv = [sys.executable, "-u", "-W", "ignore", "-m", "dsv4", "train", *arguments]
    if dry_run:
        click.echo("\n".join(describe_job(plan)))
        click.echo(f"command of every rank: {shlex.join(['dsv4', 'train', *arguments])}")
        return 0
    return launch(argv, plan.layout.world, log_dir or _new_folder()).code


def _new_folder() -> Path:
    """Make a folder that no other job has, not even one started in the same second."""
    from dsv4.parallel.launch import make_folder  # noqa: PLC0415

    first = Path("logs") / time.strftime("%Y%m%d-%H%M%S")
    names = itertools.chain([first.name], (f"{first.name}-{number}" for number in itertools.count(2)))
    return next(folder for folder in map(first.with_name, names) if make_folder(folder, new=True))
