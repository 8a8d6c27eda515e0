"""Hand a run to PaddleFleet: our configuration under its names, and the command that trains there.

The mapping is pure. Names are those of `DeepseekV4Config`, of which `DeepseekV4ModelProvider.from_config` makes the
model, and of the trainer's arguments, both in PaddleFormers 1.2.0. PaddleFleet needs a GPU build of Paddle and is on no
public index, so none of this has been run; `dsv4 fleet --dry-run` shows what would be.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from dsv4.config import ModelConfig
from dsv4.errors import Dsv4Error, UsageError
from dsv4.parallel.layout import Layout
from dsv4.run_config import RunConfig

# Our key -> the field of DeepseekV4Config.
MODEL_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "mtp_layers": "mtp_num_layers",
    "num_heads": "num_attention_heads",
    "head_dim": "v_head_dim",
    "rope_dim": "qk_pos_emb_head_dim",
    "q_lora_rank": "q_lora_rank",
    "o_groups": "o_groups",
    "o_lora_rank": "o_lora_rank",
    "window": "csa_window_size",
    "index_heads": "dsa_index_n_heads",
    "index_head_dim": "dsa_index_head_dim",
    "index_topk": "dsa_index_topk",
    "rope_theta": "rotary_base",
    "compress_rope_theta": "csa_compress_rotary_base",
    "yarn_factor": "rotary_scaling_factor",
    "yarn_original_max": "original_max_position_embeddings",
    "max_positions": "max_position_embeddings",
    "num_experts": "n_routed_experts",
    "topk_experts": "num_experts_per_tok",
    "num_hash_layers": "moe_n_hash_layers",
    "moe_ffn": "moe_intermediate_size",
    "routed_scaling": "routed_scaling_factor",
    "swiglu_limit": "activation_func_clamp_value",
    "hc_mult": "num_residual_streams",
    "hc_sinkhorn_iters": "mhc_sinkhorn_iterations",
    "rms_eps": "rms_norm_eps",
}
# Keys without a field there; another value than these would be another model.
FIXED = {"hc_eps": 1e-6, "yarn_beta_fast": 32.0, "yarn_beta_slow": 1.0, "hc_norm": "megatron"}

ALIGNED = {
    "FLAGS_use_accuracy_compatible_kernel": "1",
    "FLAGS_use_dsv4_accuracy": "1",
    "FLAGS_use_deterministic_algorithm": "1",
    "FLAGS_cudnn_deterministic": "1",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
}
"""Environment of an aligned run: deterministic kernels, equal to the peer's."""

SCHEDULES = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}
CLASSES = {"DecoderLayer": "TransformerLayer", "MTPModule": "MultiTokenPredictionLayer"}


def model_fields(config: RunConfig, layout: Layout) -> dict[str, Any]:
    """Arguments of `DeepseekV4Config`. Raises UsageError for a value that has no place there. Pure."""
    model, losses = config.model, config.train.losses()
    for key, only in FIXED.items():
        if getattr(model, key) != only:
            raise UsageError(f"model.{key} {getattr(model, key)!r} has no field in PaddleFleet", f"write {only!r}")
    if any(ratio != 0 for ratio in model.mtp_compress_ratios) and not model.mtp_layers:
        raise UsageError("model.mtp_compress_ratios without MTP layers", "set model.mtp_layers")
    return {theirs: getattr(model, ours) for ours, theirs in MODEL_FIELDS.items()} | {
        "model_type": "deepseek_v4",
        "qk_rope_head_dim": model.rope_dim,
        "qk_nope_head_dim": model.head_dim - model.rope_dim,
        "rope_theta": model.rope_theta,
        # Indexed by layer, and by num_hidden_layers + i for MTP layers.
        "csa_compress_ratios": [*model.compress_ratios, *model.mtp_compress_ratios],
        "actual_vocab_size": model.vocab_size,
        "n_shared_experts": _shared_experts(model),
        "scoring_func": "sqrtsoftplus",
        "use_mtp": model.mtp_layers > 0,
        "mtp_loss_scaling_factor": losses.mtp_loss_weight,
        "dsa_indexer_loss_coeff": losses.indexer_loss_coeff,
        "dsa_indexer_use_sparse_loss": losses.indexer_sparse_loss,
        "initializer_range": config.train.init_std,
        "tie_word_embeddings": False,
        "expert_model_parallel_size": layout.expert,
        "pipeline_model_parallel_size": layout.pipeline,
        "tensor_model_parallel_size": 1,
        "pp_seg_method": seg_method(config.parallel.seg_method),
    }


def _shared_experts(model: ModelConfig) -> int:
    """Count shared experts in widths of a routed one: PaddleFleet has only their number."""
    if model.shared_ffn % model.moe_ffn:
        raise UsageError(
            f"model.shared_ffn {model.shared_ffn} is no multiple of model.moe_ffn {model.moe_ffn}",
            "PaddleFleet gives shared experts the width of routed ones: write a multiple",
        )
    return model.shared_ffn // model.moe_ffn


def seg_method(method: str) -> str:
    """Translate our seg_method: PaddleFleet cuts by its own class names, and not by cost."""
    if method == "cost":
        raise UsageError("parallel.seg_method cost has no counterpart in PaddleFleet", "write layer:DecoderLayer")
    ours = method.removeprefix("layer:").split("|")
    unknown = [name for name in ours if name not in CLASSES]
    if unknown:
        raise UsageError(f"parallel.seg_method: PaddleFleet cuts at no {unknown[0]}", f"write {' or '.join(CLASSES)}")
    # Empty layers fill up stages there; a method without them matches nothing in such a stage.
    return "layer:" + "|".join([*(CLASSES[name] for name in ours), "EmptyLayer"])


def training_arguments(config: RunConfig, layout: Layout, output: Path) -> dict[str, Any]:
    """Arguments of PaddleFormers' trainer. Raises UsageError for what it cannot do. Pure."""
    train = config.train
    if train.lr_schedule not in SCHEDULES:
        raise UsageError(
            f"train.lr_schedule {train.lr_schedule} is not in PaddleFormers", f"write {', '.join(SCHEDULES)}"
        )
    if train.dtype == "float64":
        raise UsageError("train.dtype float64 is not in PaddleFleet", "write bfloat16 or float32")
    if train.optimizer != "adam":
        raise UsageError(
            f"train.optimizer {train.optimizer}: Muon there takes other parameters, and query matrices by head",
            "write adam, as the original run",
        )
    return {
        "stage": "PT",
        "model_name_or_path": str(output / "model"),
        "output_dir": str(output / "checkpoints"),
        "max_seq_len": train.seq_len,
        "per_device_train_batch_size": train.micro_batch,
        "gradient_accumulation_steps": train.accumulate,
        "max_steps": train.steps,
        "learning_rate": train.lr,
        "min_lr": train.min_lr,
        "lr_scheduler_type": SCHEDULES[train.lr_schedule],
        "warmup_steps": train.warmup_steps,
        "decay_steps": train.lr_decay_steps or train.steps,
        "weight_decay": train.weight_decay,
        "adam_beta1": train.adam_beta1,
        "adam_beta2": train.adam_beta2,
        "adam_epsilon": train.adam_eps,
        "optim": "adamw",
        "max_grad_norm": train.clip_grad,
        "seed": train.seed,
        "tensor_model_parallel_size": 1,
        "pipeline_model_parallel_size": layout.pipeline,
        "expert_model_parallel_size": layout.expert,
        "sharding": "stage1",
        "split_param": True,  # the only form of sharding in which its optimizer works with expert parallelism
        "bf16": train.dtype == "bfloat16",
        "fp16_opt_level": "O2",
        "amp_master_grad": True,
        "logging_steps": 1,
    }


def environment(config: RunConfig, tokens: Path | None) -> dict[str, str]:
    """Variables of the run; LOAD_FIXED_DATA_PATH replays fixed tokens."""
    source = tokens or config.data.path
    return ALIGNED | ({"LOAD_FIXED_DATA_PATH": str(source)} if source else {})


def command(output: Path) -> list[str]:
    """Return the command that starts a rank on every card of this host."""
    return ["paddleformers-cli", "train", str(output / "fleet.yaml")]


def describe(config: RunConfig, layout: Layout, output: Path, tokens: Path | None) -> list[str]:
    """Lines of a dry run: a script that anyone can read, then both files that a run would write."""
    variables = environment(config, tokens) | {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(layout.world)))}
    return [
        *(f"export {name}={shlex.quote(value)}" for name, value in variables.items()),
        shlex.join(command(output)),
        f"# {output / 'model' / 'config.json'}",
        json.dumps(model_fields(config, layout), indent=1),
        f"# {output / 'fleet.yaml'}",
        yaml.safe_dump(training_arguments(config, layout, output), sort_keys=False).rstrip(),
    ]


def missing(is_there: Callable[[str], bool] | None = None) -> list[str]:
    """List the packages that a run needs and that are not here. `is_there` replaces the look-up of a module."""
    there = is_there or (lambda name: importlib.util.find_spec(name) is not None)
    lacking = [name for name in ("paddlefleet", "paddleformers") if not there(name)]
    if not there("paddle") or not _gpu_build():
        lacking.insert(0, "paddlepaddle-gpu")
    return lacking


def _gpu_build() -> bool:
    import paddle  # noqa: PLC0415 - may be missing

    return bool(paddle.is_compiled_with_cuda())


def train_in_fleet(config: RunConfig, layout: Layout, output: Path, tokens: Path | None) -> int:
    """Write both files and train in PaddleFleet; its exit code. Raises Dsv4Error, saying what to install."""
    if lacking := missing():
        raise Dsv4Error(
            f"PaddleFleet cannot run here: {', '.join(lacking)} not installed",
            f"pip install --extra-index-url $PADDLE_INDEX {' '.join(lacking)}, where $PADDLE_INDEX is Paddle's own "
            "package index, stable channel for your CUDA; --dry-run shows the run without them",
        )
    fields, arguments = model_fields(config, layout), training_arguments(config, layout, output)
    (output / "model").mkdir(parents=True, exist_ok=True)
    (output / "model" / "config.json").write_text(json.dumps(fields, indent=1) + "\n")
    (output / "fleet.yaml").write_text(yaml.safe_dump(arguments, sort_keys=False))
    return subprocess.run(command(output), env=os.environ | environment(config, tokens), check=False).returncode
