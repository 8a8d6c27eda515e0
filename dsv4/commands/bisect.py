"""`dsv4 bisect`: the first tensor in which two runs differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dsv4.align.bisect import as_json, as_text, bisect
from dsv4.align.events import Dump, Side
from dsv4.errors import UsageError
from dsv4.numerics import env

if TYPE_CHECKING:
    from dsv4.align.live import Plant

FILE = click.Path(path_type=Path)


@click.command("bisect")
@click.argument("a", type=FILE)
@click.argument("b", type=FILE)
@click.option("--set-a", multiple=True, metavar="KEY=VALUE", help="Over the configuration of A.")
@click.option("--set-b", multiple=True, metavar="KEY=VALUE", help="Over the configuration of B.")
@click.option("--tokens", type=FILE, help="As of dsv4 train, for the sides that are trained here.")
@click.option("--init", type=FILE, help="Weights to start from, of both sides.")
@click.option("--init-b", type=FILE, help="Weights to start from, of B.")
@click.option("--first", type=click.IntRange(min=1), help="First step to compare; default 1, or a dump's first.")
@click.option("--last", type=click.IntRange(min=1), help="Last step to compare; default as far as both go.")
@click.option("--rtol", type=click.FloatRange(min=0), help="Ignore differences below this, relative to the tensor.")
@click.option("--plant-b", multiple=True, metavar="FAULT", help="Plant a fault in B to see it found.")
@click.option("--threads", type=click.IntRange(min=1), help="As of dsv4 train.")
@click.option("--json", "as_document", is_flag=True, help="Print one JSON document.")
def command(
    a: Path,
    b: Path,
    set_a: tuple[str, ...],
    set_b: tuple[str, ...],
    tokens: Path | None,
    init: Path | None,
    init_b: Path | None,
    first: int | None,
    last: int | None,
    rtol: float | None,
    plant_b: tuple[str, ...],
    threads: int | None,
    as_document: bool,
) -> int:
    """Name the first differing tensor of A and B. Each is a configuration to train, or a folder of train --dump.

    Exit 0 if nothing differs, 1 if something does. Faults to plant: weight:STEP:NAME:INDEX:ULPS and rope:LAYER:FACTOR.

    Example: dsv4 bisect tiny.yaml tiny.yaml --set-b adam_eps=1e-8 --tokens t.safetensors --init w.safetensors
    """
    env.prepare(threads)
    left = _side(a, set_a, tokens, init, ())
    right = _side(b, set_b, tokens, init_b or init, plant_b)
    begin = first or max((s.first_step() for s in (left, right) if isinstance(s, Dump)), default=1)
    result = bisect(left, right, first=begin, last=last or 1 << 40, rtol=rtol)
    if not result.steps:
        raise UsageError(f"{a} and {b} have no step {begin} in common", "dump or train the same steps")
    click.echo(json.dumps(as_json(result), indent=1) if as_document else as_text(result))
    return 1 if result.finding else 0


def _side(
    path: Path, settings: tuple[str, ...], tokens: Path | None, init: Path | None, plants: tuple[str, ...]
) -> Side:
    if path.is_dir():
        if settings or plants:
            raise UsageError(f"{path}: a recorded dump takes no settings and no faults", "give a configuration")
        return Dump(path)
    from dsv4.align.live import Live, parse_plant  # noqa: PLC0415 - Paddle is loaded after its environment is set
    from dsv4.data.sources import open_source  # noqa: PLC0415
    from dsv4.run_config import load_run_config  # noqa: PLC0415
    from dsv4.trainer import Trainer  # noqa: PLC0415

    config = load_run_config(path, settings)
    where = tokens or config.data.path
    if where is None:
        raise UsageError("no tokens named", "name a file with --tokens or data.path")
    planted: list[Plant] = [parse_plant(text) for text in plants]
    label = " ".join([str(path), *settings, *(f"plant:{text}" for text in plants)])
    return Live(label, Trainer(config, open_source(Path(where), config), init=init), planted)
