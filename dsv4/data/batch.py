"""One micro-batch, and what every source of them can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dsv4.errors import UsageError

Ints = NDArray[np.integer[Any]]


@dataclass(frozen=True)
class Batch:
    """Inputs and labels of one micro-batch.

    `labels_BS` are the tokens one to the right; `mask_BS` belongs to the labels and is None when all count.
    `documents_BS` numbers the documents of a packed row (None: one document a row): attention, positions and the
    shifted labels of MTP do not cross from one to the next.
    """

    tokens_BS: Ints
    labels_BS: Ints
    mask_BS: Ints | None = None
    documents_BS: Ints | None = None

    @property
    def counting(self) -> int:
        """Positions whose loss counts."""
        return int(self.tokens_BS.size if self.mask_BS is None else self.mask_BS.sum())


class Source(Protocol):
    """Micro-batches by number, so that a resumed run continues wherever it stopped, in the middle of an epoch too."""

    def batch(self, index: int) -> Batch:
        """Micro-batch `index`, counted from 0 over the whole run. Raises UsageError when the data end before it."""

    def identity(self) -> dict[str, Any]:
        """Tell what the data are: path, digest, counts."""


def from_sequences(tokens_BS1: Ints, mask_BS: Ints | None = None) -> Batch:
    """Split rows of S+1 tokens into inputs and labels, one to the right."""
    return Batch(tokens_BS1[:, :-1], tokens_BS1[:, 1:], mask_BS)


def check_ids(batch: Batch, vocab_size: int, where: str) -> None:
    """Raise UsageError for an id outside the vocabulary; an embedding would read past its table."""
    for name, ids in (("token", batch.tokens_BS), ("label", batch.labels_BS)):
        wrong = np.argwhere((ids < 0) | (ids >= vocab_size))
        if len(wrong):
            row, position = wrong[0]
            raise UsageError(
                f"{where}: {name} {ids[row, position]} at row {row}, position {position} is outside the vocabulary",
                f"model.vocab_size is {vocab_size}: use the tokenizer of this model",
            )
