"""The configuration of a training run: sections `model`, `train` and `data`, validated as a whole."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from pydantic import BaseModel, Field, ValidationError, model_validator

from dsv4.config import PRESETS, ConfigSection, LossConfig, ModelConfig, explain_fault
from dsv4.config_file import Document, read_document
from dsv4.errors import UsageError
from dsv4.optim.coefficients import COEFFICIENTS
from dsv4.optim.schedule import Schedule
from dsv4.parallel.config import ParallelConfig

S = TypeVar("S", bound=BaseModel)


class TrainConfig(LossConfig):
    """Everything about a run but the model's shape. Defaults are those of the recorded reference run."""

    seq_len: int = Field(256, ge=1, description="S, tokens per sequence")
    micro_batch: int = Field(2, ge=1, description="B, sequences per micro-batch")
    accumulate: int = Field(2, ge=1, description="A, micro-batches per step")
    steps: int = Field(100, ge=1, description="optimizer steps")
    dtype: Literal["float64", "float32", "bfloat16"] = Field(
        "float64", description="the only one in which losses can be equal to the bit across frameworks is float64"
    )
    compute_path: Literal["fast", "plain"] = Field(
        "fast", description="plain: the specification by dense masks; equal to rounding"
    )
    seed: int = Field(1234, ge=0, description="of initial values and of the order of data")
    init_std: float = Field(0.02, gt=0, description="of the normal initial values, without --init")

    optimizer: Literal["muon", "adam"] = Field("muon", description="muon: Muon and AdamW by rule; adam: AdamW for all")
    lr: float = Field(1e-3, ge=0, description="peak, of Muon and AdamW alike")
    init_lr: float = Field(0.0, ge=0, description="at step 0 of the warm-up")
    min_lr: float = Field(0.0, ge=0, description="where the decay ends")
    warmup_steps: int = Field(0, ge=0)
    lr_schedule: Literal["constant", "linear", "cosine", "wsd"] = "constant"
    lr_decay_steps: int | None = Field(None, ge=1, description="default: steps")
    wsd_decay_steps: int = Field(0, ge=0, description="length of the tail of wsd")
    wsd_decay_style: Literal["cosine", "linear", "exponential", "minus_sqrt"] = "cosine"
    weight_decay: float = Field(0.1, ge=0, description="of matrices; vectors are never decayed")
    clip_grad: float = Field(0.72, ge=0, description="largest gradient norm; 0: off")

    muon_momentum: float = Field(0.95, ge=0, lt=1)
    muon_nesterov: bool = True
    muon_coefficients: str | tuple[tuple[float, float, float], ...] = Field(
        "deepseekv4", description=f"one of {', '.join(COEFFICIENTS)}, or a list of triples"
    )
    muon_steps: int = Field(10, ge=1, description="Newton-Schulz iterations")
    muon_scale_mode: Literal["spectral", "shape_scaling", "unit_rms_norm", "none"] = "spectral"
    muon_extra_scale: float = Field(0.18, gt=0)
    muon_rule: Literal["megatron", "paddleformers", "custom"] = Field(
        "megatron", description="which parameters go to Muon; custom: all matrices but those of muon_exclude"
    )
    muon_exclude: tuple[str, ...] = Field((), description="name patterns for AdamW; of paddleformers and custom")
    muon_splits: dict[str, int] = Field({}, description="name pattern: number of row blocks; of custom")
    muon_ffn_split: bool = Field(False, description="gate and up rows are two matrices; of paddleformers")
    adam_beta1: float = Field(0.9, ge=0, lt=1)
    adam_beta2: float = Field(0.95, ge=0, lt=1)
    adam_eps: float = Field(1e-20, ge=0)

    indexer_loss_accumulate: Literal["sum", "mean"] = Field(
        "sum", description="sum: not divided by accumulate, as Megatron; mean: divided"
    )
    load_balancing: Literal["seq_aux_loss", "none"] = Field("seq_aux_loss", description="none: no balance loss")
    bias_update_rate: float = Field(1e-3, ge=0, description="of the routers' expert bias, once a step")
    loss_mask: bool = Field(False, description="the token file holds `loss_mask` beside `tokens`")

    eval_every: int = Field(0, ge=0, description="steps between evaluations on data.eval; 0: none")
    eval_batches: int = Field(8, ge=1, description="micro-batches per evaluation")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.muon_rule == "megatron" and (self.muon_exclude or self.muon_splits):
            raise ValueError(
                "`muon_exclude` and `muon_splits` have no effect under `muon_rule: megatron`: write custom"
            )
        self.schedule()
        return self

    def schedule(self) -> Schedule:
        """Learning rate by step."""
        try:
            return Schedule(
                self.lr_schedule,
                peak=self.lr,
                initial=self.init_lr,
                minimum=self.min_lr,
                warmup=self.warmup_steps,
                length=self.lr_decay_steps or self.steps,
                tail=self.wsd_decay_steps,
                tail_style=self.wsd_decay_style,
            )
        except UsageError as e:
            raise ValueError(f"{e.message}: {e.advice}") from None

    def losses(self) -> LossConfig:
        """Weights of the losses, with the balance loss off under `load_balancing: none`."""
        chosen = {name: getattr(self, name) for name in LossConfig.model_fields}
        if self.load_balancing == "none":
            chosen["balance_coeff"] = 0.0
        return LossConfig(**chosen)


class DataConfig(ConfigSection):
    """Where tokens come from, and how chat records become sequences."""

    path: str | None = Field(
        None, description="as --tokens: safetensors, folder of replay arrays, .npy, .bin or .jsonl"
    )
    eval: str | None = Field(None, description="the same for evaluation")
    token_dtype: Literal["uint16", "uint32", "int32"] = Field("uint16", description="of a .bin file")
    shuffle: bool = Field(False, description="another order in every epoch, from train.seed")
    rank: int = Field(0, ge=0, description="whose replay arrays are read")
    tokenizer: str | None = Field(None, description="a Hugging Face tokenizer.json, for .jsonl")
    template: str | None = Field(None, description="a jinja chat template file; default: the built-in one")
    train_on: Literal["assistant", "all"] = Field("assistant", description="whose tokens the loss counts")
    pack: bool = Field(True, description="several conversations per sequence; attention does not cross them")
    truncation: Literal["error", "right", "left", "drop"] = Field("right", description="of longer conversations")
    padding: Literal["fixed", "longest"] = Field(
        "fixed", description="to seq_len, or to the longest row of the micro-batch"
    )
    pad_multiple: int = Field(1, ge=1, description="padding longest goes up to a multiple of this, at most seq_len")
    pad_id: int = Field(0, ge=0)
    skip_bad: bool = Field(False, description="count and leave out bad records instead of stopping at the first")


@dataclass(frozen=True)
class RunConfig:
    """A whole run, and the digest by which it is known."""

    model: ModelConfig
    train: TrainConfig
    data: DataConfig
    parallel: ParallelConfig = field(default_factory=ParallelConfig)

    def as_dict(self) -> dict[str, Any]:
        """All values, defaults included, as JSON would hold them."""
        return {name: getattr(self, name).model_dump(mode="json") for name in SECTIONS}

    @property
    def sha256(self) -> str:
        """Digest of all values."""
        return hashlib.sha256(json.dumps(self.as_dict(), sort_keys=True).encode()).hexdigest()


SECTIONS: dict[str, type[ConfigSection]] = {
    "model": ModelConfig,
    "train": TrainConfig,
    "data": DataConfig,
    "parallel": ParallelConfig,
}


def describe_keys() -> str:
    """Every key of every section with its default and meaning, as Markdown tables."""
    lines = []
    for name, section in SECTIONS.items():
        lines += [f"### `{name}`", "", "| key | default | meaning |", "| --- | --- | --- |"]
        for key, known in section.model_fields.items():
            default = json.dumps(known.get_default(call_default_factory=True), default=list)
            lines.append(f"| `{key}` | `{default}` | {known.description or ''} |")
        lines.append("")
    return "\n".join(lines)


def load_run_config(path: Path, settings: tuple[str, ...] = ()) -> RunConfig:
    """Read and validate a configuration file with `--set` values over it.

    Raises UsageError naming file, line and what to write instead.
    """
    document = read_document(path)
    known = {name: frozenset(section.model_fields) for name, section in SECTIONS.items()}
    for setting in settings:
        document.set(setting, known)
    for name in document.values:
        if name not in SECTIONS:
            raise UsageError(f"{document.where((name,))}: unknown section `{name}`", f"known: {', '.join(SECTIONS)}")
    return RunConfig(
        model=_section(document, "model", ModelConfig),
        train=_section(document, "train", TrainConfig),
        data=_section(document, "data", DataConfig),
        parallel=_section(document, "parallel", ParallelConfig),
    )


def _section(document: Document, name: str, section: type[S]) -> S:
    values = document.values.get(name) or {}
    if not isinstance(values, dict):
        raise UsageError(f"{document.where((name,))}: `{name}` holds no keys", f"write `{name}:` and its keys below it")
    if name == "model" and "preset" in values:
        values = _with_preset(document, values)
    try:
        return section.model_validate(values)
    except ValidationError as e:
        fault = e.errors()[0]
        more = f" (and {len(e.errors()) - 1} more)" if len(e.errors()) > 1 else ""
        where = document.where((name, *fault["loc"]))
        raise UsageError(f"{where}: {name}: {explain_fault(section, fault)}{more}") from None


def _with_preset(document: Document, values: dict[str, Any]) -> dict[str, Any]:
    chosen = values["preset"]
    if chosen not in PRESETS:
        where = document.where(("model", "preset"))
        raise UsageError(f"{where}: model: no preset {chosen!r}", f"write one of {', '.join(PRESETS)}")
    return PRESETS[chosen] | {key: value for key, value in values.items() if key != "preset"}
