"""Runs the model on a recorded batch and compares every recorded activation, choice, loss and gradient."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import paddle

from dsv4.check.compare import Row, gradient_error, relative_error, sets_that_differ
from dsv4.check.reference import Reference, Source, thin
from dsv4.config import LossConfig, ModelConfig
from dsv4.model import DeepseekV4, ModelOutput
from dsv4.model.trace import Trace
from dsv4.numerics.policy import Path as ComputePath
from dsv4.weights.files import set_weights
from dsv4.weights.names import Arrays, to_hf

GRADIENTS = "gradients"
TIGHT, TIGHT_GRADIENTS = 1e-9, 1e-8  # float64
LOGITS_F32, LOSS_F32 = 2e-5, 2e-6  # float32: relative; absolute
LOOSE_F32, CHOICES_F32 = 1e-4, 0.02  # float32: other tensors; share of top-k sets that a near tie may turn


@dataclass
class OurRun:
    """What our model computed for one source."""

    config: ModelConfig
    losses: LossConfig
    output: ModelOutput
    trace: Trace
    gradients: Arrays


def check_source(reference: Reference, source: Source, path: ComputePath) -> list[Row]:
    """Compare with one recorded run, in the order of computation."""
    run = run_model(reference, source, path)
    rows = [compare_activation(run, source, name, value) for name, value in source.activations.items()]
    rows.sort(key=lambda row: place(row.tensor, run.config.num_layers))
    return rows + compare_gradients(run, source)


def run_model(reference: Reference, source: Source, path: ComputePath) -> OurRun:
    """Forward and backward on the recorded batch. Hugging Face's model has the main loss only, and its own mHC norm."""
    config, losses = reference.config, reference.losses
    if source.peer == "hf":
        config = config.model_copy(update={"hc_norm": "hf"})
        losses = losses.model_copy(
            update={"mtp_loss_weight": 0.0, "indexer_loss_coeff": 0.0, "balance_coeff": 0.0},
        )
    model = DeepseekV4(config, losses, source.dtype, path, init_std=0.0)
    set_weights(model, reference.weights, "weights")
    trace: Trace = {}
    tokens = paddle.to_tensor(reference.tokens.astype(np.int64))
    output = model(tokens[:, :-1], tokens[:, 1:], paddle.to_tensor(reference.loss_mask), trace)
    output.objective().backward()
    gradients = {
        name: np.zeros(p.shape, p.numpy().dtype) if p.grad is None else p.grad.numpy()
        for name, p in model.named_parameters()
    }
    return OurRun(config, losses, output, trace, gradients)


def our_value(run: OurRun, name: str) -> np.ndarray | None:
    """Our counterpart of a recorded name; None if there is none."""
    if name == "indexer_loss_times_coeff":
        return np.stack([loss.numpy() for loss in run.output.indexer_losses])
    prefix, _, leaf = name.rpartition(".")
    if leaf in ("probs_dense_sb", "map_sb"):
        return dense_routing(run, prefix, weighted=leaf == "probs_dense_sb")
    return run.trace[name].numpy() if name in run.trace else None


def dense_routing(run: OurRun, prefix: str, weighted: bool) -> np.ndarray:
    """Routing weights, or 1, at the chosen experts: [S·B, E], sequence first as Megatron has it."""
    experts, weights = run.trace[f"{prefix}.experts"].numpy(), run.trace[f"{prefix}.weights"].numpy()
    dense = np.zeros((len(experts), run.config.num_experts), weights.dtype)
    np.put_along_axis(dense, experts, weights if weighted else np.ones_like(weights), axis=-1)
    B = run.trace["logits"].shape[0]
    return dense.reshape(B, -1, run.config.num_experts).swapaxes(0, 1).reshape(dense.shape)


def compare_activation(run: OurRun, source: Source, name: str, theirs: np.ndarray) -> Row:
    """One row; a tensor that we do not have is infinitely far off."""
    part = name.rpartition(".")[0] or name
    ours = our_value(run, name)
    exact = source.dtype == "float64"
    if ours is None:
        return Row(source.name, part, name, "missing", float("inf"), 0.0)
    if name.endswith((".topk", ".map_sb", ".experts")):
        error = sets_that_differ(ours, theirs)
        return Row(source.name, part, name, "sets that differ", error, 0.0 if exact else CHOICES_F32)
    if name.endswith("router.weights"):  # in the order of our experts; the reference's in the order of its own
        ours = np.sort(ours, axis=-1)
        theirs = np.sort(theirs, axis=-1)
    ours = thin(ours, source.step(name))
    if name.rpartition(".")[2] == "loss" and not exact:
        return Row(source.name, part, name, "absolute", float(np.abs(ours - theirs).max()), LOSS_F32)
    bound = TIGHT if exact else (LOGITS_F32 if name.endswith("logits") else LOOSE_F32)
    return Row(source.name, part, name, "relative", relative_error(ours, theirs), bound)


def compare_gradients(run: OurRun, source: Source) -> list[Row]:
    """One row a parameter, the last layers first, as backward meets them."""
    if not source.gradients:
        return []
    ours = to_hf(run.gradients, run.config, partial=True) if source.peer == "hf" else run.gradients
    largest = max(float(np.abs(g).max()) for g in source.gradients.values())
    bound = TIGHT_GRADIENTS if source.dtype == "float64" else LOOSE_F32
    rows = []
    for name, theirs in source.gradients.items():
        if name not in ours:
            rows.append(Row(source.name, GRADIENTS, name, "missing", float("inf"), 0.0))
            continue
        error = gradient_error(thin(ours[name], source.step(name)), theirs, largest)
        rows.append(Row(source.name, GRADIENTS, name, "gradient", error, bound))
    layers = run.config.num_layers
    return sorted(rows, key=lambda row: place(row.tensor, layers), reverse=True)


ORDER_IN_LAYER = (
    "e_proj_out", "attn_hc", "self_attention_hyper", "input_layernorm", "q_a", "q_", "kv", "compressed_kv",
    "compressor", "indexer.scores", "indexer.topk", "indexer", "attn_out", "self_att", "ffn_hc", "mlp_hyper",
    "post_attention", "pre_mlp", "router.logits", "router.experts", "router.map_sb", "router", "mlp_out", "mlp",
    "out_streams", "final_hidden", "logits", "token_loss", "loss",
)  # fmt: skip


def place(name: str, layers: int) -> tuple[int, int, str]:
    """Sort key: where in the forward computation a tensor stands."""
    words = name.replace("layers.", "layer").split(".")
    layer = next((int(w[5:]) for w in words if w.startswith("layer") and w[5:].isdigit()), layers)
    if words[0] == "mtp":
        layer = layers + 1
    elif "embed" in words[0] or "embed" in name:
        layer = -1
    elif name == "indexer_loss_times_coeff":
        layer = layers + 2
    local = next((i for i, mark in enumerate(ORDER_IN_LAYER) if mark in name), len(ORDER_IN_LAYER))
    return layer, local, name


def check_balance(reference: Reference, path: ComputePath) -> list[Row]:
    """Balance and indexer losses of the first micro-batch of the recorded training run, before any update."""
    train = reference.train
    if train is None:
        return []
    model = DeepseekV4(train.config, train.losses, "float64", path, init_std=0.0)
    set_weights(model, train.weights, "train weights")
    tokens = paddle.to_tensor(train.tokens.astype(np.int64))
    trace: Trace = {}
    output = model(tokens[:, :-1], tokens[:, 1:], None, trace)
    names = [f"layer{i}" for i in range(train.config.num_layers)] + ["mtp"][: train.config.mtp_layers]
    rows = []
    for ours, theirs in zip(names, train.balance, strict=True):
        name = f"{ours}.balance_loss_unscaled"
        error = relative_error(trace[name].numpy(), np.array(theirs))
        rows.append(Row("train_f64", "balance", name, "relative", error, TIGHT))
    coeff_losses = np.stack([loss.numpy() for loss in output.indexer_losses])
    error = relative_error(coeff_losses, np.array(train.indexer))
    return [*rows, Row("train_f64", "indexer loss", "indexer_loss_times_coeff", "relative", error, TIGHT)]


def check_forward(folder: Path, path: ComputePath) -> list[Row]:
    """All rows of all recorded runs in a reference folder."""
    reference = Reference.read(folder)
    rows = [row for source in reference.sources for row in check_source(reference, source, path)]
    return rows + check_balance(reference, path)
