"""Section `parallel` of a configuration: how a run is laid out over ranks. It never changes what the run computes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dsv4.config import ConfigSection


class ParallelConfig(ConfigSection):
    """Layout over ranks. A checkpoint of one layout resumes on any other."""

    data_parallel: int | None = Field(
        None, ge=1, description="ranks with the same experts; default: all ranks over the other two degrees"
    )
    expert_parallel: int = Field(1, ge=1, description="ranks over which the experts are divided")
    pipeline_parallel: int = Field(1, ge=1, description="stages over which the layers are divided (1F1B)")
    seg_method: str = Field(
        "layer:DecoderLayer",
        description="where stages are cut: layer:CLASS|CLASS counts layers of these classes, cost weighs their work",
    )
    sharding: Literal[0, 1] = Field(0, description="1: optimizer states divided among the ranks that share parameters")
    data_split: Literal["auto", "micros", "rows", "same", "own"] = Field(
        "auto",
        description="how ranks share a step's data: whole micro-batches, rows of each, the same to all, or as much as "
        "divides (auto): all one and the same run; own: every rank reads micro_batch x accumulate of its own",
    )
