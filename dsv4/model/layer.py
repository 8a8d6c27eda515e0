"""One decoder layer: mHC around attention, mHC around MoE; no other residual path (sections 1 and 4.3)."""

from __future__ import annotations

from typing import NamedTuple

import paddle
from paddle import nn

from dsv4.config import LossConfig, ModelConfig
from dsv4.model.attention import Attention
from dsv4.model.hyper_connection import HyperConnection
from dsv4.model.moe import MoE
from dsv4.model.norm import RMSNorm
from dsv4.model.packing import Packing
from dsv4.model.trace import Trace, record
from dsv4.numerics.policy import DtypePolicy


class LayerOutput(NamedTuple):
    """Streams [B, S, n, D]; coeff · indexer loss; coeff · balance loss; tokens per expert [E]."""

    X_BSnD: paddle.Tensor
    indexer_loss: paddle.Tensor
    balance_loss: paddle.Tensor
    counts_E: paddle.Tensor


class DecoderLayer(nn.Layer):
    """X → expand(X, Attention(norm(collapse X))) → expand(X, MoE(norm(collapse X))), [B, S, n, D].

    Source: HF `DeepseekV4DecoderLayer`; MG `native_h_post_bda`.
    """

    def __init__(
        self,
        config: ModelConfig,
        losses: LossConfig,
        ratio: int,
        policy: DtypePolicy,
        *,
        name: str,
        hashed: bool,
        experts: range | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.self_attention_hyper_connection = HyperConnection(config, policy)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_eps, policy)
        self.self_attention = Attention(config, losses, ratio, policy)
        self.mlp_hyper_connection = HyperConnection(config, policy)
        self.pre_mlp_layernorm = RMSNorm(config.hidden_size, config.rms_eps, policy)
        self.mlp = MoE(config, losses, hashed, policy, experts)

    def forward(
        self,
        X_BSnD: paddle.Tensor,
        tokens_BS: paddle.Tensor | None,
        trace: Trace | None = None,
        packing: Packing | None = None,
    ) -> LayerOutput:
        """`tokens_BS`: ids of the layer's own positions, for hash routing. `packing`: documents within the rows."""
        hc = self.self_attention_hyper_connection
        pre, post, C = hc.maps(X_BSnD)
        z = hc.collapse(X_BSnD, pre)
        normed = self.input_layernorm(z)
        if packing is None:
            f, indexer_loss = self.self_attention(normed, trace, self.name)
        else:
            f, indexer_loss = packing.attend(self.self_attention, normed, trace, self.name)
        for what, value in (("attn_hc.post", post), ("attn_hc.comb", C), ("attn_hc.collapsed", z), ("attn_out", f)):
            record(trace, f"{self.name}.{what}", value)
        X = hc.expand(X_BSnD, f, post, C)

        hc = self.mlp_hyper_connection
        pre, post, C = hc.maps(X)
        moe = self.mlp(self.pre_mlp_layernorm(hc.collapse(X, pre)), tokens_BS, trace, self.name)
        record(trace, f"{self.name}.mlp_out", moe.y_BSD)
        X = hc.expand(X, moe.y_BSD, post, C)
        record(trace, f"{self.name}.out_streams", X)
        return LayerOutput(X, indexer_loss, moe.balance_loss, moe.counts_E)
