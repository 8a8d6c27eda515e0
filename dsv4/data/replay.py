"""Replay of fixed arrays: one file a step, micro-batch and rank, as PaddleFormers' aligned runs read them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from dsv4.data.batch import Batch, Ints, from_sequences
from dsv4.errors import UsageError


class Replay:
    """`tokens_step{S}_micro{M}_rank{R}_seq{L}.npy` and, if there, `labels_…` of the same name.

    S and M count from 0: S = index // accumulation, M = index % accumulation. A name without `_micro{M}` serves every
    micro-batch of its step. Arrays have one dimension (one sequence) or two (B, L); negative labels do not count.
    Without labels, L+1 tokens a row are split into inputs and labels; of L tokens the last label is masked.
    """

    def __init__(self, folder: Path, *, accumulate: int, rank: int, micro_batch: int, seq_len: int) -> None:
        self.folder, self._accumulate, self._rank = folder, accumulate, rank
        self._micro_batch, self._seq_len = micro_batch, seq_len
        if not any(folder.glob(f"tokens_step*_rank{rank}_seq{seq_len}.npy")):
            raise UsageError(
                f"{folder}: no tokens_step*_rank{rank}_seq{seq_len}.npy",
                "set data.rank and train.seq_len to the files'",
            )

    def batch(self, index: int) -> Batch:
        """Arrays of micro-batch `index`."""
        step, micro = divmod(index, self._accumulate)
        tokens = self._load("tokens", step, micro)
        labels = self._load("labels", step, micro)
        if tokens is None:
            raise UsageError(f"{self.folder}: no tokens for step {step}, micro {micro}", "train fewer steps")
        if labels is not None:
            if labels.shape != tokens.shape:
                raise UsageError(f"{self.folder}: step {step}: tokens {tokens.shape}, labels {labels.shape}")
            return Batch(tokens, np.where(labels < 0, 0, labels), (labels >= 0).astype(np.int32))
        if tokens.shape[1] == self._seq_len + 1:
            return from_sequences(tokens)
        labels = np.concatenate([tokens[:, 1:], np.zeros_like(tokens[:, :1])], axis=1)
        mask = np.ones(tokens.shape, np.int32)
        mask[:, -1] = 0
        return Batch(tokens, labels, mask)

    def _load(self, kind: str, step: int, micro: int) -> Ints | None:
        tail = f"rank{self._rank}_seq{self._seq_len}.npy"
        for name in (f"{kind}_step{step}_micro{micro}_{tail}", f"{kind}_step{step}_{tail}"):
            path = self.folder / name
            if path.exists():
                return self._checked(path)
        return None

    def _checked(self, path: Path) -> Ints:
        try:
            array: Ints = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as e:
            raise UsageError(f"{path}: {e}", "give a .npy of integers") from None
        if array.ndim not in (1, 2) or array.dtype.kind not in "iu":
            raise UsageError(f"{path}: {array.dtype} of {array.ndim} dimensions", "give one or two of integers")
        array = np.atleast_2d(array)
        if len(array) != self._micro_batch or array.shape[1] not in (self._seq_len, self._seq_len + 1):
            raise UsageError(
                f"{path}: shape {array.shape}, needed ({self._micro_batch}, {self._seq_len})",
                "set train.micro_batch and train.seq_len to the files'",
            )
        return array

    def identity(self) -> dict[str, Any]:
        """Folder, count and a digest over all names and contents."""
        digest = hashlib.sha256()
        paths = sorted(self.folder.glob(f"*_rank{self._rank}_seq{self._seq_len}.npy"))
        for path in paths:
            digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
        return {"path": str(self.folder), "sha256": digest.hexdigest(), "files": len(paths)}
