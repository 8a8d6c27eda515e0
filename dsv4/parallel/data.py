"""A rank's share of a step's data, and what its losses count for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsv4.data.batch import Batch
from dsv4.parallel.layout import Share


@dataclass(frozen=True)
class LocalBatch:
    """Rows of one micro-batch. `weights` [1 + MTP modules]: a loss over these rows times its weight, averaged over all
    shares of the micro-batch, is the loss over the whole of it, wherever the counting positions lie.
    """  # fmt: skip

    micro: int  # within the step, over all ranks
    batch: Batch
    weights: tuple[float, ...]


def share_of(batch: Batch, micro: int, share: Share, mtp_layers: int) -> LocalBatch:
    """Cut this rank's rows out of a micro-batch."""
    if share.rows == 1:
        return LocalBatch(micro, batch, (1.0,) * (1 + mtp_layers))
    rows = share.local_rows(len(batch.tokens_BS))
    local = Batch(
        batch.tokens_BS[rows],
        batch.labels_BS[rows],
        None if batch.mask_BS is None else batch.mask_BS[rows],
        None if batch.documents_BS is None else batch.documents_BS[rows],
    )
    pairs = zip(_counting(local, mtp_layers), _counting(batch, mtp_layers), strict=True)
    # Where nothing counts anywhere the loss is 0 whatever its weight.
    return LocalBatch(micro, local, tuple(share.rows * mine / every if every else 1.0 for mine, every in pairs))


def _counting(batch: Batch, mtp_layers: int) -> list[int]:
    """Count the positions that make the main loss and that of each MTP module."""
    mask = np.ones(batch.tokens_BS.shape, np.int64) if batch.mask_BS is None else batch.mask_BS.astype(np.int64)
    inside = np.ones_like(mask)
    inside[:, -1] = 0
    if batch.documents_BS is not None:
        inside[:, :-1] = batch.documents_BS[:, 1:] == batch.documents_BS[:, :-1]
    counts = [int(mask.sum())]
    for _ in range(mtp_layers):
        mask = np.roll(mask, -1, axis=1) * inside
        counts.append(int(mask.sum()))
    return counts
