"""Indexer by query blocks: top-k without a gradient, and the loss with its gradient computed at once."""

from __future__ import annotations

from typing import Any

import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer

from dsv4.model.fast.gradients import note_inputs, wanted
from dsv4.model.indexer import choose_entries, indexer_loss

BLOCK = 64
"""Queries whose scores [B, BLOCK, H_I, N] exist at once."""


def scores_of(q: paddle.Tensor, k: paddle.Tensor, v: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor]:
    """ReLU(q·k) [B, T, H, N] and the scores [B, T, N] of one block."""
    B, T, H, d = q.shape
    dots = F.relu(paddle.matmul(q.reshape([B, T * H, d]), k, transpose_y=True)).reshape([B, T, H, -1])
    return dots, paddle.matmul(v.unsqueeze(2), dots).squeeze(2)


@paddle.no_grad()
def choose_by_blocks(q: paddle.Tensor, k: paddle.Tensor, v: paddle.Tensor, ratio: int, topk: int) -> paddle.Tensor:
    """Top-k of the visible entries of every query: [B, S, K], -1 where fewer are visible."""
    S, N = q.shape[1], k.shape[1]
    K = min(topk, N)
    chosen = []
    for t0 in range(0, S, BLOCK):
        t1 = min(t0 + BLOCK, S)
        entries = min(t1 // ratio, N)
        if entries <= K:  # every visible entry is chosen, whatever its score
            picked = all_visible(t0, t1, ratio, entries, q.shape[0])
        else:
            scores = scores_of(q[:, t0:t1], k[:, :entries], v[:, t0:t1])[1]
            picked = choose_entries(scores, t0, ratio, topk)
        chosen.append(
            F.pad(picked, [0, K - picked.shape[-1]], value=-1, data_format="NCL") if picked.shape[-1] < K else picked
        )
    return paddle.concat(chosen, axis=1)


def all_visible(t0: int, t1: int, ratio: int, entries: int, B: int) -> paddle.Tensor:
    """[B, T, entries]: entry indices, -1 for those not yet visible."""
    w, count = paddle.arange(entries), ((paddle.arange(t0, t1) + 1) // ratio).unsqueeze(-1)
    picked = paddle.where(w < count, w + paddle.zeros_like(count), paddle.full([t1 - t0, entries], -1, dtype="int64"))
    return picked.unsqueeze(0).expand([B, t1 - t0, entries])


class IndexerLoss(PyLayer):
    """Loss of section 6.4 over the chosen entries, from the teacher [B, S, K] of the attention core.

    The loss is a scalar that enters the objective linearly, so the gradients of q, k and v for a unit of it are
    computed block by block together with it; no score outlives its block.
    """

    @staticmethod
    def forward(
        ctx: Any, q: paddle.Tensor, k: paddle.Tensor, v: paddle.Tensor, teacher: paddle.Tensor, topk: paddle.Tensor
    ) -> paddle.Tensor:
        """Return the scalar loss, without its coefficient."""
        B, S, H, d = q.shape
        N = k.shape[1]
        total = paddle.zeros([], dtype=q.dtype)
        dk, dqs, dvs = paddle.zeros_like(k), [], []
        for t0 in range(0, S, BLOCK):
            rows = slice(t0, min(t0 + BLOCK, S))
            qb, vb, picks = q[:, rows], v[:, rows], topk[:, rows]
            T, member = qb.shape[1], picks >= 0
            dots, scores = scores_of(qb, k, vb)
            columns = picks.clip(min=0)
            part, g = loss_and_gradient(teacher[:, rows], paddle.take_along_axis(scores, columns, axis=-1), member)
            share = T / S
            total = total + part * share
            g_BTN = paddle.put_along_axis(paddle.zeros([B, T, N], dtype=q.dtype), columns, g * share, -1, "add")
            dvs.append(paddle.matmul(dots, g_BTN.unsqueeze(-1)).squeeze(-1))
            ddots = paddle.matmul(vb.unsqueeze(-1), g_BTN.unsqueeze(2)) * (dots > 0).astype(q.dtype)
            ddots = ddots.reshape([B, T * H, N])
            dqs.append(paddle.matmul(ddots, k).reshape(qb.shape))
            dk = dk + paddle.matmul(ddots, qb.reshape([B, T * H, d]), transpose_x=True)
        note_inputs(ctx, q, k, v, teacher, topk)
        ctx.save_for_backward(paddle.concat(dqs, axis=1), dk, paddle.concat(dvs, axis=1))
        return total

    @staticmethod
    def backward(ctx: Any, g: paddle.Tensor) -> Any:
        """Gradients of q, k and v; teacher and choice have none."""
        dq, dk, dv = ctx.saved_tensor()
        return wanted(ctx, dq * g, dk * g, dv * g, None, None)


def loss_and_gradient(
    teacher: paddle.Tensor, scores: paddle.Tensor, member: paddle.Tensor
) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Mean loss over the block's rows, and its gradient with respect to the scores."""
    with paddle.enable_grad():
        leaf = scores.detach()
        leaf.stop_gradient = False
        loss = indexer_loss(teacher, leaf, member)
        (gradient,) = paddle.grad(loss, [leaf])
    return loss.detach(), gradient
