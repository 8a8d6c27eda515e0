"""Attention core by dense masks: the specification in code (sections 5.2, 5.3), the oracle for the fast core."""

from __future__ import annotations

import paddle

from dsv4.model.compressor import visible_entries


def window_mask(S: int, window: int) -> paddle.Tensor:
    """[S, S] bool: query t sees positions max(0, t-W+1) … t."""
    t, j = paddle.arange(S).unsqueeze(-1), paddle.arange(S).unsqueeze(0)
    return (j <= t) & (j > t - window)


def entry_mask(S: int, N: int, ratio: int) -> paddle.Tensor:
    """[S, N] bool: entry w is visible to query t if its window ends at or before t."""
    return paddle.arange(N).unsqueeze(0) < visible_entries(paddle.arange(S), ratio).unsqueeze(-1)


def selection_mask(topk_BSK: paddle.Tensor, N: int) -> paddle.Tensor:
    """[B, S, N] bool: the entries that the indexer chose; -1 chooses none."""
    return (topk_BSK.unsqueeze(-1) == paddle.arange(N)).any(axis=2)


def attend(
    q_BSHd: paddle.Tensor, keys_BKd: paddle.Tensor, mask_BSK: paddle.Tensor, sink_H: paddle.Tensor, scale: float
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """One softmax over all visible keys and the sink; keys are values. Returns o [B, S, H, d] and a [B, S, H, K].

    a_j = exp(l_j - M) / (Σ_j exp(l_j - M) + exp(s_h - M)), M = max(max_j l_j, s_h). In the island dtype.
    """
    logits = paddle.matmul(q_BSHd, keys_BKd.unsqueeze(1), transpose_y=True) * scale
    logits = paddle.where(mask_BSK.unsqueeze(2), logits, paddle.full_like(logits, -float("inf")))
    sink = sink_H.reshape([1, 1, -1, 1])
    peak = paddle.maximum(logits.detach().max(axis=-1, keepdim=True), sink.detach())
    e = paddle.exp(logits - peak)
    a = e / (e.sum(axis=-1, keepdim=True) + paddle.exp(sink - peak))
    return paddle.matmul(a, keys_BKd.unsqueeze(1)), a
