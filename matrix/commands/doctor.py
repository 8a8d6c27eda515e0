"""`matrix doctor`: looks at all that a run needs and says what to do."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import click


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--limit", type=click.FloatRange(1, 600), default=20.0, show_default=True, help="Seconds for each check.")
def command(as_json: bool, limit: float) -> None:
    """Check cards, driver, Paddle, Slurm, history, token, disk, clock and more; say what to do about each.

    Exit code 1 where something would make runs fail, 3 where something could not be checked.

    Example: matrix doctor --json
    """
    from matrix.doctor.checks import CHECKS  # noqa: PLC0415 -- keeps --help quick
    from matrix.doctor.model import Place, State, examine, exit_code  # noqa: PLC0415
    from matrix.report.terminal import interactive, make_console  # noqa: PLC0415
    from matrix.report.text import one_line  # noqa: PLC0415

    place, waiting = Place(Path.cwd(), dict(os.environ), limit), make_console(stderr=True)
    if interactive(waiting):
        with waiting.status("looking") as status:
            findings = examine(CHECKS, place, tell=lambda names: status.update(f"looking at {', '.join(names)}"))
    else:
        findings = examine(CHECKS, place)
    code = exit_code(findings)
    if as_json:
        click.echo(
            json.dumps({"schema": "doctor/1", "exit_code": code, "checks": [asdict(f) for f in findings]}, indent=1)
        )
    else:
        styles = {State.OK: "green", State.BAD: "bold red", State.WARNING: "yellow", State.UNKNOWN: "magenta"}
        console = make_console()
        for f in findings:
            console.print(f"{f.state:<8}", style=styles.get(f.state, "dim"), end="")
            console.print(f"{f.name:<14}{one_line(f.finding, 1000)}", markup=False, highlight=False, soft_wrap=True)
            if f.advice and f.state is not State.OK:
                console.print(f"{'':22}→ {one_line(f.advice, 1000)}", markup=False, highlight=False, soft_wrap=True)
    sys.stdout.flush()
    os._exit(code)  # a check that hangs in the driver or on a dead disk must not hold the command
