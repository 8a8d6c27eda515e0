"""Several documents in one row: attention, positions and shifted labels stay within each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import paddle

from dsv4.model.trace import Trace

if TYPE_CHECKING:
    from dsv4.model.attention import Attention


@dataclass(frozen=True)
class Packing:
    """Where the documents of a micro-batch lie: spans (row, first, end), and which positions are a document's last."""

    spans: tuple[tuple[int, int, int], ...]
    last_BS: paddle.Tensor  # int64, 1 at the last position of a document

    @classmethod
    def of(cls, documents_BS: np.ndarray[Any, Any]) -> Packing:
        """Read document numbers [B, S]: a new document begins wherever the number changes along a row."""
        B, S = documents_BS.shape
        last = np.ones((B, S), np.int64)
        last[:, :-1] = documents_BS[:, 1:] != documents_BS[:, :-1]
        spans = []
        for row in range(B):
            ends = np.flatnonzero(last[row]) + 1
            spans += [(row, int(a), int(b)) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        return cls(tuple(spans), paddle.to_tensor(last))

    def shift_left(self, x_BS: paddle.Tensor) -> paddle.Tensor:
        """Move every position one to the left within its document; the last of each becomes 0."""
        shifted = paddle.concat([x_BS[:, 1:], paddle.zeros_like(x_BS[:, :1])], axis=1)
        return shifted * (1 - self.last_BS).astype(x_BS.dtype)

    def attend(
        self, attention: Attention, x_BSD: paddle.Tensor, trace: Trace | None, name: str
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Run an attention sub-layer on every document as a sequence of its own, from position 0.

        Windows of the compressors begin with the document, so no entry mixes two. Returns the output [B, S, D] and the
        indexer loss as the mean over all B·S positions.
        """
        B, S, D = x_BSD.shape
        pieces, total = [], paddle.zeros([], dtype=x_BSD.dtype)
        for row, first, end in self.spans:
            o, loss = attention(x_BSD[row : row + 1, first:end], trace, f"{name}[{row},{first}:{end}]")
            pieces.append(o[0])
            total = total + loss * ((end - first) / (B * S))
        return paddle.concat(pieces).reshape([B, S, D]), total
