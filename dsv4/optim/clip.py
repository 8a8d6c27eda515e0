"""Gradient norm over all parameters and clipping, as Megatron's `clip_grads.py`."""

from __future__ import annotations

from collections.abc import Iterable

import paddle


@paddle.no_grad()
def squared_norm(gradients: Iterable[paddle.Tensor]) -> float:
    """Sum of squares of all gradients, as a float64 value; the parts of a sharded model add up."""
    parts = [g.square().sum() for g in gradients]
    return sum(float(part) for part in parts)


@paddle.no_grad()
def clip_(gradients: Iterable[paddle.Tensor], norm: float, max_norm: float) -> float:
    """Scale gradients in place by max_norm / (norm + 1e-6) if that is below one; return the factor used."""
    if max_norm <= 0:
        return 1.0
    factor = max_norm / (norm + 1e-6)
    if factor >= 1.0:
        return 1.0
    for g in gradients:
        g.multiply_(paddle.full([], factor, g.dtype))
    return factor
