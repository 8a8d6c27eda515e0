"""`dsv4 check`: compare the model with recorded runs of other implementations."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from dsv4.check.compare import Row
from dsv4.check.forward import check_forward
from dsv4.errors import DivergedError
from dsv4.numerics.env import announce, describe


@click.group()
def command() -> None:
    """Compare the model with recorded runs of other implementations."""


@command.command()
@click.argument("reference_dir", type=click.Path(path_type=Path))
@click.option("--path", type=click.Choice(["fast", "plain"]), default="fast", help="Which path of the model to run.")
@click.option("--all", "every", is_flag=True, help="Print every tensor, not only the worst of each part.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def forward(reference_dir: Path, path: str, every: bool, as_json: bool) -> None:
    """Compare every recorded activation, choice, loss and gradient of REFERENCE_DIR.

    Exits with 1 if one is beyond its bound, naming the first part of the computation that departs.

    Example: dsv4 check forward reference/dsv4
    """
    announce()
    rows = check_forward(reference_dir, "fast" if path == "fast" else "plain")
    departed = first_departures(rows)
    if as_json:
        document = {
            "schema": "check-forward/1",
            "path": path,
            "environment": describe(),
            "rows": [asdict(row) | {"ok": row.ok} for row in rows],
            "first_departure": {source: row.tensor for source, row in departed.items()},
        }
        click.echo(json.dumps(document))
    else:
        print_table(rows if every else worst_by_part(rows), rows)
    if departed:
        row = next(iter(departed.values()))
        raise DivergedError(
            f"{row.source}: the first part that departs is `{row.part}`: "
            f"{row.tensor} {row.kind} {row.error:.3g}, allowed {row.bound:.3g}"
        )


def first_departures(rows: list[Row]) -> dict[str, Row]:
    """First row beyond its bound, by source; rows come in the order of computation."""
    found: dict[str, Row] = {}
    for row in rows:
        if not row.ok:
            found.setdefault(row.source, row)
    return found


def worst_by_part(rows: list[Row]) -> list[Row]:
    """Keep the row with the largest error relative to its bound, for each source, part and kind."""
    worst: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        key = (row.source, row.part, row.kind)
        if key not in worst or excess(row) > excess(worst[key]):
            worst[key] = row
    return list(worst.values())


def excess(row: Row) -> float:
    """Error in units of the bound; for a bound of 0, the error itself."""
    return row.error / row.bound if row.bound else row.error


def print_table(shown: list[Row], rows: list[Row]) -> None:
    """Print a table of errors, then one line of counts."""
    table = Table("run", "part", "tensor", "kind", "error", "bound", "")
    for row in shown:
        mark = "ok" if row.ok else "DEPARTS"
        table.add_row(row.source, row.part, row.tensor, row.kind, f"{row.error:.2e}", f"{row.bound:.0e}", mark)
    # Lines as wide as the table needs, also where no terminal says how wide it is.
    Console(width=None if Console().is_terminal else 200).print(table)
    click.echo(f"{sum(row.ok for row in rows)} of {len(rows)} tensors within their bounds")
