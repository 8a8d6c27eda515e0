"""`dsv4 align`: compare a loss record with a reference."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dsv4.align import compare
from dsv4.align.picture import draw
from dsv4.align.record import read_record


@click.command()
@click.argument("record", type=click.Path(path_type=Path))
@click.argument("reference", type=click.Path(path_type=Path))
@click.option("--json", "as_document", is_flag=True, help="Print one JSON document.")
@click.option("--rtol", type=click.FloatRange(min=0), help="Match within this relative difference, not by bits.")
@click.option(
    "--facts", type=click.Path(path_type=Path), envvar="MATRIX_FACTS", help="Append the result as JSON lines."
)
@click.option("--picture", type=click.Path(path_type=Path), multiple=True, help="Draw both: FILE.html or FILE.png.")
def command(
    record: Path, reference: Path, as_document: bool, rtol: float | None, facts: Path | None, picture: tuple[Path, ...]
) -> int:
    """Compare RECORD with REFERENCE, micro-batch by micro-batch. Exit 0 only if all match.

    Example: dsv4 align run.csv losses_f64.csv
    """
    result = compare.compare(read_record(record), read_record(reference), rtol)
    for path in picture:
        draw(result, path)
    if facts:
        with facts.open("a", encoding="utf-8") as f:
            f.writelines(json.dumps({"key": key, "value": value}) + "\n" for key, value in compare.facts(result))
    click.echo(json.dumps(compare.as_json(result), indent=1) if as_document else compare.as_text(result))
    return 0 if result.equal else 1
