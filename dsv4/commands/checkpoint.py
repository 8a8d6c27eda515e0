"""`dsv4 checkpoint`: look at checkpoints and verify them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from safetensors import safe_open

from dsv4 import checkpoint
from dsv4.errors import UsageError

FILE = click.Path(path_type=Path)


@click.group("checkpoint")
def command() -> None:
    """Inspect and verify what --save wrote.

    Example: dsv4 checkpoint verify checkpoints
    """


@command.command()
@click.argument("folder", type=FILE)
def verify(folder: Path) -> int:
    """Check every file of FOLDER (one checkpoint, or all that are in it) against its digests.

    Exit 1 if one is cut or altered; the first bad file of each is named.
    """
    found = checkpoint.list_checkpoints(folder) or [p for p in [checkpoint.latest(folder)] if p]
    if not found:
        raise UsageError(f"{folder}: no checkpoint in it", "name the folder that --save wrote")
    bad = 0
    for path in found:
        try:
            checkpoint.verify(path)
            click.echo(f"{path}: whole")
        except UsageError as e:
            bad += 1
            click.echo(e.message)
    return 1 if bad else 0


@command.command()
@click.argument("path", type=FILE)
@click.option("--json", "as_document", is_flag=True, help="Print one JSON document.")
def inspect(path: Path, as_document: bool) -> int:
    """Print step, seeds, place in the data and all tensors of a checkpoint (of a folder: the newest)."""
    chosen = checkpoint.latest(path)
    if chosen is None:
        raise UsageError(f"{path}: no checkpoint in it", "name the folder that --save wrote")
    manifest = checkpoint.verify(chosen)
    tensors = {name: _tensors(chosen / name) for name in manifest["files"]}
    if as_document:
        click.echo(json.dumps({"path": str(chosen), **manifest, "tensors": tensors}, indent=1))
        return 0
    state = manifest["state"]
    click.echo(f"{chosen}: step {manifest['step']}, {state.get('data_position')} micro-batches consumed")
    click.echo(f"config_sha256={state.get('config_sha256')} random={json.dumps(state.get('random'))}")
    for name, facts in manifest["files"].items():
        click.echo(f"{name}: {facts['bytes']} bytes, sha256 {facts['sha256']}, {len(tensors[name])} tensors")
        for tensor, (dtype, shape) in tensors[name].items():
            click.echo(f"  {tensor} {dtype} {shape}")
    return 0


def _tensors(path: Path) -> dict[str, tuple[str, list[int]]]:
    with safe_open(str(path), "numpy") as f:
        found: Any = f
        slices = {name: found.get_slice(name) for name in found.keys()}  # noqa: SIM118 - it is no mapping
        return {name: (s.get_dtype(), s.get_shape()) for name, s in slices.items()}


@command.command()
@click.argument("path", type=FILE)
@click.argument("folder", type=FILE)
@click.option("--files", type=click.IntRange(1, 99999), default=1, show_default=True, help="Files of each group.")
def reshard(path: Path, folder: Path, files: int) -> int:
    """Write a checkpoint (of a folder: the newest) again below FOLDER, its tensors dealt whole to so many files.

    Any layout of ranks loads any of them; one file is the form that a single rank writes.
    """
    from dsv4.parallel.checkpoint import reshard as write_again  # noqa: PLC0415

    chosen = checkpoint.latest(path)
    if chosen is None:
        raise UsageError(f"{path}: no checkpoint in it", "name the folder that --save wrote")
    click.echo(f"{write_again(chosen, folder, files)}: written from {chosen}")
    return 0
