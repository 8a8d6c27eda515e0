"""`matrix run`: runs the matrix, or finishes a run that was broken off."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command("run")
@click.argument("targets", nargs=-1, metavar="[SPEC]")
@click.option("--engine", type=click.Choice(["local"]), default="local", show_default=True, help="What runs the jobs.")
@click.option("--only", multiple=True, metavar="NAME...", help="Jobs to run: names, globs, suites or tag:NAME.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Jobs with this tag.")
@click.option("--changed-since", metavar="REV", help="Jobs that look at what changed since REV.")
@click.option("--handoff", "handoffs", multiple=True, metavar="NAME=PATH", help="A hand-off that comes from outside.")
@click.option("--cards", metavar="[MODEL:]N", help="Pretend so many cards, for hosts without.")
@click.option("--cpu-jobs", type=click.IntRange(1, 1024), help="So many jobs without cards at the same time.")
@click.option("--resume", metavar="RUN", help="Finish what is unfinished of a run (its id, or `last`).")
@click.option("--json", "as_json", is_flag=True, help="Print the record of the run (schema run/1) as one document.")
@click.pass_context
def command(
    ctx: click.Context,
    targets: tuple[str, ...],
    engine: str,
    only: tuple[str, ...],
    tags: tuple[str, ...],
    changed_since: str | None,
    handoffs: tuple[str, ...],
    cards: str | None,
    cpu_jobs: int | None,
    resume: str | None,
    as_json: bool,
) -> None:
    """Run the jobs of the nearest matrix.yaml, or of SPEC.

    Example: matrix run --only qwen-pt qwen-sft
    """
    from matrix.commands import running  # noqa: PLC0415 -- keeps --help quick
    from matrix.commands.choose import parse_handoffs, split_names, split_targets  # noqa: PLC0415
    from matrix.run import session  # noqa: PLC0415
    from matrix.spec.load import read  # noqa: PLC0415

    spec, names = split_targets(targets, names_allowed=bool(only))
    if resume:
        running.refuse_with_resume(ctx)
        folder = running.find_run(resume, spec)
        done = session.resume(folder, running.listener(as_json=as_json))
    else:
        options = session.Options(engine, cards, cpu_jobs, parse_handoffs(handoffs))
        found = read(Path(spec) if spec else None)
        done = session.new(
            found, options, only=split_names([*only, *names], found.jobs), tags=tags, changed_since=changed_since
        )
        session.begin(done, running.listener(as_json=as_json)(done))
    sys.exit(running.finish(done, as_json=as_json))
