"""`dsv4 train`: the training loop."""

from __future__ import annotations

from pathlib import Path

import click

from dsv4.errors import UsageError
from dsv4.numerics import env

FILE = click.Path(path_type=Path)


def _print_keys(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
    if asked:
        env.prepare()
        from dsv4.run_config import describe_keys  # noqa: PLC0415

        click.echo(describe_keys())
        ctx.exit()


@click.command()
@click.argument("config", type=FILE)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Over the file: --set train.steps=10.")
@click.option("--tokens", type=FILE, help="Safetensors, .npy, .bin, .jsonl, or a folder of replay arrays.")
@click.option("--init", type=FILE, help="Weights to start from: safetensors with Megatron's names.")
@click.option("--record", type=FILE, help="CSV of every micro-batch's losses; identity in RECORD.meta.json.")
@click.option("--metrics", type=FILE, help="JSON lines, one a step.")
@click.option("--save", type=FILE, help="Folder of checkpoints; the last step is always saved.")
@click.option("--save-every", type=click.IntRange(min=1), help="Steps between checkpoints.")
@click.option("--keep", type=click.IntRange(min=1), help="Checkpoints to keep; default all.")
@click.option("--sync-save", is_flag=True, help="Wait for each checkpoint instead of writing it beside the training.")
@click.option("--resume", type=FILE, help="Checkpoint, or a folder of them: the newest. Cuts the record back to it.")
@click.option("--dump", type=FILE, help="Folder for every tensor of the first steps, for dsv4 bisect.")
@click.option("--dump-steps", type=click.IntRange(min=1), default=10, show_default=True, help="How many steps.")
@click.option("--stamp", help="Name of the run in its identity; default: the time.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of one operation; default OMP_NUM_THREADS or 1.")
@click.option(
    "--keys",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_keys,
    help="Print all keys of CONFIG with their defaults.",
)
@click.option("--print-optimizer", is_flag=True, help="Print which parameter goes to which optimizer, and stop.")
def command(
    config: Path,
    settings: tuple[str, ...],
    tokens: Path | None,
    init: Path | None,
    record: Path | None,
    metrics: Path | None,
    save: Path | None,
    save_every: int | None,
    keep: int | None,
    sync_save: bool,
    resume: Path | None,
    dump: Path | None,
    dump_steps: int,
    stamp: str | None,
    threads: int | None,
    print_optimizer: bool,
) -> int:
    """Train the model of CONFIG (YAML or JSON with the sections model and train).

    Example: dsv4 train tiny.yaml --tokens tokens.safetensors --init weights.safetensors --record run.csv
    """
    if (save_every or keep) and not save:
        raise UsageError("--save-every and --keep need --save", "name a folder with --save")
    env.prepare(threads)
    # Paddle is loaded only now, with its environment set.
    from dsv4.parallel.groups import Launched  # noqa: PLC0415
    from dsv4.parallel.layout import make_layout  # noqa: PLC0415
    from dsv4.run import RunOptions, run_training  # noqa: PLC0415
    from dsv4.run_config import load_run_config  # noqa: PLC0415

    run = load_run_config(config, settings)
    if print_optimizer:
        click.echo(_optimizer_table(run))
        return 0
    options = RunOptions(
        tokens=tokens,
        init=init,
        record=record,
        metrics=metrics,
        save=save,
        save_every=save_every,
        keep=keep,
        background_save=not sync_save,
        resume=resume,
        stamp=stamp,
        dump=dump,
        dump_steps=dump_steps,
    )
    world = Launched.from_environment().world
    make_layout(run.parallel, world, run.model.num_experts)  # a wrong count of ranks is told before they meet
    if world > 1:
        from dsv4.parallel.run import run_rank  # noqa: PLC0415

        run_rank(run, options)
    else:
        run_training(run, options)
    return 0


def _optimizer_table(run: object) -> str:
    from dsv4.model import DeepseekV4  # noqa: PLC0415
    from dsv4.optim.build import assign  # noqa: PLC0415
    from dsv4.optim.rules import table  # noqa: PLC0415
    from dsv4.run_config import RunConfig  # noqa: PLC0415

    assert isinstance(run, RunConfig)
    model = DeepseekV4(run.model, run.train.losses(), run.train.dtype)
    return table(assign(dict(model.named_parameters()), run))
