"""Routed experts over tokens sorted by expert: one matrix product per expert and matrix, no padding."""

from __future__ import annotations

from typing import Any

import paddle
from paddle.autograd import PyLayer

from dsv4.model.fast.gradients import note_inputs, wanted
from dsv4.model.fast.pointwise import clamped_swiglu, clamped_swiglu_gradient
from dsv4.numerics.policy import DtypePolicy


class GroupedExperts(PyLayer):
    """y = (w ⊙ SiLU(min(x W_gateᵀ, limit)) ⊙ clip(x W_upᵀ)) W_downᵀ for each expert's own rows.

    x [R, D] sorted by expert, w [R, 1] routing weights, `counts` rows per expert; then fc1 [2I, D] of every expert
    and fc2 [D, I] of every expert. Gate and up are products with the two halves of fc1, so nothing is split.
    Returns y [R, D]; an expert without rows gets a gradient of zeros.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: paddle.Tensor,
        w: paddle.Tensor,
        counts: list[int],
        limit: float,
        policy: DtypePolicy,
        *matrices: paddle.Tensor,
    ) -> paddle.Tensor:
        """Return y [R, D]."""
        fc1, fc2 = matrices[: len(counts)], matrices[len(counts) :]
        pieces, ctx.kept, act = [], [], policy.act
        for e, (first, last) in enumerate(segments(counts)):
            if first == last:
                continue
            xe, width = x[first:last], fc1[e].shape[0] // 2
            g = act(paddle.matmul(xe, fc1[e][:width], transpose_y=True))
            u = act(paddle.matmul(xe, fc1[e][width:], transpose_y=True))
            h = act(clamped_swiglu(g, u, limit) * w[first:last])
            pieces.append(act(paddle.matmul(h, fc2[e], transpose_y=True)))
            ctx.kept.append((e, first, last, g, u))
        ctx.save_for_backward(x, w, *matrices)
        note_inputs(ctx, x, w, *matrices)
        ctx.limit, ctx.experts, ctx.act = limit, len(counts), policy.act
        return paddle.concat(pieces) if pieces else paddle.zeros_like(x)

    @staticmethod
    def backward(ctx: Any, dy: paddle.Tensor) -> Any:
        """Gradients of x, w and every matrix."""
        x, w, *matrices = ctx.saved_tensor()
        fc1, fc2 = matrices[: ctx.experts], matrices[ctx.experts :]
        d1: list[paddle.Tensor | None] = [None] * ctx.experts
        d2: list[paddle.Tensor | None] = [None] * ctx.experts
        dx, dw = [], []
        for e, first, last, g, u in ctx.kept:
            xe, we, dye, width = x[first:last], w[first:last], dy[first:last], fc1[e].shape[0] // 2
            dhw = paddle.matmul(dye, fc2[e])
            h, dg, du = clamped_swiglu_gradient(g, u, dhw * we, ctx.limit)
            dw.append((dhw * h).sum(axis=-1, keepdim=True))
            d2[e] = paddle.matmul(dye, ctx.act(h * we), transpose_x=True)
            d1[e] = paddle.concat([paddle.matmul(dg, xe, transpose_x=True), paddle.matmul(du, xe, transpose_x=True)])
            dx.append(paddle.matmul(dg, fc1[e][:width]).add_(paddle.matmul(du, fc1[e][width:])))
        d1 = [paddle.zeros_like(m) if d is None else d for d, m in zip(d1, fc1, strict=True)]
        d2 = [paddle.zeros_like(m) if d is None else d for d, m in zip(d2, fc2, strict=True)]
        return wanted(
            ctx,
            paddle.concat(dx) if dx else paddle.zeros_like(x),
            paddle.concat(dw) if dw else paddle.zeros_like(w),
            *d1,
            *d2,
        )


def segments(counts: list[int]) -> list[tuple[int, int]]:
    """First and one-past-last row of each expert."""
    bounds, first = [], 0
    for count in counts:
        bounds.append((first, first + count))
        first += count
    return bounds
