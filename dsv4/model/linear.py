"""Parameters, and matrices as Megatron keeps them: weight [out, in], no bias."""

from __future__ import annotations

from typing import Any

import paddle
from paddle import nn

from dsv4.numerics.policy import DtypePolicy


def new_parameter(owner: nn.Layer, shape: list[int], policy: DtypePolicy) -> Any:
    """Create a parameter of zeros; `dsv4.model.init` gives every parameter its initial value by name."""
    return owner.create_parameter(shape, dtype=policy.dtype, default_initializer=nn.initializer.Constant(0.0))


class Linear(nn.Layer):
    """y = x Wᵀ, W [out, in], in the activation dtype."""

    def __init__(self, n_in: int, n_out: int, policy: DtypePolicy) -> None:
        super().__init__()
        self.policy = policy
        self.weight = new_parameter(self, [n_out, n_in], policy)

    def forward(self, x: paddle.Tensor) -> paddle.Tensor:
        """Map the last axis from `in` to `out`."""
        return self.policy.linear(x, self.weight)
