"""Conversations laid into rows, several a row or one, in an order that any position can be resumed from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dsv4.data.batch import Batch
from dsv4.data.chat import Loaded, Sample
from dsv4.data.order import Order
from dsv4.data.tokens import file_sha256

OPEN_ROWS = 32  # rows that are still looked at for a gap: bounds the work and keeps the order near the epoch's


def pack(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Lay items into rows of `capacity` by first fit, in the given order. No item may be longer than a row."""
    rows: list[list[int]] = []
    gaps: list[int] = []
    for item, length in enumerate(lengths):
        first = max(0, len(rows) - OPEN_ROWS)
        place = next((r for r in range(first, len(rows)) if gaps[r] >= length), None)
        if place is None:
            rows.append([])
            gaps.append(capacity)
            place = len(rows) - 1
        rows[place].append(item)
        gaps[place] -= length
    return rows


class ChatSource:
    """Micro-batches of packed (or single) conversations, endless over epochs."""

    def __init__(
        self,
        path: Path,
        loaded: Loaded,
        *,
        micro_batch: int,
        seq_len: int,
        packed: bool,
        shuffle: bool,
        seed: int,
        pad_id: int,
        pad_multiple: int | None = None,
    ) -> None:
        """With `pad_multiple`, rows are padded to the longest of the micro-batch, up to a multiple of it."""
        self._path, self._loaded, self._packed, self._pad_id = path, loaded, packed, pad_id
        self._micro_batch, self._seq_len, self._pad_multiple = micro_batch, seq_len, pad_multiple
        self._order = Order(len(loaded.samples), shuffle=shuffle, seed=seed)
        self._ends: list[int] = []  # rows in epochs 0..e
        self._epoch, self._rows = -1, [[0]]

    def batch(self, index: int) -> Batch:
        """Micro-batch `index`, a pure function of the file, the configuration and the number."""
        first = index * self._micro_batch
        chosen = [[self._loaded.samples[i] for i in self._members(first + row)] for row in range(self._micro_batch)]
        width = self._seq_len
        if self._pad_multiple:
            longest = max(sum(map(len, samples)) for samples in chosen)
            width = min(width, -(-longest // self._pad_multiple) * self._pad_multiple)
        rows = [lay_out(samples, width, self._pad_id) for samples in chosen]
        tokens, labels, mask, documents = (np.stack(parts) for parts in zip(*rows, strict=True))
        return Batch(tokens, labels, mask, documents)

    def _members(self, position: int) -> list[int]:
        """Find the samples of the row at a position of the endless run."""
        epoch = 0
        while True:
            if epoch == len(self._ends):
                self._plan(epoch)
                self._ends.append((self._ends[-1] if self._ends else 0) + len(self._rows))
            if position < self._ends[epoch]:
                break
            epoch += 1
        if epoch != self._epoch:
            self._plan(epoch)
        return self._rows[position - (self._ends[epoch - 1] if epoch else 0)]

    def _plan(self, epoch: int) -> None:
        count = self._order.count
        order = [self._order.at(epoch * count + i) for i in range(count)]
        if self._packed:
            rows = pack([len(self._loaded.samples[i]) for i in order], self._seq_len)
            self._rows = [[order[k] for k in row] for row in rows]
        else:
            self._rows = [[i] for i in order]
        self._epoch = epoch

    def identity(self) -> dict[str, Any]:
        """Path, digest, counts, and the first reasons for what was left out."""
        return {
            "path": str(self._path),
            "sha256": file_sha256(self._path),
            "records": len(self._loaded.samples),
            "left_out": {"bad": len(self._loaded.bad), "dropped": self._loaded.dropped, "cut": self._loaded.cut},
            "reasons": self._loaded.bad[:10],
        }


def lay_out(samples: Sequence[Sample], seq_len: int, pad_id: int) -> tuple[np.ndarray[Any, Any], ...]:
    """One row of inputs, labels, mask and document numbers; the rest is padding, a document of its own."""
    tokens, labels = np.full(seq_len, pad_id, np.int64), np.full(seq_len, pad_id, np.int64)
    mask, documents = np.zeros(seq_len, np.int32), np.full(seq_len, len(samples), np.int32)
    at = 0
    for number, sample in enumerate(samples):
        place = slice(at, at + len(sample))
        tokens[place], labels[place], mask[place], documents[place] = sample.inputs, sample.labels, sample.mask, number
        at += len(sample)
    return tokens, labels, mask, documents
