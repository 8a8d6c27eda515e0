"""Multi-token prediction module (section 8 of the specification)."""

from __future__ import annotations

import paddle

from dsv4.config import LossConfig, ModelConfig
from dsv4.model.hyper_connection import HyperHead
from dsv4.model.layer import DecoderLayer, LayerOutput
from dsv4.model.linear import Linear
from dsv4.model.norm import RMSNorm
from dsv4.model.packing import Packing
from dsv4.model.trace import Trace, record
from dsv4.numerics.policy import DtypePolicy


def shift_left(x_BS: paddle.Tensor) -> paddle.Tensor:
    """Move every position one to the left; the last becomes 0 (tokens, labels and masks alike)."""
    return paddle.concat([x_BS[:, 1:], paddle.zeros_like(x_BS[:, :1])], axis=1)


class MTPModule(HyperHead):
    """Y_j = RMSNorm_e(E[tokens shifted left]) W_eᵀ + RMSNorm_h(X_j) W_hᵀ; one decoder layer on Y; own collapse, norm.

    X are the streams before the final collapse. The output matrix and the embedding are the main model's.
    Source: MG `multi_token_prediction.py` `MultiTokenPredictionLayer`; DS `MTPBlock`.
    """

    def __init__(
        self,
        config: ModelConfig,
        losses: LossConfig,
        ratio: int,
        policy: DtypePolicy,
        *,
        name: str,
        experts: range | None = None,
    ) -> None:
        super().__init__(config, policy)
        D = config.hidden_size
        self.name = name
        self.enorm = RMSNorm(D, config.rms_eps, policy)
        self.hnorm = RMSNorm(D, config.rms_eps, policy)
        self.e_proj = Linear(D, D, policy)
        self.h_proj = Linear(D, D, policy)
        self.mtp_model_layer = DecoderLayer(config, losses, ratio, policy, name=name, hashed=False, experts=experts)
        self.final_layernorm = RMSNorm(D, config.rms_eps, policy)

    def forward(
        self,
        X_BSnD: paddle.Tensor,
        shifted_BSD: paddle.Tensor,
        trace: Trace | None = None,
        packing: Packing | None = None,
    ) -> tuple[paddle.Tensor, LayerOutput]:
        """`shifted_BSD`: embedding of the shifted tokens. Returns the normed hidden state [B, S, D] and the layer's."""
        e = self.e_proj(self.enorm(shifted_BSD))
        record(trace, f"{self.name}.e_proj_out", e)
        Y = self.policy.act(e.unsqueeze(2) + self.h_proj(self.hnorm(X_BSnD)))
        out = self.mtp_model_layer(Y, None, trace, packing)
        hidden = self.final_layernorm(self.collapse_streams(out.X_BSnD))
        record(trace, f"{self.name}.final_hidden", hidden)
        return hidden, out
