"""`dsv4 fleet`: the same configuration, trained by PaddleFleet."""

from __future__ import annotations

from pathlib import Path

import click

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("config", type=FILE)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Over the file: --set train.steps=10.")
@click.option("--tokens", type=FILE, help="Folder of replay arrays, the same that dsv4 train reads.")
@click.option("--output", type=FILE, default=Path("fleet"), show_default=True, help="For its files and checkpoints.")
@click.option("--dry-run", is_flag=True, help="Print command and mapped configuration, and stop.")
def command(config: Path, settings: tuple[str, ...], tokens: Path | None, output: Path, dry_run: bool) -> int:
    """Train the model of CONFIG in PaddleFleet, which must be installed with a GPU build of Paddle.

    Its log is compared by dsv4 align LOG REFERENCE.

    Example: dsv4 fleet align8.yaml --dry-run
    """
    from dsv4.parallel.plan import plan_job  # noqa: PLC0415
    from dsv4.provider import describe, train_in_fleet  # noqa: PLC0415

    plan = plan_job([str(config), *(part for setting in settings for part in ("--set", setting))], None)
    if dry_run:
        click.echo("\n".join(describe(plan.config, plan.layout, output, tokens)))
        return 0
    return train_in_fleet(plan.config, plan.layout, output, tokens)
