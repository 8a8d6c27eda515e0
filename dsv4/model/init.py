"""Initial values as Megatron's from scratch (section 11 of the specification)."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable

import numpy as np
import paddle

from dsv4.config import ModelConfig


def initial_value(name: str, shape: list[int], config: ModelConfig, std: float, seed: int) -> np.ndarray:
    """Value of one parameter by its Megatron name.

    Each parameter has a random stream of its own, from `seed` and its name, so that a rank which holds a part of
    the model starts with the same numbers as one that holds all of it.
    """
    leaf = name.rsplit(".", 1)[-1]
    if leaf.startswith("alpha_"):
        return np.full(shape, 0.01)
    if leaf == "hc_head_scale" or "norm" in name.split(".")[-2:][0]:
        return np.ones(shape)
    if leaf in ("bias", "hc_head_base", "attn_sink"):
        return np.zeros(shape)
    stream = np.random.Generator(np.random.Philox([seed, zlib.crc32(name.encode())]))
    if leaf == "hc_head_fn" or "mapping_proj" in name:
        bound = math.sqrt(6.0 / (shape[0] + shape[1]))
        return stream.uniform(-bound, bound, shape)
    if "linear_proj" in name or "linear_fc2" in name:
        std /= math.sqrt(2 * config.num_layers)
    return stream.normal(0.0, std, shape)


def initialize(
    parameters: Iterable[tuple[str, paddle.Tensor]], config: ModelConfig, std: float = 0.02, seed: int = 0
) -> None:
    """Set every named parameter to its initial value."""
    for name, parameter in parameters:
        value = initial_value(name, list(parameter.shape), config, std, seed)
        parameter.set_value(paddle.to_tensor(value, dtype=parameter.dtype))
