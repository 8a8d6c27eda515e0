"""Mixture of experts: routed experts and one shared expert (section 7 of the specification)."""

from __future__ import annotations

from typing import NamedTuple

import paddle
import paddle.nn.functional as F
from paddle import nn

from dsv4.config import LossConfig, ModelConfig
from dsv4.model.dispatch import Dispatcher, LocalDispatcher
from dsv4.model.fast.experts import GroupedExperts
from dsv4.model.fast.pointwise import clamped_swiglu as fused_swiglu
from dsv4.model.linear import Linear
from dsv4.model.router import Router, Routing, balance_loss, tokens_per_expert
from dsv4.model.trace import Trace, record
from dsv4.numerics.policy import DtypePolicy


def clamped_swiglu(gate_up: paddle.Tensor, limit: float, fast: bool = False) -> paddle.Tensor:
    """SiLU(min(g, limit)) ⊙ clip(u, -limit, limit) of [..., 2I], gate first. The gate has no lower clamp."""
    g, u = gate_up.chunk(2, axis=-1)
    if fast:
        return fused_swiglu(g, u, limit)
    return F.silu(g.clip(max=limit)) * u.clip(min=-limit, max=limit)


class Expert(nn.Layer):
    """y = (SiLU(g) ⊙ u) W_downᵀ; linear_fc1 [2I, D] holds gate rows then up rows, linear_fc2 [D, I].

    In the activation dtype. Source: MG `transformer/mlp.py`; HF `DeepseekV4Experts`, `DeepseekV4MLP`.
    """

    def __init__(self, config: ModelConfig, width: int, policy: DtypePolicy) -> None:
        super().__init__()
        self.limit, self.policy = config.swiglu_limit, policy
        self.linear_fc1 = Linear(config.hidden_size, 2 * width, policy)
        self.linear_fc2 = Linear(width, config.hidden_size, policy)

    def forward(self, x: paddle.Tensor, weight: paddle.Tensor | None = None) -> paddle.Tensor:
        """[..., D] → [..., D]; a routing weight [..., 1] multiplies the activation before W_down, as in Megatron."""
        h = clamped_swiglu(self.linear_fc1(x), self.limit, self.policy.fast)
        return self.linear_fc2(self.policy.act(h if weight is None else h * weight))


class Experts(nn.Layer):
    """Routed experts, each with matrices of its own: local_experts.e, e counted over all experts of all ranks."""

    def __init__(self, config: ModelConfig, policy: DtypePolicy, held: range) -> None:
        super().__init__()
        self.local_experts = nn.LayerDict({str(e): Expert(config, config.moe_ffn, policy) for e in held})


class MoEOutput(NamedTuple):
    """Output [B, S, D]; coeff · balance loss (scalar); tokens per expert [E] int64."""

    y_BSD: paddle.Tensor
    balance_loss: paddle.Tensor
    counts_E: paddle.Tensor


class MoE(nn.Layer):
    """F(x) of the feed-forward half of a layer: Σ over chosen experts of weight · expert(x), plus the shared expert."""

    def __init__(
        self,
        config: ModelConfig,
        losses: LossConfig,
        hashed: bool,
        policy: DtypePolicy,
        experts: range | None = None,
    ) -> None:
        super().__init__()
        self.config, self.losses, self.policy = config, losses, policy
        self.router = Router(config, hashed, policy)
        self.experts = Experts(config, policy, range(config.num_experts) if experts is None else experts)
        self.shared_experts = Expert(config, config.shared_ffn, policy)
        self.dispatcher: Dispatcher = LocalDispatcher(config.num_experts)

    def forward(
        self, x_BSD: paddle.Tensor, tokens_BS: paddle.Tensor | None, trace: Trace | None = None, name: str = ""
    ) -> MoEOutput:
        """Route, compute, sum; `tokens_BS` is needed by hash-routed layers only."""
        B, S, D = x_BSD.shape
        x = x_BSD.reshape([B * S, D])
        routing = self.router(x, None if tokens_BS is None else tokens_BS.flatten(), trace, name)
        y = self._sorted(x, routing) if self.policy.fast else self._dense(x, routing)
        out = self.policy.act(y.reshape([B, S, D]) + self.shared_experts(x_BSD))
        coeff = self.losses.balance_coeff
        loss = paddle.zeros([], dtype=self.policy.dtype)
        if coeff:
            unscaled = balance_loss(routing.scores_TE, B, self.config.topk_experts)
            record(trace, f"{name}.balance_loss_unscaled", unscaled)
            loss = coeff * unscaled
        return MoEOutput(out, loss, tokens_per_expert(routing.experts_Tk, self.config.num_experts))

    def _dense(self, x_TD: paddle.Tensor, routing: Routing) -> paddle.Tensor:
        """Every expert sees every token, with weight 0 where it was not chosen."""
        dense_TE = dense_weights(routing, self.config.num_experts)
        y = paddle.zeros_like(x_TD)
        for e, expert in self.experts.local_experts.items():
            y = y + expert(x_TD, dense_TE[:, int(e) : int(e) + 1])
        return y

    def _sorted(self, x_TD: paddle.Tensor, routing: Routing) -> paddle.Tensor:
        """Every expert sees its own tokens; `dispatcher` brings them to it and back."""
        rows = self.dispatcher.dispatch(x_TD, routing)
        experts = list(self.experts.local_experts.values())
        weight = self.policy.weight
        matrices = [weight(e.linear_fc1.weight) for e in experts] + [weight(e.linear_fc2.weight) for e in experts]
        y = GroupedExperts.apply(
            rows.x_RD, rows.weights_R1, rows.counts, self.config.swiglu_limit, self.policy, *matrices
        )
        return self.dispatcher.combine(y, rows)


def dense_weights(routing: Routing, num_experts: int) -> paddle.Tensor:
    """Routing weights as [T, E], 0 where not chosen."""
    zero = paddle.zeros([routing.experts_Tk.shape[0], num_experts], dtype=routing.weights_Tk.dtype)
    return paddle.put_along_axis(zero, routing.experts_Tk, routing.weights_Tk, axis=-1)
