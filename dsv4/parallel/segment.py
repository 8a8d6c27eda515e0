"""Where a pipeline cuts the model into stages. Pure.

The embedding stands in the first stage; final norm, output matrix and MTP modules in the last. Decoder layers are cut
so that the heaviest stage is as light as can be.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from dsv4.config import CSA, SLIDING, ModelConfig
from dsv4.errors import UsageError

CLASSES = ("Embedding", "DecoderLayer", "MTPModule", "Head")


@dataclass(frozen=True)
class Weights:
    """Work before the first decoder layer, of each, and after the last."""

    head: float
    layers: tuple[float, ...]
    tail: float


def cut(config: ModelConfig, stages: int, method: str) -> list[range]:
    """Give each stage its decoder layers, at least one.

    `layer:A|B` counts layers whose class matches; `cost` weighs multiply-adds per token. Raises UsageError when the
    method is unknown, matches no layer, or when there are fewer decoder layers than stages.
    """
    if stages > config.num_layers:
        raise UsageError(
            f"parallel.pipeline_parallel {stages}: only {config.num_layers} decoder layers", "write fewer stages"
        )
    return _partition(_weights(config, method), stages)


def _weights(config: ModelConfig, method: str) -> Weights:
    if method == "cost":
        return costs(config)
    kind, _, pattern = method.partition(":")
    if kind != "layer" or not pattern:
        raise UsageError(
            f"parallel.seg_method `{method}` is unknown", "write cost, or layer: and class names, layer:DecoderLayer"
        )
    try:
        matched = {name for name in CLASSES if re.fullmatch(pattern, name)}
    except re.error as e:
        raise UsageError(f"parallel.seg_method `{method}`: {e}", "write layer:DecoderLayer|MTPModule") from None
    layers = ["DecoderLayer", *(["MTPModule"] if config.mtp_layers else [])]
    if not matched.intersection(layers):
        raise UsageError(
            f"parallel.seg_method `{method}` matches no layer of this model",
            f"its layers are of class {' and '.join(layers)}: write layer:{'|'.join(layers)}",
        )
    one = {name: float(name in matched) for name in CLASSES}
    return Weights(
        one["Embedding"],
        (one["DecoderLayer"],) * config.num_layers,
        one["MTPModule"] * config.mtp_layers + one["Head"],
    )


def costs(config: ModelConfig) -> Weights:
    """Multiply-adds per token by layer, of a sequence of `max_positions`."""
    head = float(config.hidden_size * config.vocab_size)
    mtp = sum(_layer_cost(config, ratio) + 2.0 * config.hc_mult * config.hidden_size**2 for ratio in
              config.mtp_compress_ratios)  # fmt: skip
    return Weights(
        0.0,
        tuple(_layer_cost(config, ratio) for ratio in config.compress_ratios),
        head * (1 + config.mtp_layers) + mtp,
    )


def _layer_cost(config: ModelConfig, ratio: int) -> float:
    D, H, d = config.hidden_size, config.num_heads, config.head_dim
    matrices = D * config.q_lora_rank + config.q_lora_rank * H * d + D * d
    matrices += H * d * config.o_lora_rank + config.o_groups * config.o_lora_rank * D
    experts = 3 * D * (config.topk_experts * config.moe_ffn + config.shared_ffn) + D * config.num_experts
    mixing = 2 * config.hc_mult * D * (config.hc_mult**2 + 2 * config.hc_mult)
    S = config.max_positions
    seen = min(config.window, S) + (
        0 if ratio == SLIDING else min(S // ratio, config.index_topk if ratio == CSA else S)
    )
    attention = 2 * H * d * seen
    if ratio == CSA:
        indexer = config.index_heads * config.index_head_dim
        attention += config.q_lora_rank * indexer + indexer * S // ratio
    return float(matrices + experts + mixing + attention)


def _partition(weights: Weights, stages: int) -> list[range]:
    """Contiguous cuts that minimise the heaviest stage; among equals, the earlier stages hold more layers."""
    layers = weights.layers

    @cache
    def best(start: int, left: int) -> tuple[float, tuple[int, ...]]:
        first = weights.head if left == stages else 0.0
        if left == 1:
            return first + sum(layers[start:]) + weights.tail, (len(layers),)
        options = []
        for end in range(start + 1, len(layers) - left + 2):
            rest, ends = best(end, left - 1)
            options.append((max(first + sum(layers[start:end]), rest), -end, (end, *ends)))
        heaviest, _, ends = min(options)
        return heaviest, ends

    ends = best(0, stages)[1]
    return [range(a, b) for a, b in zip((0, *ends), ends, strict=False)]
