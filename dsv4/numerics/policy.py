"""Dtype policy: what is computed in which precision (sections 12 and 13 of the specification)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import paddle

Path = Literal["plain", "fast"]
"""plain: the specification in code, by dense masks; fast: equal to rounding, with hand-written gradients."""

DtypeName = Literal["float64", "float32", "bfloat16"]


@dataclass(frozen=True)
class DtypePolicy:
    """One of three ways to compute.

    * float64: everything, tables and constants included.
    * float32: the same in float32.
    * bfloat16: activations and matrices hold bfloat16 values; the float32 islands of section 12 (norms, RoPE,
      pooling and attention softmax, router, indexer scores, mHC maps, losses) stay in float32. Paddle's CPU build
      has no bfloat16 arithmetic, so tensors are float32 holding exact bfloat16 values: `act` and `weight` round
      (to nearest even, forward and backward), and products accumulate in float32 as tensor cores do.
    """

    name: DtypeName
    path: Path = "plain"

    @property
    def dtype(self) -> str:
        """Dtype in which tensors are held and arithmetic is done."""
        return "float64" if self.name == "float64" else "float32"

    @property
    def fast(self) -> bool:
        """Whether the fast path is taken."""
        return self.path == "fast"

    def act(self, x: paddle.Tensor) -> paddle.Tensor:
        """Round to the activation dtype: the identity but under bfloat16."""
        return _round_bf16(x) if self.name == "bfloat16" else x

    def weight(self, w: paddle.Tensor) -> paddle.Tensor:
        """Round a matrix as it enters a product; the parameter itself stays in full precision (master weight)."""
        return _round_bf16(w) if self.name == "bfloat16" else w

    def linear(self, x: paddle.Tensor, w_OI: paddle.Tensor) -> paddle.Tensor:
        """Y = x Wᵀ in the activation dtype, without bias; W is [out, in]."""
        return self.act(paddle.matmul(x, self.weight(w_OI), transpose_y=True))


def _round_bf16(x: paddle.Tensor) -> paddle.Tensor:
    return x.astype("bfloat16").astype("float32")
