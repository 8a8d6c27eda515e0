"""`matrix triage`: what failed first in logs."""

from __future__ import annotations

import sys

import click


@click.command("triage")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (schema triage/1).")
@click.option("--job", help="The job's name, where the log does not tell it.")
@click.option("--exit-code", type=int, help="The job's exit code, where the log does not tell it.")
@click.option("--check", is_flag=True, help="Exit 1 if a log failed.")
def command(logs: tuple[str, ...], as_json: bool, job: str | None, exit_code: int | None, check: bool) -> None:
    """Say what failed first in each LOG: a file, .gz, .zst, a folder of rank logs, or - for stdin.

    Example: matrix triage job.log.gz --explain
    """
    from matrix.triage.diagnosis import diagnose  # noqa: PLC0415 - keeps --help quick
    from matrix.triage.model import TriageReport  # noqa: PLC0415

    made = TriageReport(logs=[diagnose(path, exit_code=exit_code, job=job) for path in logs])
    if as_json:
        click.echo(made.model_dump_json(by_alias=True))
    else:
        for log in made.logs:
            click.echo(f"{log.path}: {log.status}")
            for cause in log.causes:
                click.echo(f"  {log.path}:{cause.line}: {cause.category}: {cause.text}")
    if check and any(log.status == "failed" for log in made.logs):
        sys.exit(1)
