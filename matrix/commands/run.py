"""`matrix run`: runs the matrix, or finishes a run that was broken off."""

from __future__ import annotations

import sys

import click

from matrix.commands.choose import choose, job_options, split_targets


@click.command("run")
@job_options
@click.option(
    "--engine", type=click.Choice(["local", "slurm"]), default="local", show_default=True, help="What runs the jobs."
)
@click.option("--cpu-jobs", type=click.IntRange(1, 1024), help="So many jobs without cards at the same time.")
@click.option("--resume", metavar="RUN", help="Finish what is unfinished of a run (its id, or `last`).")
@click.option("--json", "as_json", is_flag=True, help="Print the record of the run (schema run/1) as one document.")
@click.pass_context
def command(
    ctx: click.Context,
    args: tuple[str, ...],
    only: tuple[str, ...],
    tags: tuple[str, ...],
    changed_since: str | None,
    handoffs: tuple[str, ...],
    cards: str | None,
    engine: str,
    cpu_jobs: int | None,
    resume: str | None,
    as_json: bool,
) -> None:
    """Run the jobs of the nearest matrix.yaml, or of SPEC.

    Example: matrix run --only qwen-pt qwen-sft
    """
    from matrix.commands import running  # noqa: PLC0415 -- keeps --help quick
    from matrix.run import session  # noqa: PLC0415
    from matrix.spec.select import NO_FLOOR  # noqa: PLC0415

    if resume:
        running.refuse_with_resume(ctx)
        path, _ = split_targets(args, names_allowed=False)
        done = session.resume(running.find_run(resume, path), running.shown)
    else:
        chosen = choose(args, only, tags, changed_since, handoffs)
        options = session.Options(engine, cards, cpu_jobs, chosen.handoffs)
        if any(choice.selected and choice.reason == NO_FLOOR for choice in chosen.choices):
            said = "matrix: all jobs run, whatever changed: each has `paths`, and nothing says which ones always run"
            click.echo(f"{said}\n  name those beside `suites`, such as floor: [unit, tag:quick]", err=True)
        done = session.new(chosen.spec, chosen.choices, options, changed_since)
        session.begin(done, running.shown)
    sys.exit(running.finish(done, as_json=as_json))
