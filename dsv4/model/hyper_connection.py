"""Manifold-constrained hyper-connections, mHC (section 4 of the specification)."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import nn

from dsv4.config import ModelConfig
from dsv4.model.fast.mixing import CollapseStreams, MixStreams, NormedProjection, SinkhornFunction
from dsv4.model.linear import Linear, new_parameter
from dsv4.numerics.policy import DtypePolicy


def sinkhorn(logits_BSnn: paddle.Tensor, iterations: int, eps: float) -> paddle.Tensor:
    """Doubly stochastic matrix from logits.

    A = softmax over the last axis + eps; columns once (sum over axis -2); then iterations-1 times rows, columns:
    `iterations` column and `iterations`-1 row normalisations, each divided by its sum + eps.
    Source: HF `DeepseekV4HyperConnection`; MG `_sinkhorn_iterations`.
    """
    a = F.softmax(logits_BSnn, axis=-1) + eps
    a = a / (a.sum(axis=-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        a = a / (a.sum(axis=-1, keepdim=True) + eps)
        a = a / (a.sum(axis=-2, keepdim=True) + eps)
    return a


class HyperConnection(nn.Layer):
    """Mixing around one sub-layer: n streams to its input, its output and the old streams to n new streams.

    x̃ = flatten(X) [B, S, n·D];  u = ρ·(φ x̃);  φ [n²+2n, n·D], rows: n pre, n post, n² res.
    pre  = σ(α_pre·u_pre + b_pre) + eps          [B, S, n]
    post = 2·σ(α_post·u_post + b_post)           [B, S, n]
    C    = sinkhorn(α_res·u_res + b_res)         [B, S, n, n]
    ρ = 1/(‖x̃‖/sqrt(nD) + eps) (Megatron) or 1/sqrt(mean(x̃²) + eps) (HF), by `hc_norm`.
    All maps in the island dtype with full-precision parameters; pre, post, C are rounded to the activation dtype
    before they touch the streams. Source: MG `transformer/hyper_connection.py`; HF `DeepseekV4HyperConnection`.
    """

    def __init__(self, config: ModelConfig, policy: DtypePolicy) -> None:
        super().__init__()
        self.config, self.policy = config, policy
        n, D = config.hc_mult, config.hidden_size
        self.mapping_proj = Linear(n * D, n * n + 2 * n, policy)
        self.bias = new_parameter(self, [n * n + 2 * n], policy)
        self.alpha_pre = new_parameter(self, [1], policy)
        self.alpha_post = new_parameter(self, [1], policy)
        self.alpha_res = new_parameter(self, [1], policy)

    def maps(self, X_BSnD: paddle.Tensor) -> tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]:
        """Return pre [B, S, n], post [B, S, n] and C [B, S, n, n]."""
        c, n = self.config, self.config.hc_mult
        B, S = X_BSnD.shape[:2]
        if self.policy.fast:
            x = X_BSnD.reshape([B * S, -1])
            u = NormedProjection.apply(x, self.mapping_proj.weight, c.hc_eps, c.hc_norm)
            u = u.reshape([B, S, -1])
        else:
            u = self._normed_projection(X_BSnD.flatten(2))
        u_pre, u_post, u_res = u.split([n, n, n * n], axis=-1)
        b_pre, b_post, b_res = self.bias.split([n, n, n * n])
        pre = F.sigmoid(self.alpha_pre * u_pre + b_pre) + c.hc_eps
        post = 2.0 * F.sigmoid(self.alpha_post * u_post + b_post)
        logits = self.alpha_res * u_res + b_res
        if self.policy.fast:
            C = SinkhornFunction.apply(logits.reshape([B * S, n * n]), n, c.hc_sinkhorn_iters, c.hc_eps)
            return pre, post, C.reshape([B, S, n, n])
        return pre, post, sinkhorn(logits.reshape([B, S, n, n]), c.hc_sinkhorn_iters, c.hc_eps)

    def _normed_projection(self, x: paddle.Tensor) -> paddle.Tensor:
        """U = ρ·(φ x̃), ρ multiplied after the product."""
        c = self.config
        mean_square = (x * x).mean(axis=-1, keepdim=True)
        rho = 1.0 / (mean_square.sqrt() + c.hc_eps) if c.hc_norm == "megatron" else paddle.rsqrt(mean_square + c.hc_eps)
        return paddle.matmul(x, self.mapping_proj.weight, transpose_y=True) * rho

    def collapse(self, X_BSnD: paddle.Tensor, pre_BSn: paddle.Tensor) -> paddle.Tensor:
        """Collapse: z = Σ_j pre_j X_j, [B, S, D]."""
        return self.policy.act(weighted_streams(self.policy.act(pre_BSn), X_BSnD, self.policy.fast))

    def expand(
        self, X_BSnD: paddle.Tensor, f_BSD: paddle.Tensor, post_BSn: paddle.Tensor, C_BSnn: paddle.Tensor
    ) -> paddle.Tensor:
        """X'_k = post_k · f + Σ_j C[j, k] · X_j, [B, S, n, D]: C enters transposed."""
        post, C = self.policy.act(post_BSn), self.policy.act(C_BSnn)
        if self.policy.fast:
            B, S, n, D = X_BSnD.shape
            T = B * S
            X, f = X_BSnD.reshape([T, n, D]), f_BSD.reshape([T, 1, D])
            mixed = MixStreams.apply(C.reshape([T, n, n]), X, post.reshape([T, n, 1]), f)
            return self.policy.act(mixed.reshape([B, S, n, D]))
        mixed = paddle.matmul(C, X_BSnD, transpose_x=True)
        added = paddle.matmul(post.unsqueeze(-1), f_BSD.unsqueeze(2))
        return self.policy.act(added + mixed)


class HyperHead(nn.Layer):
    """Base of the decoder and of an MTP module: both end by collapsing the n streams (section 4.4).

    w = σ(scale·(fn x̃)·ρ + base) + eps, ρ = 1/sqrt(mean(x̃²) + eps) in both peers; y = Σ_j w_j X_j.
    hc_head_fn [n, n·D], hc_head_base [n], hc_head_scale [1]; island dtype as in HyperConnection.
    Source: HF `DeepseekV4HyperHead`; MG `learned_output_contract`.
    """

    def __init__(self, config: ModelConfig, policy: DtypePolicy) -> None:
        super().__init__()
        n, D = config.hc_mult, config.hidden_size
        self.config, self.policy = config, policy
        self.hc_head_fn = new_parameter(self, [n, n * D], policy)
        self.hc_head_base = new_parameter(self, [n], policy)
        self.hc_head_scale = new_parameter(self, [1], policy)

    def collapse_streams(self, X_BSnD: paddle.Tensor) -> paddle.Tensor:
        """Return [B, S, D]."""
        x, eps = X_BSnD.flatten(2), self.config.hc_eps
        rho = paddle.rsqrt((x * x).mean(axis=-1, keepdim=True) + eps)
        u = paddle.matmul(x, self.hc_head_fn, transpose_y=True) * rho
        w = F.sigmoid(self.hc_head_scale * u + self.hc_head_base) + eps
        return self.policy.act(weighted_streams(self.policy.act(w), X_BSnD, self.policy.fast))


def weighted_streams(w_BSn: paddle.Tensor, X_BSnD: paddle.Tensor, fast: bool) -> paddle.Tensor:
    """Σ_j w_j X_j over the streams."""
    if fast:
        B, S, n, D = X_BSnD.shape
        z = CollapseStreams.apply(w_BSn.reshape([B * S, 1, n]), X_BSnD.reshape([B * S, n, D]))
        return z.reshape([B, S, D])
    return paddle.matmul(w_BSn.unsqueeze(2), X_BSnD).squeeze(2)
