"""Which parameter goes to which optimizer, by rule."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from dsv4.errors import UsageError

Optimizer = Literal["muon", "adamw"]
RULES = ("megatron", "paddleformers", "custom")

# Named so that both Megatron's and Hugging Face's names of the two tables are met.
EMBEDDING_AND_HEAD = ("*word_embeddings*", "*embed_tokens*", "*output_layer*", "*lm_head*")
# PaddleFormers' example patterns and the two that its code adds (hyper-connections stay with AdamW).
PADDLEFORMERS_EXCLUDE = ("*embed*", "*bias*", "*lm_head*", "*output_layer*", "*mlp.gate.*", "*router.weight",
                         "*hc_head_fn*", "*mapping_proj*", "*hc.fn*")  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """What a rule may look at: the name in Megatron's style and the shape.

    A stack of independent matrices (the experts of a layer) has three dimensions, the first counts them.
    """

    name: str
    shape: tuple[int, ...]

    @property
    def is_matrix(self) -> bool:
        """Two dimensions, or a stack of such."""
        return len(self.shape) in (2, 3)


@dataclass(frozen=True, slots=True)
class Assignment:
    """Where one parameter goes. `split` cuts the rows of each matrix into that many independent matrices."""

    name: str
    shape: tuple[int, ...]
    optimizer: Optimizer
    weight_decay: float
    split: int = 1


@dataclass(frozen=True, slots=True)
class Rule:
    """Muon for matrices whose name fits none of `exclude`; `splits` maps a name pattern to a number of row blocks."""

    exclude: tuple[str, ...]
    splits: Mapping[str, int]

    def assign(self, info: ParameterInfo, weight_decay: float, *, adam_only: bool) -> Assignment:
        """Decide for one parameter. Vectors are never decayed (Megatron `get_standard_config_overrides`)."""
        decay = weight_decay if info.is_matrix else 0.0
        muon = not adam_only and info.is_matrix and not _fits(info.name, self.exclude)
        if not muon:
            return Assignment(info.name, info.shape, "adamw", decay)
        split = next((n for pattern, n in self.splits.items() if fnmatch.fnmatchcase(info.name, pattern)), 1)
        if split < 1 or info.shape[-2] % split:
            raise UsageError(
                f"{info.name}: {info.shape[-2]} rows cannot be split in {split}", "write a divisor of the rows"
            )
        return Assignment(info.name, info.shape, "muon", decay, split)


def _fits(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def megatron_rule() -> Rule:
    """Muon for every matrix but embedding and output; each matrix whole (section 10.1)."""
    return Rule(exclude=EMBEDDING_AND_HEAD, splits={})


def paddleformers_rule(
    *, heads: int, index_heads: int, ratios: Sequence[int], ffn_split: bool, exclude: Sequence[str] = ()
) -> Rule:
    """PaddleFormers' hybrid: exclude patterns by name, queries by head, overlapped compressors in halves.

    `ratios`: compression ratio of each decoder layer; with `ffn_split` gate and up rows are two matrices.
    """
    splits: dict[str, int] = {"*linear_q_up_proj*": heads, "*indexer.linear_wq_b*": index_heads}
    for layer, ratio in enumerate(ratios):
        if ratio == 4:
            splits[f"decoder.layers.{layer}.*compressor.linear_wkv*"] = 2
            splits[f"decoder.layers.{layer}.*compressor.linear_wgate*"] = 2
    if ffn_split:
        splits["*linear_fc1*"] = 2
    return Rule(exclude=tuple(exclude) or PADDLEFORMERS_EXCLUDE, splits=splits)


def assign_all(
    parameters: Iterable[ParameterInfo], rule: Rule, weight_decay: float, *, adam_only: bool
) -> list[Assignment]:
    """Apply a rule to every parameter, in order."""
    return [rule.assign(info, weight_decay, adam_only=adam_only) for info in parameters]


def table(assignments: Sequence[Assignment]) -> str:
    """Lay the assignment out as text, one parameter a line, for logs and review."""
    rows = [("parameter", "shape", "optimizer", "decay", "matrices")]
    for a in assignments:
        count = (a.shape[0] if len(a.shape) == 3 else 1) * a.split if a.optimizer == "muon" else "-"
        rows.append((a.name, "x".join(map(str, a.shape)) or "scalar", a.optimizer, f"{a.weight_decay:g}", str(count)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)
