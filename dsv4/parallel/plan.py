"""What a job of several ranks would do, from its command line and configuration alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dsv4.errors import UsageError
from dsv4.parallel.layout import Layout, check_compute_path, make_layout, make_share
from dsv4.parallel.segment import cut
from dsv4.run_config import RunConfig, load_run_config


@dataclass(frozen=True)
class JobPlan:
    """Configuration and layout of a job."""

    config: RunConfig
    layout: Layout


def plan_job(arguments: Sequence[str], ranks: int | None) -> JobPlan:
    """Read the configuration that the arguments of `dsv4 train` name, and lay the job out."""
    path, settings = _config_of(arguments)
    config = load_run_config(path, settings)
    degrees = config.parallel
    world = ranks or (degrees.data_parallel or 1) * degrees.expert_parallel * degrees.pipeline_parallel
    layout = make_layout(degrees, world, config.model.num_experts)
    cut(config.model, layout.pipeline, degrees.seg_method)
    check_compute_path(config.train.compute_path, layout)
    for rank in range(world):
        make_share(degrees, layout.place(rank), config.train.accumulate, config.train.micro_batch)
    return JobPlan(config, layout)


def _config_of(arguments: Sequence[str]) -> tuple[Path, tuple[str, ...]]:
    """Find CONFIG and the values of --set among the arguments of `dsv4 train`."""
    settings, path = [], None
    left = iter(arguments)
    for argument in left:
        if argument == "--set":
            settings.append(next(left, ""))
        elif argument.startswith("--set="):
            settings.append(argument.removeprefix("--set="))
        elif argument in ("--sync-save", "--print-optimizer", "--keys"):
            continue
        elif argument.startswith("-"):
            if "=" not in argument:
                next(left, None)
        elif path is None:
            path = Path(argument)
    if path is None:
        raise UsageError("no CONFIG named", "write dsv4 launch --ranks 8 CONFIG --tokens T --record R")
    return path, tuple(settings)


def describe_job(plan: JobPlan) -> list[str]:
    """Tell what every rank would hold and read."""
    config, layout = plan.config, plan.layout
    train = config.train
    stages = cut(config.model, layout.pipeline, config.parallel.seg_method)
    per = config.model.num_experts // layout.expert
    first = make_share(config.parallel, layout.place(0), train.accumulate, train.micro_batch)
    global_batch = first.micros_of_step(train.accumulate) * train.micro_batch
    degrees = f"data_parallel={layout.data} expert_parallel={layout.expert} pipeline_parallel={layout.pipeline}"
    lines = [
        f"{layout.world} ranks: {degrees} sharding={config.parallel.sharding} data_split={config.parallel.data_split}",
        f"step: {global_batch} sequences of {train.seq_len} tokens, {train.micro_batch} a micro-batch",
    ]
    for rank in range(layout.world):
        place = layout.place(rank)
        share = make_share(config.parallel, place, train.accumulate, train.micro_batch)
        layers, micros = stages[place.stage], share.local_micros(train.accumulate)
        rows = share.local_rows(train.micro_batch)
        ends = ["embedding"] * place.first + ["head"] * place.last
        ends += [f"{config.model.mtp_layers} MTP"] * (place.last and config.model.mtp_layers > 0)
        held = f"experts {place.expert * per}-{(place.expert + 1) * per - 1}"
        lines.append(
            f"rank {rank}: layers {layers.start}-{layers.stop - 1}, {', '.join(ends) or 'no ends'}; {held}; "
            f"micro-batches {micros} rows {rows.start}-{rows.stop - 1}"
        )
    return lines
