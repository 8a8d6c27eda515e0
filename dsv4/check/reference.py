"""Reading a reference folder: configuration, weights, tokens, and the recorded runs.

A thinned copy (`tests/data/dsv4`) has the same layout, but of every float tensor in its activation and gradient files
only each k-th element, flat; k stands in the file's metadata under the tensor's name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
from safetensors import safe_open

from dsv4.config import LossConfig, ModelConfig
from dsv4.errors import UsageError
from dsv4.numerics.policy import DtypeName
from dsv4.weights.files import read_arrays
from dsv4.weights.names import Arrays

SOURCES: tuple[tuple[str, DtypeName], ...] = (
    ("megatron_f64", "float64"),
    ("hf_f64", "float64"),
    ("megatron_f32", "float32"),
    ("hf_f32", "float32"),
)


def thin(value: np.ndarray, step: int) -> np.ndarray:
    """Each step-th element, flat; the tensor itself for step 0."""
    return value.ravel()[::step] if step else value


@dataclass
class Source:
    """One recorded run of a peer."""

    name: str
    dtype: DtypeName
    activations: Arrays
    gradients: Arrays
    steps: dict[str, int] = field(default_factory=dict)

    @property
    def peer(self) -> str:
        """`megatron` or `hf`."""
        return self.name.split("_")[0]

    def step(self, tensor: str) -> int:
        """By how much a tensor is thinned; 0 for not at all."""
        return self.steps.get(tensor, 0)


@dataclass
class TrainStart:
    """The first micro-batch of a recorded training run."""

    config: ModelConfig
    losses: LossConfig
    weights: Arrays
    tokens: np.ndarray
    balance: list[float]
    indexer: list[float]


@dataclass
class Reference:
    """A reference folder."""

    config: ModelConfig
    losses: LossConfig
    weights: Arrays
    tokens: np.ndarray
    loss_mask: np.ndarray
    sources: list[Source]
    train: TrainStart | None

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read `folder` (or its subfolder `forward`); the training run is taken from `train` beside it, if there."""
        forward = folder / "forward" if (folder / "forward").is_dir() else folder
        if not (forward / "config.json").exists():
            raise UsageError(f"{folder}: no config.json here: not a reference folder", "give the folder that holds it")
        config, losses = read_config(forward / "config.json")
        batch = read_arrays(forward / "tokens.safetensors")
        sources = [s for name, dtype in SOURCES if (s := read_source(forward, name, dtype))]
        if not sources:
            raise UsageError(f"{forward}: no recorded run: expected one of megatron_f64_activations.safetensors, …")
        weights = read_arrays(forward / "weights_megatron_names.safetensors")
        train = read_train(forward.parent / "train")
        return cls(config, losses, weights, batch["tokens"], batch["loss_mask"], sources, train)


def read_config(path: Path) -> tuple[ModelConfig, LossConfig]:
    """Model and losses of a configuration file; other keys of `train` do not concern the model."""
    content = json.loads(path.read_text())
    return ModelConfig.parse(content["model"], str(path)), pick_losses(content.get("train", {}), str(path))


def pick_losses(train: dict[str, Any], where: str) -> LossConfig:
    """Pick the loss weights out of a section `train`."""
    return LossConfig.parse({key: train[key] for key in LossConfig.model_fields if key in train}, where)


def read_source(forward: Path, name: str, dtype: DtypeName) -> Source | None:
    """Activations and gradients of one run; None if it was not recorded."""
    activations, gradients = (forward / f"{name}_{what}.safetensors" for what in ("activations", "grads"))
    if not activations.exists():
        return None
    steps: dict[str, int] = {}
    found: list[Arrays] = []
    for file in (activations, gradients):
        if not file.exists():
            found.append({})
            continue
        found.append(read_arrays(file))
        with safe_open(file, "np") as f:
            steps |= {key: int(step) for key, step in (f.metadata() or {}).items() if key in found[-1]}
    return Source(name, dtype, found[0], found[1], steps)


def read_train(folder: Path) -> TrainStart | None:
    """Start of the recorded training run, where its auxiliary losses are recorded too."""
    record, tokens = folder / "train_f64.json", folder / "train_tokens.safetensors"
    if not record.exists() or not tokens.exists():
        return None
    content = json.loads(record.read_text())
    if "aux" not in content:
        return None
    model, train = content["config"]["model"], content["config"]["train"]
    aux = content["aux"][0]
    return TrainStart(
        ModelConfig.parse(model, str(record)),
        pick_losses(train, str(record)),
        read_arrays(folder / "weights_step0.safetensors"),
        read_arrays(tokens)["tokens"][0],
        list(aux["balance_loss_unscaled"].values()),
        aux["indexer_loss_times_coeff"],
    )
