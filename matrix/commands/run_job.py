"""`matrix run-job`: one job of a matrix, as a cell of a GitHub Actions matrix runs it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click


@click.command("run-job")
@click.argument("name")
@click.argument("spec", required=False)
@click.option("--inbox", type=click.Path(path_type=Path), default=Path("handoffs"), show_default=True,
              help="Where the downloaded hand-offs of other cells are.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), default=Path("cell"), show_default=True,
              help="Where the run and the packed hand-offs go, to be uploaded.")  # fmt: skip
@click.option("--handoff", "handoffs", multiple=True, metavar="NAME=PATH", help="Take a hand-off from here.")
@click.option("--cards", metavar="N", help="Pretend so many cards (or MODEL:N), for hosts without.")
@click.option("--json", "as_json", is_flag=True, help="Print the record of the run (schema run/1) as one document.")
def command(
    name: str, spec: str | None, inbox: Path, out: Path, handoffs: tuple[str, ...], cards: str | None, as_json: bool
) -> None:
    """Run the job NAME alone, with the hand-offs that other cells left, and leave its own.

    Example: matrix run-job qwen-sft --inbox handoffs --out cell
    """
    from matrix.commands import running  # noqa: PLC0415 -- keeps --help quick
    from matrix.commands.choose import parse_handoffs  # noqa: PLC0415
    from matrix.errors import UsageError  # noqa: PLC0415
    from matrix.run.cell import HANDOFFS, RUN, run_cell  # noqa: PLC0415
    from matrix.spec.load import read  # noqa: PLC0415
    from matrix.spec.problems import did_you_mean  # noqa: PLC0415

    loaded = read(Path(spec) if spec else None)
    job = next((job for job in loaded.jobs if job.name == name), None)
    if job is None:
        raise UsageError(f"no job {name!r}: {did_you_mean(name, [j.name for j in loaded.jobs])}")
    given = parse_handoffs(handoffs)
    done = run_cell(loaded, job, inbox=inbox, out=out, given=given, cards=cards, show=running.shown)
    if told := os.environ.get("GITHUB_OUTPUT"):
        with Path(told).open("a", encoding="utf-8") as f:
            f.write(f"run={out / RUN}\nhandoffs={out / HANDOFFS}\n")
    sys.exit(running.finish(done, as_json=as_json))
