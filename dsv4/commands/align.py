"""`dsv4 align`: compare a loss record with a reference."""

from __future__ import annotations

import json
from pathlib import Path

import click

from dsv4.align import compare
from dsv4.align.load import load
from dsv4.align.logs import LogOrder
from dsv4.align.picture import draw
from dsv4.align.record import LOSSES
from dsv4.errors import UsageError

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("record", type=FILE)
@click.argument("reference", type=FILE)
@click.option("--json", "as_document", is_flag=True, help="Print one JSON document.")
@click.option("--rtol", type=click.FloatRange(min=0), help="Match within this relative difference, not by bits.")
@click.option("--facts", type=FILE, help="Append the result as JSON lines, for $MATRIX_FACTS.")
@click.option("--picture", type=FILE, multiple=True, help="Draw both: FILE.html or FILE.png.")
@click.option("--order", default="main,mtp", show_default=True, help="Losses of a micro-batch in RECORD, if a log.")
@click.option("--reference-order", default="main,mtp", show_default=True, help="The same in REFERENCE.")
@click.option("--accumulate", type=click.IntRange(min=1), default=2, show_default=True, help="Micro-batches a step.")
@click.option("--rank", type=click.IntRange(min=0), default=0, show_default=True, help="Whose losses of a log.")
def command(
    record: Path,
    reference: Path,
    as_document: bool,
    rtol: float | None,
    facts: Path | None,
    picture: tuple[Path, ...],
    order: str,
    reference_order: str,
    accumulate: int,
    rank: int,
) -> int:
    """Compare RECORD with REFERENCE, micro-batch by micro-batch. Exit 0 only if all match.

    Each is a record of dsv4 train, or a log with lines `final_loss: rank=0 val=… md5=…`.

    Example: dsv4 align run.csv losses_f64.csv
    """
    ours = load(record, LogOrder(_names(order), accumulate, rank))
    theirs = load(reference, LogOrder(_names(reference_order), accumulate, rank))
    result = compare.compare(ours, theirs, rtol)
    for path in picture:
        draw(result, path)
    if facts:
        _append(facts, result)
    click.echo(json.dumps(compare.as_json(result), indent=1) if as_document else compare.as_text(result))
    return 0 if result.equal else 1


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if "main" not in names or len(set(names)) < len(names) or set(names) - set(LOSSES):
        raise UsageError(f"order {text!r}", "write main,mtp or mtp,main or main")
    return names


def _append(path: Path, result: compare.Comparison) -> None:
    lines = [json.dumps({"key": key, "value": value}) + "\n" for key, value in compare.facts(result)]
    try:
        with path.open("a", encoding="utf-8") as f:
            f.writelines(lines)
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}", "name a file that can be written") from None
