"""Routers: which experts a token uses and with which weights (section 7 of the specification)."""

from __future__ import annotations

from typing import NamedTuple

import paddle
import paddle.nn.functional as F
from paddle import nn

from dsv4.config import ModelConfig
from dsv4.model.linear import new_parameter
from dsv4.model.trace import Trace, record
from dsv4.numerics.policy import DtypePolicy

TINY = 1e-20
"""Added to sums of scores before division."""


class Routing(NamedTuple):
    """T tokens, k experts each."""

    scores_TE: paddle.Tensor
    experts_Tk: paddle.Tensor
    weights_Tk: paddle.Tensor


class Router(nn.Layer):
    """Scores s = sqrt(softplus(x W_gᵀ)); weights = s of the chosen / (their sum + 1e-20) · routed scaling.

    Score-routed layers choose the top-k of s + expert_bias; the bias [E] is a buffer without gradient and does not
    enter the weights. Hash-routed layers look the experts up by token id in tid2eid [V, k] and have no bias.
    All in the island dtype. Source: MG `moe/router.py`, `moe_utils.py`; HF `DeepseekV4{TopK,Hash}Router`.
    """

    def __init__(self, config: ModelConfig, hashed: bool, policy: DtypePolicy) -> None:
        super().__init__()
        self.config, self.hashed, self.policy = config, hashed, policy
        E = config.num_experts
        self.weight = new_parameter(self, [E, config.hidden_size], policy)
        if hashed:
            table = (paddle.arange(config.vocab_size).unsqueeze(-1) + paddle.arange(config.topk_experts)) % E
            self.register_buffer("tid2eid", table.astype("int32"))
        else:
            self.register_buffer("expert_bias", paddle.zeros([E], dtype=policy.dtype))

    def forward(
        self, x_TD: paddle.Tensor, tokens_T: paddle.Tensor | None, trace: Trace | None = None, name: str = ""
    ) -> Routing:
        """Route T tokens; `tokens_T` (ids) is needed by hash layers only."""
        k = self.config.topk_experts
        logits = paddle.matmul(x_TD, self.policy.weight(self.weight), transpose_y=True)
        scores = F.softplus(logits).sqrt()
        if self.hashed:
            assert tokens_T is not None, "a hash-routed layer needs the token ids"
            experts = self.tid2eid[tokens_T].astype("int64")
        else:
            experts = paddle.topk(scores.detach() + self.expert_bias, k, axis=-1)[1]
        chosen = paddle.take_along_axis(scores, experts, axis=-1)
        weights = chosen / (chosen.sum(axis=-1, keepdim=True) + TINY) * self.config.routed_scaling
        record(trace, f"{name}.router.logits", logits)
        record(trace, f"{name}.router.weights", weights)
        record(trace, f"{name}.router.experts", experts)
        return Routing(scores, experts, weights)


def tokens_per_expert(experts_Tk: paddle.Tensor, num_experts: int) -> paddle.Tensor:
    """How many tokens chose each expert, int64 [E]."""
    return paddle.bincount(experts_Tk.flatten(), minlength=num_experts)


def balance_loss(scores_TE: paddle.Tensor, sequences: int, k: int) -> paddle.Tensor:
    """Sequence-wise balance loss without its coefficient, a scalar.

    Per sequence of S tokens: p̄ = s/(Σ s + 1e-20), f_i = tokens whose top-k of p̄ has i (no bias, in hash layers too);
    mean over sequences of E/(k·S²) · Σ_i f_i Σ_t p̄_ti; gradient through p̄ only.
    Source: MG `switch_load_balancing_loss_func`, `compute_routing_scores_for_aux_loss`.
    """
    E = scores_TE.shape[-1]
    s_BSE = scores_TE.reshape([sequences, -1, E])
    S = s_BSE.shape[1]
    p = s_BSE / (s_BSE.sum(axis=-1, keepdim=True) + TINY)
    picked = paddle.topk(p.detach(), k, axis=-1)[1]
    f_BE = F.one_hot(picked, E).astype(p.dtype).sum(axis=[1, 2])
    return (f_BE * p.sum(axis=1)).sum(axis=-1).mean() * (E / (k * S * S))
