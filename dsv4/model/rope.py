"""Rotary embedding of the last r channels, interleaved pairs, with YaRN in compressed layers (section 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import paddle

from dsv4.config import SLIDING, ModelConfig
from dsv4.model.fast.pointwise import RotateFunction


def inverse_frequencies(config: ModelConfig, ratio: int) -> np.ndarray:
    """Angle per position ω_i, i < r/2, in float64.

    Window-only layers: ω_i = θ^(-2i/r). CSA and HCA layers: θ_c with YaRN's blend of a_i and a_i/s and no magnitude
    factor. Source: MG `yarn_rotary_pos_embedding.py`; HF `_compute_yarn_parameters`.
    """
    r = config.rope_dim
    exponent: np.ndarray = np.arange(0, r, 2, dtype=np.float64) / r
    if ratio == SLIDING:
        return np.asarray(config.rope_theta**-exponent)
    theta = config.compress_rope_theta
    base = theta**-exponent

    def turn(beta: float) -> float:
        return r * math.log(config.yarn_original_max / (beta * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(turn(config.yarn_beta_fast)), 0)
    high: float = min(math.ceil(turn(config.yarn_beta_slow)), r - 1)
    if low == high:
        high += 0.001
    ramp = np.clip((np.arange(r // 2, dtype=np.float64) - low) / (high - low), 0.0, 1.0)
    return np.asarray(base / config.yarn_factor * ramp + base * (1.0 - ramp))


@dataclass(frozen=True)
class Rope:
    """Rotation tables of one layer kind: cos and sin, [positions, r/2]."""

    cos_PR: paddle.Tensor
    sin_PR: paddle.Tensor
    fast: bool = False
    tiled: dict[tuple[int, int, int], tuple[paddle.Tensor, paddle.Tensor]] = field(default_factory=dict, compare=False)

    def rotate(self, x: paddle.Tensor, stride: int = 1, inverse: bool = False) -> paddle.Tensor:
        """Rotate the last r channels of x [B, P, d] or [B, P, H, d] by ±position·ω, position = stride·index of axis 1.

        y_2i = x_2i cos - x_2i+1 sin;  y_2i+1 = x_2i+1 cos + x_2i sin; the first d-r channels pass through.
        Source: HF `apply_rotary_pos_emb`; MG `rope_utils.py`.
        """
        count, half = x.shape[1], self.cos_PR.shape[-1]
        if self.fast:
            heads = x.shape[2] if x.ndim == 4 else 1
            cos, sin = self._tiled(count, stride, heads)
            return RotateFunction.apply(x, cos, -sin if inverse else sin, 2 * half)
        shape = [1, count] + [1] * (x.ndim - 3) + [half]
        cos = self.cos_PR[: count * stride : stride].reshape(shape)
        sin = self.sin_PR[: count * stride : stride].reshape(shape)
        if inverse:
            sin = -sin
        plain = x.shape[-1] - 2 * half
        pairs = x[..., plain:].reshape([*x.shape[:-1], half, 2])
        even, odd = pairs[..., 0], pairs[..., 1]
        turned = paddle.stack([even * cos - odd * sin, odd * cos + even * sin], axis=-1)
        turned = turned.reshape([*x.shape[:-1], 2 * half])
        return paddle.concat([x[..., :plain], turned], axis=-1) if plain else turned

    def _tiled(self, count: int, stride: int, heads: int) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Tables [count, heads·r] with every angle twice, for both channels of its pair, and repeated by head."""
        key = count, stride, heads
        if key not in self.tiled:
            rows = [t[: count * stride : stride] for t in (self.cos_PR, self.sin_PR)]
            cos, sin = (paddle.repeat_interleave(t, 2, axis=-1).tile([1, heads]) for t in rows)
            self.tiled[key] = cos, sin
        return self.tiled[key]


@lru_cache(maxsize=32)
def rope_tables(config: ModelConfig, ratio: int, positions: int, dtype: str, fast: bool = False) -> Rope:
    """Tables for positions 0 .. positions-1. Angles in float64, or in float32 where that is the island dtype."""
    omega = paddle.to_tensor(inverse_frequencies(config, ratio), dtype=dtype)
    angles = paddle.arange(positions, dtype=dtype).unsqueeze(-1) * omega
    return Rope(angles.cos(), angles.sin(), fast)
