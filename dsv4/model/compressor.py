"""Compressors: m tokens pooled into one key/value entry (sections 6.1 and 6.2 of the specification)."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import nn

from dsv4.config import CSA, ModelConfig
from dsv4.model.linear import Linear, new_parameter
from dsv4.model.norm import RMSNorm
from dsv4.model.rope import Rope
from dsv4.numerics.policy import DtypePolicy


def visible_entries(t_S: paddle.Tensor, ratio: int) -> paddle.Tensor:
    """How many compressed entries query t sees: floor((t+1)/m), those whose whole window ends at or before t."""
    return (t_S + 1) // ratio


class Compressor(nn.Layer):
    """Entries k_w [B, N, d], N = floor(S/m), rotated at position w·m.

    c = x W_kvᵀ, z = x W_gateᵀ; per channel: weights = softmax over the pooled slots of (z + ape); then RMSNorm, RoPE.
    m = 128 (HCA): the slots of entry w are the m tokens of window w.
    m = 4 (CSA): both maps give 2d channels, half a (read by the next window) and half b (read by its own): slots
    0..m-1 are the a-half of window w-1, slots m..2m-1 the b-half of window w; entry 0 has value 0 and score -∞ in
    the first m. Softmax in the island dtype. Source: HF `DeepseekV4{HCA,CSA}Compressor`; MG `csa.py` `Compressor`.
    """

    def __init__(self, config: ModelConfig, dim: int, ratio: int, policy: DtypePolicy) -> None:
        super().__init__()
        self.ratio, self.dim, self.policy = ratio, dim, policy
        self.overlap = ratio == CSA
        width = 2 * dim if self.overlap else dim
        self.linear_wkv = Linear(config.hidden_size, width, policy)
        self.linear_wgate = Linear(config.hidden_size, width, policy)
        self.ape = new_parameter(self, [ratio, width], policy)
        self.norm = RMSNorm(dim, config.rms_eps, policy)

    def forward(self, x_BSD: paddle.Tensor, rope: Rope) -> paddle.Tensor | None:
        """Pool whole windows; the tail of S mod m tokens is dropped. None if S < m."""
        B, S, _ = x_BSD.shape
        m, N = self.ratio, S // self.ratio
        if N == 0:
            return None
        whole = x_BSD[:, : N * m]
        value = self.linear_wkv(whole).reshape([B, N, m, -1])
        score = self.linear_wgate(whole).reshape([B, N, m, -1]) + self.ape
        if self.overlap:
            value, score = overlap_windows(value, 0.0), overlap_windows(score, -float("inf"))
        weights = self.policy.act(F.softmax(score, axis=2))
        pooled = self.policy.act((weights * value).sum(axis=2))
        return self.policy.act(rope.rotate(self.norm(pooled), stride=m))


def overlap_windows(x_BNmd2: paddle.Tensor, fill: float) -> paddle.Tensor:
    """[B, N, m, 2d] → [B, N, 2m, d]: a-half of the window before (`fill` before the first), then the own b-half."""
    a, b = x_BNmd2.chunk(2, axis=-1)
    before = paddle.concat([paddle.full_like(a[:, :1], fill), a[:, :-1]], axis=1)
    return paddle.concat([before, b], axis=2)
