"""The shape of a model and the weights of its losses, validated.

Keys are those of the reference's `tiny_config.json` (section `model`), with `hc_norm` added; every key has
that file's value as default. Sizes are in the table of section 1 of the specification.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dsv4.errors import UsageError

SLIDING, CSA, HCA = 0, 4, 128
"""Compression ratios: sliding window only, compressed sparse attention, heavily compressed attention."""


class ConfigSection(BaseModel):
    """One section of a configuration: unknown keys are errors, values are fixed once validated."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def parse(cls, values: Mapping[str, Any], where: str = "configuration") -> Self:
        """Validate `values`; every fault becomes one line of a UsageError that begins with `where`."""
        try:
            return cls.model_validate(dict(values))
        except ValidationError as e:
            lines = [explain_fault(cls, fault) for fault in e.errors()]
            raise UsageError(f"{where}: " + "; ".join(lines)) from None


def explain_fault(section: type[BaseModel], fault: Any) -> str:
    """Say in one line what pydantic found wrong, and what to write instead."""
    key = ".".join(str(part) for part in fault["loc"])
    if fault["type"] == "extra_forbidden":
        near = difflib.get_close_matches(key, section.model_fields, n=1)
        hint = f"did you mean `{near[0]}`?" if near else f"known keys: {', '.join(sorted(section.model_fields))}"
        return f"unknown key `{key}`: {hint}"
    text = str(fault["msg"]).removeprefix("Value error, ")
    return f"`{key}`: {text} (got {fault['input']!r})" if key else text


class ModelConfig(ConfigSection):
    """Shape of a DeepSeek-V4 model. Source: specification, section 1; HF `DeepseekV4Config`."""

    vocab_size: int = Field(256, ge=1, description="V")
    hidden_size: int = Field(64, ge=1, description="D")
    num_layers: int = Field(4, ge=1, description="L, decoder layers")
    compress_ratios: tuple[int, ...] = Field((0, 4, 128, 4), description="per layer: 0 window, 4 CSA, 128 HCA")
    mtp_layers: int = Field(1, ge=0, description="multi-token prediction modules")
    mtp_compress_ratios: tuple[int, ...] = Field((0,), description="per MTP module")
    num_heads: int = Field(4, ge=1, description="H")
    head_dim: int = Field(32, ge=2, description="d, of queries and of the one shared key/value head")
    rope_dim: int = Field(16, ge=2, description="r, the last r channels of a head are rotated")
    q_lora_rank: int = Field(32, ge=1, description="width of the low-rank query")
    o_groups: int = Field(2, ge=1, description="g, groups of the output projection")
    o_lora_rank: int = Field(16, ge=1, description="width of one group's output")
    window: int = Field(128, ge=1, description="W, sliding window, own position included")
    index_heads: int = Field(16, ge=1, description="H_I, indexer heads")
    index_head_dim: int = Field(32, ge=2, description="d_I")
    index_topk: int = Field(16, ge=1, description="compressed entries that a CSA query sees")
    rope_theta: float = Field(10000.0, gt=1, description="rotary base of window-only layers")
    compress_rope_theta: float = Field(160000.0, gt=1, description="rotary base of CSA and HCA layers")
    yarn_factor: float = Field(16.0, ge=1, description="s, YaRN scale of CSA and HCA layers")
    yarn_original_max: int = Field(65536, ge=1, description="N0, context before YaRN")
    yarn_beta_fast: float = Field(32.0, gt=0)
    yarn_beta_slow: float = Field(1.0, gt=0)
    max_positions: int = Field(256, ge=1, description="longest sequence the model is meant for")
    num_experts: int = Field(8, ge=1, description="E, routed experts")
    topk_experts: int = Field(2, ge=1, description="k, experts per token")
    num_hash_layers: int = Field(2, ge=0, description="the first so many layers route by token id")
    moe_ffn: int = Field(32, ge=1, description="I, width of a routed expert")
    shared_ffn: int = Field(32, ge=1, description="width of the shared expert")
    routed_scaling: float = Field(1.5, gt=0, description="factor on the normalised routing weights")
    swiglu_limit: float = Field(10.0, gt=0, description="clamp of gate (above) and up (both sides)")
    hc_mult: int = Field(4, ge=1, description="n, residual streams")
    hc_sinkhorn_iters: int = Field(20, ge=1, description="column normalisations of the residual mixing matrix")
    hc_eps: float = Field(1e-6, gt=0)
    rms_eps: float = Field(1e-6, gt=0)
    hc_norm: Literal["megatron", "hf"] = Field("megatron", description="where mHC's input norm has its epsilon")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        per_layer = (
            ("compress_ratios", self.compress_ratios, "num_layers", self.num_layers),
            ("mtp_compress_ratios", self.mtp_compress_ratios, "mtp_layers", self.mtp_layers),
        )
        for name, ratios, count_name, count in per_layer:
            if len(ratios) != count:
                raise ValueError(
                    f"`{name}` has {len(ratios)} entries but `{count_name}` is {count}: write one ratio per layer"
                )
            wrong = [r for r in ratios if r not in (SLIDING, CSA, HCA)]
            if wrong:
                raise ValueError(f"`{name}` holds {wrong[0]}: write 0 (window), 4 (CSA) or 128 (HCA)")
        if self.rope_dim % 2:
            raise ValueError(f"`rope_dim` is {self.rope_dim}: write an even number, channels rotate in pairs")
        for name, dim in (("head_dim", self.head_dim), ("index_head_dim", self.index_head_dim)):
            if self.rope_dim > dim:
                raise ValueError(f"`rope_dim` {self.rope_dim} exceeds `{name}` {dim}: write at most {dim}")
        if (self.num_heads * self.head_dim) % self.o_groups:
            raise ValueError(
                f"`o_groups` {self.o_groups} does not divide num_heads·head_dim = {self.num_heads * self.head_dim}"
            )
        if self.topk_experts > self.num_experts:
            raise ValueError(
                f"`topk_experts` {self.topk_experts} exceeds `num_experts`: write at most {self.num_experts}"
            )
        if self.num_hash_layers > self.num_layers:
            raise ValueError(
                f"`num_hash_layers` {self.num_hash_layers} exceeds `num_layers`: write at most {self.num_layers}"
            )
        return self

    @property
    def softmax_scale(self) -> float:
        """Factor d^(-1/2) on attention logits."""
        return 1.0 / math.sqrt(self.head_dim)


class LossConfig(ConfigSection):
    """Weights of the losses beside the main one (sections 6.4, 7 and 9 of the specification)."""

    mtp_loss_weight: float = Field(0.3, ge=0, description="λ over the number of MTP modules; 0 leaves them out")
    indexer_loss_coeff: float = Field(0.01, ge=0, description="0: no indexer loss, the indexer does not learn")
    indexer_sparse_loss: bool = Field(True, description="over the top-k set; false: over all visible entries")
    balance_coeff: float = Field(1e-4, ge=0, description="sequence-wise balance loss; 0: none")


_FLASH: dict[str, Any] = dict(  # noqa: C408
    vocab_size=129280, hidden_size=4096, num_layers=43, compress_ratios=(0, 0, 4) + (128, 4) * 20,
    mtp_layers=1, mtp_compress_ratios=(0,), num_heads=64, head_dim=512, rope_dim=64, q_lora_rank=1024, o_groups=8,
    o_lora_rank=1024, window=128, index_heads=64, index_head_dim=128, index_topk=512, rope_theta=10000.0,
    compress_rope_theta=160000.0, yarn_factor=16.0, yarn_original_max=65536, max_positions=1048576, num_experts=256,
    topk_experts=6, num_hash_layers=3, moe_ffn=2048, shared_ffn=2048, routed_scaling=1.5, swiglu_limit=10.0,
)  # fmt: skip
_PRO = _FLASH | dict(  # noqa: C408
    hidden_size=7168, num_layers=61, compress_ratios=(128, 128, 4) + (128, 4) * 29, num_heads=128, q_lora_rank=1536,
    o_groups=16, index_topk=1024, num_experts=384, moe_ffn=3072, shared_ffn=3072, routed_scaling=2.5,
)  # fmt: skip

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {},
    "flash": _FLASH,
    "pro": _PRO,
    # The 4-layer, 1k-token model of the original 8-GPU alignment run.
    "align-4layer-1k": _FLASH | {"num_layers": 4, "compress_ratios": (0, 0, 4, 128), "max_positions": 1024},
}


def preset(name: str) -> ModelConfig:
    """Return the model configuration of a preset by its name."""
    if name not in PRESETS:
        raise UsageError(f"unknown preset `{name}`", f"write one of: {', '.join(PRESETS)}")
    return ModelConfig.parse(PRESETS[name], where=f"preset {name}")
