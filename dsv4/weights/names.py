"""Name map between Megatron and Hugging Face (section 14 of the specification)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dsv4.config import CSA, SLIDING, ModelConfig

How = Literal["same", "stack", "cat", "top", "bottom"]
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Mapping:
    """One tensor of Hugging Face's and the Megatron tensors it is made of.

    same: equal; stack: along a new first axis; cat: along the first axis; top, bottom: that half of the rows.
    """

    hf: str
    how: How
    megatron: tuple[str, ...]


def name_map(config: ModelConfig) -> list[Mapping]:
    """All tensors of the decoder. MTP has no name in Hugging Face's model and keeps Megatron's."""
    pairs = [
        ("model.embed_tokens.weight", "embedding.word_embeddings.weight"),
        ("model.hc_head.hc_fn", "decoder.hc_head_fn"),
        ("model.hc_head.hc_base", "decoder.hc_head_base"),
        ("model.hc_head.hc_scale", "decoder.hc_head_scale"),
        ("model.norm.weight", "decoder.final_layernorm.weight"),
        ("lm_head.weight", "output_layer.weight"),
    ]
    maps = [Mapping(hf, "same", (mg,)) for hf, mg in pairs]
    for i in range(config.num_layers):
        maps += _layer_map(config, i)
    return maps


def _layer_map(config: ModelConfig, i: int) -> Iterator[Mapping]:
    hf, mg = f"model.layers.{i}", f"decoder.layers.{i}"
    ratio = config.compress_ratios[i]
    core = "self_attention.core_attention"
    plain = [
        ("input_layernorm.weight", "input_layernorm.weight"),
        ("post_attention_layernorm.weight", "pre_mlp_layernorm.weight"),
        ("self_attn.q_a_proj.weight", "self_attention.linear_q_down_proj.weight"),
        ("self_attn.q_a_norm.weight", "self_attention.q_layernorm.weight"),
        ("self_attn.q_b_proj.weight", "self_attention.linear_q_up_proj.weight"),
        ("self_attn.kv_proj.weight", "self_attention.linear_kv_proj.weight"),
        ("self_attn.kv_norm.weight", "self_attention.kv_layernorm.weight"),
        ("self_attn.o_b_proj.weight", "self_attention.linear_proj.weight"),
        ("self_attn.o_a_proj.weight", "self_attention.linear_o_group_proj"),
        ("self_attn.sinks", f"{core}.attn_sink"),
        ("attn_hc.fn", "self_attention_hyper_connection.mapping_proj.weight"),
        ("attn_hc.base", "self_attention_hyper_connection.bias"),
        ("ffn_hc.fn", "mlp_hyper_connection.mapping_proj.weight"),
        ("ffn_hc.base", "mlp_hyper_connection.bias"),
        ("mlp.gate.weight", "mlp.router.weight"),
        ("mlp.shared_experts.down_proj.weight", "mlp.shared_experts.linear_fc2.weight"),
    ]
    if i < config.num_hash_layers:
        plain.append(("mlp.gate.tid2eid", "mlp.router.tid2eid"))
    else:
        plain.append(("mlp.gate.e_score_correction_bias", "mlp.router.expert_bias"))
    if ratio != SLIDING:
        plain += _compressor_pairs("self_attn.compressor", f"{core}.compressor")
    if ratio == CSA:
        plain += _compressor_pairs("self_attn.compressor.indexer", f"{core}.indexer.compressor")
        plain += [
            ("self_attn.compressor.indexer.q_b_proj.weight", f"{core}.indexer.linear_wq_b.weight"),
            ("self_attn.compressor.indexer.scorer.weights_proj.weight", f"{core}.indexer.linear_weights_proj.weight"),
        ]
    for a, b in plain:
        yield Mapping(f"{hf}.{a}", "same", (f"{mg}.{b}",))
    for a, b in (("attn_hc", "self_attention_hyper_connection"), ("ffn_hc", "mlp_hyper_connection")):
        alphas = tuple(f"{mg}.{b}.alpha_{part}" for part in ("pre", "post", "res"))
        yield Mapping(f"{hf}.{a}.scale", "cat", alphas)
    for a, b in (("gate_up_proj", "linear_fc1"), ("down_proj", "linear_fc2")):
        each = (f"{mg}.mlp.experts.local_experts.{e}.{b}.weight" for e in range(config.num_experts))
        yield Mapping(f"{hf}.mlp.experts.{a}", "stack", tuple(each))
    fused = (f"{mg}.mlp.shared_experts.linear_fc1.weight",)
    yield Mapping(f"{hf}.mlp.shared_experts.gate_proj.weight", "top", fused)
    yield Mapping(f"{hf}.mlp.shared_experts.up_proj.weight", "bottom", fused)


def _compressor_pairs(hf: str, mg: str) -> list[tuple[str, str]]:
    parts = (
        ("kv_proj.weight", "linear_wkv.weight"),
        ("gate_proj.weight", "linear_wgate.weight"),
        ("position_bias", "ape"),
        ("kv_norm.weight", "norm.weight"),
    )
    return [(f"{hf}.{a}", f"{mg}.{b}") for a, b in parts]


def to_hf(megatron: Arrays, config: ModelConfig, partial: bool = False) -> Arrays:
    """Rename and rearrange; what the map does not know (MTP) is kept under Megatron's name.

    With `partial`, tensors that are not there (buffers, where gradients are renamed) are left out.
    """
    hf: Arrays = {}
    used: set[str] = set()
    for m in name_map(config):
        if partial and any(name not in megatron for name in m.megatron):
            continue
        parts = [megatron[name] for name in m.megatron]
        used.update(m.megatron)
        if m.how == "stack":
            hf[m.hf] = np.stack(parts)
        elif m.how == "cat":
            hf[m.hf] = np.concatenate(parts)
        elif m.how in ("top", "bottom"):
            half = parts[0].shape[0] // 2
            hf[m.hf] = np.ascontiguousarray(parts[0][:half] if m.how == "top" else parts[0][half:])
        else:
            hf[m.hf] = parts[0]
    return hf | {name: value for name, value in megatron.items() if name not in used}


def to_megatron(hf: Arrays, config: ModelConfig) -> Arrays:
    """Inverse of `to_hf`."""
    out: Arrays = {}
    halves: dict[str, dict[str, np.ndarray]] = {}
    used: set[str] = set()
    for m in name_map(config):
        value = hf[m.hf]
        used.add(m.hf)
        if m.how in ("stack", "cat"):
            pieces = value if m.how == "stack" else np.split(value, len(m.megatron))
            out.update((name, np.ascontiguousarray(piece)) for name, piece in zip(m.megatron, pieces, strict=True))
        elif m.how in ("top", "bottom"):
            halves.setdefault(m.megatron[0], {})[m.how] = value
        else:
            out[m.megatron[0]] = value
    out |= {name: np.concatenate([pair["top"], pair["bottom"]]) for name, pair in halves.items()}
    return out | {name: value for name, value in hf.items() if name not in used}


def missing_names(arrays: Arrays, config: ModelConfig, source_is_hf: bool) -> list[str]:
    """Names that a conversion would read and that are not there."""
    maps = name_map(config)
    wanted = [m.hf for m in maps] if source_is_hf else [name for m in maps for name in m.megatron]
    return [name for name in wanted if name not in arrays]
