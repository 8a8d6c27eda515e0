"""`matrix rerun`: runs jobs of a run again, as further attempts of the same run."""

from __future__ import annotations

import sys

import click


@click.command("rerun")
@click.argument("run", metavar="RUN")
@click.argument("names", nargs=-1, metavar="[NAME...]")
@click.option("--failed", is_flag=True, help="All jobs that went badly, and what was blocked by them.")
@click.option("--json", "as_json", is_flag=True, help="Print the record of the run (schema run/1) as one document.")
def command(run: str, names: tuple[str, ...], failed: bool, as_json: bool) -> None:
    """Run jobs of RUN (its id, or `last`) again: the named ones, those that failed, or all.

    Example: matrix rerun last --failed
    """
    from matrix.commands import running  # noqa: PLC0415 -- keeps --help quick
    from matrix.errors import UsageError  # noqa: PLC0415
    from matrix.run import session  # noqa: PLC0415

    if names and failed:
        raise UsageError("both --failed and names of jobs: keep one")
    folder = running.find_run(run, None)
    done = session.rerun(folder, names, failed=failed, show=running.shown)
    sys.exit(running.finish(done, as_json=as_json))
