"""RMS norm, rotary embedding and clamped SwiGLU with gradients in few passes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import paddle
import paddle.nn.functional as F
from paddle.autograd import PyLayer

from dsv4.model.fast.gradients import note_inputs, wanted


@lru_cache(maxsize=64)
def averaging(dim: int, dtype: str) -> paddle.Tensor:
    """Column [dim, 1] of 1/dim: a product with it is a mean, several times faster than Paddle's reduction."""
    return paddle.full([dim, 1], 1.0 / dim, dtype=dtype)


def sum_rows(x: paddle.Tensor) -> paddle.Tensor:
    """Sum over the first axis of [R, D], as a product for the same reason."""
    return paddle.matmul(paddle.ones([1, x.shape[0]], dtype=x.dtype), x).squeeze(0)


def mean_last(x: paddle.Tensor) -> paddle.Tensor:
    """Mean over the last axis, which is kept."""
    return paddle.matmul(x, averaging(x.shape[-1], str(x.dtype).removeprefix("paddle.")))


class RMSNormFunction(PyLayer):
    """y = w ⊙ x̂, x̂ = x·ρ, ρ = 1/sqrt(mean(x²) + eps) over the last axis; w may be absent.

    dx = ρ·(g⊙w - x̂·mean(g⊙w⊙x̂)); dw = Σ g⊙x̂ over all rows.
    """

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, weight: paddle.Tensor | None, eps: float) -> paddle.Tensor:
        """Return y, of the shape of x."""
        rho = paddle.rsqrt(mean_last(x * x) + eps)
        xhat = x * rho
        note_inputs(ctx, x, weight)
        ctx.save_for_backward(xhat, rho, weight)
        return xhat if weight is None else xhat * weight

    @staticmethod
    def backward(ctx: Any, g: paddle.Tensor) -> Any:
        """Gradients of x and, if there is one, of the weight."""
        xhat, rho, weight = ctx.saved_tensor()
        gx = g * xhat
        if weight is None:
            return wanted(ctx, (g - xhat * mean_last(gx)) * rho)
        dim = weight.shape[0]
        dw = sum_rows(gx.reshape([-1, dim]))
        inner = paddle.matmul(gx, (weight / dim).unsqueeze(-1))
        return wanted(ctx, (g * weight - xhat * inner) * rho, dw)


@lru_cache(maxsize=8)
def pair_swap(r: int, dtype: str) -> paddle.Tensor:
    """Matrix J [r, r] with (x J)_2i = -x_2i+1 and (x J)_2i+1 = x_2i."""
    J = paddle.zeros([r // 2, 2, r // 2, 2], dtype=dtype)
    i = paddle.arange(r // 2)
    J[i, 1, i, 0] = -1.0
    J[i, 0, i, 1] = 1.0
    return J.reshape([r, r])


class RotateFunction(PyLayer):
    """y = x·cos + (x J)·sin on the last r channels of x [B, P, …, d]; cos and sin come as [P, heads·r].

    The gradient is the rotation by the opposite angle.
    """

    @staticmethod
    def forward(ctx: Any, x: paddle.Tensor, cos: paddle.Tensor, sin: paddle.Tensor, r: int) -> paddle.Tensor:
        """Return y, of the shape of x."""
        ctx.tables = cos, sin, r
        return rotated(x, cos, sin, r)

    @staticmethod
    def backward(ctx: Any, g: paddle.Tensor) -> paddle.Tensor:
        """Gradient of x."""
        cos, sin, r = ctx.tables
        return rotated(g, cos, -sin, r)


def rotated(x: paddle.Tensor, cos: paddle.Tensor, sin: paddle.Tensor, r: int) -> paddle.Tensor:
    """Rotate the last r channels by the tables."""
    B, P, d = x.shape[0], x.shape[1], x.shape[-1]
    tail = x[..., d - r :]
    swapped = paddle.matmul(tail.reshape([-1, r]), pair_swap(r, str(x.dtype).removeprefix("paddle.")))
    turned = tail.reshape([B, P, -1]) * cos + swapped.reshape([B, P, -1]) * sin
    turned = turned.reshape(tail.shape)
    return paddle.concat([x[..., : d - r], turned], axis=-1) if d > r else turned


def clamped_swiglu(g: paddle.Tensor, u: paddle.Tensor, limit: float) -> paddle.Tensor:
    """SiLU(min(g, limit)) ⊙ clip(u, -limit, limit), the gate without a lower clamp."""
    return F.silu(g.clip(max=limit)) * u.clip(min=-limit, max=limit)


def clamped_swiglu_gradient(
    g: paddle.Tensor, u: paddle.Tensor, dh: paddle.Tensor, limit: float
) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
    """Return h, computed again, and the gradients of g and u; none where a clamp acts."""
    g, u = g.detach(), u.detach()
    g.stop_gradient = u.stop_gradient = False
    with paddle.enable_grad():
        h = clamped_swiglu(g, u, limit)
        dg, du = paddle.grad([h], [g, u], [dh])
    return h.detach(), dg, du
