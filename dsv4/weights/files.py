"""Reading and writing weights: safetensors, one file or a folder of shards with an index."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import paddle
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from dsv4.errors import UsageError
from dsv4.model import DeepseekV4
from dsv4.weights.names import Arrays, missing_names, to_hf, to_megatron

INDEX = "model.safetensors.index.json"


def megatron_state(model: DeepseekV4) -> dict[str, paddle.Tensor]:
    """All parameters and buffers of the model by Megatron name."""
    return dict(model.named_parameters()) | dict(model.named_buffers())


def load_megatron(model: DeepseekV4, path: Path) -> None:
    """Set the model's weights from a file (or sharded folder) with Megatron's names."""
    set_weights(model, read_arrays(path), str(path))


def load_hf(model: DeepseekV4, path: Path) -> None:
    """Set the model's weights from a file (or sharded folder) with Hugging Face's names.

    MTP modules have no name there; without Megatron's names for them in the file they keep their values.
    """
    arrays = read_arrays(path)
    missing = missing_names(arrays, model.config, source_is_hf=True)
    if missing:
        raise UsageError(
            f"{path}: no tensor `{missing[0]}`" + _and_more(missing), "the file or the config is another's"
        )
    arrays = to_megatron(arrays, model.config)
    arrays |= {
        name: tensor.numpy()
        for name, tensor in megatron_state(model).items()
        if name.startswith("mtp.") and name not in arrays
    }
    set_weights(model, arrays, str(path))


def set_weights(model: DeepseekV4, arrays: Arrays, where: str) -> None:
    """Copy arrays by Megatron name into the model; every tensor must be there, with its shape, and no other."""
    state = megatron_state(model)
    missing = sorted(state.keys() - arrays.keys())
    if missing:
        raise UsageError(
            f"{where}: no tensor `{missing[0]}`" + _and_more(missing), "the file or the config is another's"
        )
    unknown = sorted(arrays.keys() - state.keys())
    if unknown:
        raise UsageError(f"{where}: unknown tensor `{unknown[0]}`" + _and_more(unknown))
    for name, tensor in state.items():  # all of them before the first is changed
        shape = list(arrays[name].shape)
        if shape != list(tensor.shape):
            raise UsageError(f"{where}: `{name}` has shape {shape}, the config says {list(tensor.shape)}")
    for name, tensor in state.items():
        value = arrays[name]
        tensor.set_value(paddle.to_tensor(value, dtype=tensor.dtype))


def save_megatron(model: DeepseekV4, path: Path, max_shard_bytes: int | None = None) -> None:
    """Write all weights under Megatron's names; with `max_shard_bytes`, `path` is a folder of shards."""
    write_arrays({name: t.numpy() for name, t in megatron_state(model).items()}, path, max_shard_bytes)


def save_hf(model: DeepseekV4, path: Path, max_shard_bytes: int | None = None) -> None:
    """Write all weights under Hugging Face's names (MTP under Megatron's)."""
    arrays = {name: t.numpy() for name, t in megatron_state(model).items()}
    write_arrays(to_hf(arrays, model.config), path, max_shard_bytes)


def read_arrays(path: Path) -> Arrays:
    """Tensors of a safetensors file, or of a folder with an index of shards."""
    files = [path]
    if path.is_dir():
        index = path / INDEX
        if index.exists():
            files = sorted({path / shard for shard in json.loads(index.read_text())["weight_map"].values()})
        else:
            files = sorted(path.glob("*.safetensors"))
        if not files:
            raise UsageError(f"{path}: no safetensors file in this folder")
    arrays: Arrays = {}
    for file in files:
        try:
            arrays |= load_file(file)
        except FileNotFoundError:
            raise UsageError(f"{file}: no such file") from None
        except (SafetensorError, OSError) as e:
            raise UsageError(f"{file}: not a readable safetensors file: {e}") from None
    return arrays


def write_arrays(arrays: Arrays, path: Path, max_shard_bytes: int | None = None) -> None:
    """Write one file, or a folder of shards of at most that size (a larger tensor has a shard of its own)."""
    arrays = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    if max_shard_bytes is None:
        save_file(arrays, path)
        return
    shards: list[Arrays] = [{}]
    size = 0
    for name in sorted(arrays):
        if shards[-1] and size + arrays[name].nbytes > max_shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = arrays[name]
        size += arrays[name].nbytes
    path.mkdir(parents=True, exist_ok=True)
    weight_map: dict[str, str] = {}
    for i, shard in enumerate(shards, 1):
        file = f"model-{i:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, path / file)
        weight_map |= dict.fromkeys(shard, file)
    total = sum(value.nbytes for value in arrays.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (path / INDEX).write_text(json.dumps(index, indent=1, sort_keys=True) + "\n")


def _and_more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""
