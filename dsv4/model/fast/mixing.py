"""mHC's input map and Sinkhorn iterations with hand-written gradients (section 4.2 of the specification)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer

from dsv4.model.fast.gradients import note_inputs, wanted
from dsv4.model.fast.pointwise import mean_last


class NormedProjection(PyLayer):
    """u = ρ·(φ x̃) [T, m] of x̃ [T, nD], with ρ in Megatron's or Hugging Face's form.

    q = mean(x̃²): Megatron ρ = 1/(sqrt(q) + eps), dρ/dq = -ρ²/(2·sqrt(q)); HF ρ = (q + eps)^(-1/2), dρ/dq = -ρ³/2.
    """

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, phi: paddle.Tensor, eps: float, form: str) -> paddle.Tensor:
        """Return u."""
        q = mean_last(x * x)
        if form == "megatron":
            root = q.sqrt()
            rho = 1.0 / (root + eps)
            # A row of zeros has no direction to shrink in: its gradient through ρ is 0.
            slope = -0.5 * rho * rho / root.clip(min=1e-150 if x.dtype == paddle.float64 else 1e-30)
        else:
            rho = paddle.rsqrt(q + eps)
            slope = -0.5 * rho * rho * rho
        raw = paddle.matmul(x, phi, transpose_y=True)
        note_inputs(ctx, x, phi)
        ctx.save_for_backward(x, phi, raw, rho, slope)
        return raw * rho

    @staticmethod
    def backward(ctx: Any, g: paddle.Tensor) -> Any:
        """Gradients of x̃ and φ."""
        x, phi, raw, rho, slope = ctx.saved_tensor()
        draw = g * rho
        through_rho = (g * raw).sum(axis=-1, keepdim=True) * slope * (2.0 / x.shape[-1])
        dx = paddle.matmul(draw, phi).add_(x * through_rho)
        return wanted(ctx, dx, paddle.matmul(draw, x, transpose_x=True))


@lru_cache(maxsize=8)
def block_ones(n: int, dtype: str) -> tuple[paddle.Tensor, paddle.Tensor]:
    """Matrices [n², n²] that replace each entry of a flattened n×n matrix by its row's, its column's sum."""
    eye, ones = paddle.eye(n, dtype=dtype), paddle.ones([n, n], dtype=dtype)
    return paddle.kron(eye, ones), paddle.kron(ones, eye)


class SinkhornFunction(PyLayer):
    """Doubly stochastic C from logits [T, n²] (rows of flattened n×n matrices).

    One normalisation y = a/(s + eps), s = sums of a, has the gradient (g - sums of g⊙y)/(s + eps); sums over rows or
    columns are products with a constant matrix. All iterations are differentiated.
    """

    @staticmethod
    def forward(ctx: Any, logits: paddle.Tensor, n: int, iterations: int, eps: float) -> paddle.Tensor:
        """Return [T, n²]."""
        rows, columns = block_ones(n, str(logits.dtype).removeprefix("paddle."))
        soft = F.softmax(logits.reshape([-1, n, n]), axis=-1).reshape(logits.shape)
        a = soft + eps
        steps = []
        for over in [columns] + [rows, columns] * (iterations - 1):
            divisor = paddle.matmul(a, over) + eps
            a = a / divisor
            steps.append((over, divisor, a))
        ctx.steps, ctx.soft, ctx.n = steps, soft, n
        return a

    @staticmethod
    def backward(ctx: Any, g: paddle.Tensor) -> paddle.Tensor:
        """Gradient of the logits."""
        for over, divisor, y in reversed(ctx.steps):
            g = (g - paddle.matmul(g * y, over)) / divisor
        rows, _ = block_ones(ctx.n, str(g.dtype).removeprefix("paddle."))
        return ctx.soft * (g - paddle.matmul(g * ctx.soft, rows))


GROUP = 4
"""Tokens per matrix product in `token_outer`: small batched products are bound by their number, not by their size."""


def token_outer(a_TnD: paddle.Tensor, b_TmD: paddle.Tensor) -> paddle.Tensor:
    """Per token a bᵀ: [T, n, m]. Groups of tokens share a product whose blocks off the diagonal are thrown away."""
    T, n, D = a_TnD.shape
    m = b_TmD.shape[1]
    if T % GROUP:
        return paddle.matmul(a_TnD, b_TmD, transpose_y=True)
    shared = paddle.matmul(a_TnD.reshape([-1, GROUP * n, D]), b_TmD.reshape([-1, GROUP * m, D]), transpose_y=True)
    blocks = shared.reshape([-1, GROUP, n, GROUP, m]).diagonal(axis1=1, axis2=3)  # [T/GROUP, n, m, GROUP]
    return blocks.transpose([0, 3, 1, 2]).reshape([T, n, m])


class MixStreams(PyLayer):
    """X' = Cᵀ X + post fᵀ per token: C [T, n, n], X [T, n, D], post [T, n, 1], f [T, 1, D].

    dC = X Gᵀ; dX = C G; dpost = G f; df = postᵀ G.
    """

    @staticmethod
    def forward(ctx: Any, C: paddle.Tensor, X: paddle.Tensor, post: paddle.Tensor, f: paddle.Tensor) -> paddle.Tensor:
        """Return X' [T, n, D]."""
        ctx.save_for_backward(C, X, post, f)
        note_inputs(ctx, C, X, post, f)
        return paddle.matmul(C, X, transpose_x=True).add_(paddle.matmul(post, f))

    @staticmethod
    def backward(ctx: Any, g: paddle.Tensor) -> Any:
        """Gradients of C, X, post and f."""
        C, X, post, f = ctx.saved_tensor()
        df = paddle.matmul(post, g, transpose_x=True)
        return wanted(ctx, token_outer(X, g), paddle.matmul(C, g), token_outer(g, f), df)


class CollapseStreams(PyLayer):
    """z = Σ_j w_j X_j per token: w [T, 1, n], X [T, n, D]. dw = g Xᵀ; dX = wᵀ g."""

    @staticmethod
    def forward(ctx: Any, w: paddle.Tensor, X: paddle.Tensor) -> paddle.Tensor:
        """Return z [T, 1, D]."""
        ctx.save_for_backward(w, X)
        note_inputs(ctx, w, X)
        return paddle.matmul(w, X)

    @staticmethod
    def backward(ctx: Any, g: paddle.Tensor) -> Any:
        """Gradients of w and X."""
        w, X = ctx.saved_tensor()
        return wanted(ctx, token_outer(g, X), paddle.matmul(w, g, transpose_x=True))
