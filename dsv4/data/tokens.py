"""Token files: the reference's safetensors, and flat files mapped into memory."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from dsv4.data.batch import Batch, Ints, from_sequences
from dsv4.data.order import Order
from dsv4.errors import UsageError


def file_sha256(path: Path) -> str:
    """Digest of a file, read in pieces."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


class TokenTensors:
    """`tokens` int32 [micro-batches, B, S+1], read row by row; `loss_mask` [micro-batches, B, S] if asked for.

    Step s, from 1, uses rows A·(s-1) … A·s-1: the number of the micro-batch is the row.
    """

    def __init__(self, path: Path, *, micro_batch: int, seq_len: int, loss_mask: bool) -> None:
        self.path = path
        try:
            file: Any = safe_open(str(path), "numpy")
            names = set(file.keys())
        except (SafetensorError, OSError) as e:
            raise UsageError(f"{path}: {e}", "name a safetensors file with `tokens`") from None
        for name in ["tokens"] + ["loss_mask"] * loss_mask:
            if name not in names:
                advice = (
                    "set train.loss_mask to false" if name == "loss_mask" else "write int32 [micro-batches, B, S+1]"
                )
                raise UsageError(f"{path}: no tensor `{name}`", advice)
        self._tokens = file.get_slice("tokens")
        self._mask = file.get_slice("loss_mask") if loss_mask else None
        shape = self._tokens.get_shape()
        if len(shape) != 3 or shape[1:] != [micro_batch, seq_len + 1]:
            raise UsageError(
                f"{path}: tokens are {shape}, needed [micro-batches, {micro_batch}, {seq_len + 1}]",
                "set train.micro_batch and train.seq_len to the file's",
            )
        if self._mask is not None and self._mask.get_shape() != [shape[0], micro_batch, seq_len]:
            raise UsageError(
                f"{path}: loss_mask is {self._mask.get_shape()}, needed {[shape[0], micro_batch, seq_len]}",
                "it belongs to the labels: one column fewer than the tokens",
            )
        self.count: int = shape[0]

    def batch(self, index: int) -> Batch:
        """Row `index` of the file."""
        if index >= self.count:
            raise UsageError(
                f"{self.path}: holds {self.count} micro-batches, number {index + 1} is needed",
                "train fewer steps, or give a longer file",
            )
        mask = None if self._mask is None else self._mask[index]
        return from_sequences(self._tokens[index], mask)

    def identity(self) -> dict[str, Any]:
        """Path, digest and count."""
        return {"path": str(self.path), "sha256": file_sha256(self.path), "micro_batches": self.count}


class TokenStream:
    """A flat file of token ids mapped into memory, cut into sequences of S+1 that overlap by one token.

    `.npy` (one dimension, any integer dtype) or `.bin` (raw, of the dtype that the configuration names). The file is
    never read whole; epochs follow one another, each in its own order when shuffled.
    """

    def __init__(self, path: Path, *, micro_batch: int, seq_len: int, dtype: str, shuffle: bool, seed: int) -> None:
        self.path, self._micro_batch, self._seq_len = path, micro_batch, seq_len
        self._ids = _map_ids(path, dtype)
        self._order = Order((len(self._ids) - 1) // seq_len, shuffle=shuffle, seed=seed)
        if self._order.count < 1:
            raise UsageError(f"{path}: {len(self._ids)} tokens are less than one sequence", "give a longer file")

    def batch(self, index: int) -> Batch:
        """Micro-batch `index` of an endless run over the file."""
        first = index * self._micro_batch
        starts = [self._order.at(first + i) * self._seq_len for i in range(self._micro_batch)]
        return from_sequences(np.stack([np.asarray(self._ids[s : s + self._seq_len + 1]) for s in starts]))

    def identity(self) -> dict[str, Any]:
        """Path, digest and count."""
        return {"path": str(self.path), "sha256": file_sha256(self.path), "tokens": len(self._ids)}


def _map_ids(path: Path, dtype: str) -> Ints:
    try:
        if path.suffix == ".npy":
            ids: Ints = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            size = path.stat().st_size
            if size % np.dtype(dtype).itemsize:
                raise UsageError(f"{path}: {size} bytes are no whole number of {dtype}", "set data.token_dtype")
            ids = np.memmap(path, dtype, "r")
    except (OSError, ValueError) as e:
        raise UsageError(f"{path}: {e}", "give a .npy of one dimension, or a .bin of raw ids") from None
    if ids.ndim != 1 or ids.dtype.kind not in "iu":
        raise UsageError(f"{path}: {ids.dtype} of {ids.ndim} dimensions", "give one dimension of integers")
    return ids
