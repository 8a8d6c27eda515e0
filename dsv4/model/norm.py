"""RMS norms (section 2 of the specification)."""

from __future__ import annotations

import paddle
from paddle import nn

from dsv4.model.fast.pointwise import RMSNormFunction
from dsv4.model.linear import new_parameter
from dsv4.numerics.policy import DtypePolicy


def rms_norm(x: paddle.Tensor, eps: float, weight: paddle.Tensor | None = None, fast: bool = False) -> paddle.Tensor:
    """RMSNorm(x; w) = w ⊙ x / sqrt(mean(x², last axis) + eps); without a weight, the plain quotient.

    Computed in the island dtype; the caller rounds once at the end. Source: HF `DeepseekV4RMSNorm`.
    """
    if fast:
        return RMSNormFunction.apply(x, weight, eps)
    y = x * paddle.rsqrt((x * x).mean(axis=-1, keepdim=True) + eps)
    return y if weight is None else y * weight


class RMSNorm(nn.Layer):
    """RMS norm with a learned weight [dim]."""

    def __init__(self, dim: int, eps: float, policy: DtypePolicy) -> None:
        super().__init__()
        self.eps, self.policy = eps, policy
        self.weight = new_parameter(self, [dim], policy)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Normalise over the last axis; same shape."""
        return self.policy.act(rms_norm(x, self.eps, self.weight, self.policy.fast))
