"""`matrix triage`: what failed first in logs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from matrix.records import Attempt
    from matrix.triage.model import LogReport

_TESTS = 5  # tests that are named of a cause
_SILENT = "cannot tell: no line says that it failed, or that it ended well"


@click.command("triage")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (schema triage/1).")
@click.option("--explain", "explained", is_flag=True, help="Print the evidence with the lines around it.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page: the log with its causes marked.",
)
@click.option("--job", help="The job's name, where the log does not tell it.")
@click.option("--exit-code", type=int, help="The job's exit code, where the log does not tell it.")
@click.option("--check", is_flag=True, help="Exit 1 if a log failed.")
def command(
    logs: tuple[str, ...],
    as_json: bool,
    explained: bool,
    html: Path | None,
    job: str | None,
    exit_code: int | None,
    check: bool,
) -> None:
    """Say what failed first in each LOG: a file, .gz, .zst, a folder of rank logs, or - for stdin.

    Example: matrix triage job.log.gz --explain
    """
    from matrix.errors import UsageError  # noqa: PLC0415 - imports here keep --help quick
    from matrix.report.progress import tracked  # noqa: PLC0415
    from matrix.triage import diagnose  # noqa: PLC0415
    from matrix.triage.model import TriageReport  # noqa: PLC0415
    from matrix.triage.ruleset import load_rules, user_rules  # noqa: PLC0415

    if html is not None and (len(logs) != 1 or logs[0] == "-"):
        raise UsageError("--html writes the page of one log file", "give one LOG that is a file or a folder")
    if explained and "-" in logs:
        raise UsageError("--explain reads a log twice, which stdin does not allow", "save the log to a file first")
    rules = load_rules([user_rules(Path.cwd())])
    each = tracked(logs, len(logs), "logs") if len(logs) > 1 else logs
    known = {path: _recorded(path) for path in logs}
    codes = {path: found[2].exit_code if found and exit_code is None else exit_code for path, found in known.items()}
    made = TriageReport(logs=[diagnose(path, exit_code=codes[path], job=job, rules=rules) for path in each])
    if html is not None:
        from matrix.triage.page import page  # noqa: PLC0415

        html.write_text(page(made.logs[0], rules), encoding="utf-8")
    if as_json:
        click.echo(made.model_dump_json(by_alias=True))
    elif explained:
        from matrix.triage.explain import explain  # noqa: PLC0415

        click.echo("\n".join(explain(log, rules) for log in made.logs), nl=False)
    else:
        for log, found in zip(made.logs, map(known.get, logs), strict=True):
            _print(log)
            if found:
                _print_record(log, *found)
    if check and any(log.status == "failed" for log in made.logs):
        sys.exit(1)


def _print(log: LogReport) -> None:
    """Print a log's causes, each with the tests that met it and what to do."""
    click.echo(f"{log.path}: {log.status}" + (f" ({_SILENT})" if log.status == "unknown" else ""))
    for cause in log.causes:
        place = f"{log.path}/{cause.file}" if cause.file else log.path
        line = f":{cause.line}" if cause.line is not None else ""
        click.echo(f"  {place}{line}: {cause.category}: {cause.text.strip()}")
        more = f" and {len(cause.tests) - _TESTS} more" if len(cause.tests) > _TESTS else ""
        if cause.tests:
            click.echo(f"    in {', '.join(cause.tests[:_TESTS])}{more}")
        if fix := cause.fix.get("en"):
            click.echo(f"    fix: {fix}")


def _recorded(path: str) -> tuple[str, str, Attempt] | None:
    """Find the run, the job and the attempt whose log this is; None if it is no log of a run folder."""
    from matrix.errors import MatrixError  # noqa: PLC0415
    from matrix.records import load  # noqa: PLC0415

    log = Path(path).resolve()
    folder = next((parent for parent in log.parents if (parent / "run.json").is_file()), None)
    if path == "-" or folder is None:
        return None
    try:
        run = load(folder / "run.json")
    except MatrixError:  # a file of that name that is something else
        return None
    inside = log.relative_to(folder).as_posix()
    return next(((run.id, job.name, a) for job in run.jobs for a in job.attempts if a.log == inside), None)


def _print_record(log: LogReport, run: str, job: str, attempt: Attempt) -> None:
    """Print what the run knows of this attempt and its log does not say: a signal, a hand-off, a baseline."""
    told = {cause.category for cause in log.causes}
    for cause in attempt.causes:
        if cause.category not in told:
            click.echo(f"  of the run: {cause.category}: {cause.text.strip()}")
            click.echo(f"    more: matrix show {run} {job}")
