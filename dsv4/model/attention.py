"""Attention sub-layer: low-rank queries, one shared key/value head, compressed entries, grouped output (section 5)."""

from __future__ import annotations

import paddle
from paddle import nn

from dsv4.config import CSA, SLIDING, LossConfig, ModelConfig
from dsv4.model import attention_plain as plain
from dsv4.model.compressor import Compressor
from dsv4.model.fast.attention import BlockAttention, Sight
from dsv4.model.fast.indexer import IndexerLoss, all_visible, choose_by_blocks
from dsv4.model.indexer import Indexer, Projections, choose_entries, index_scores, indexer_loss
from dsv4.model.linear import Linear, new_parameter
from dsv4.model.norm import RMSNorm, rms_norm
from dsv4.model.rope import Rope, rope_tables
from dsv4.model.trace import Trace, record
from dsv4.numerics.policy import DtypePolicy


class CoreAttention(nn.Layer):
    """Holder of what Megatron keeps under `core_attention`: sink [H], compressor and indexer."""

    def __init__(self, config: ModelConfig, ratio: int, policy: DtypePolicy) -> None:
        super().__init__()
        self.attn_sink = new_parameter(self, [config.num_heads], policy)
        self.compressor = None if ratio == SLIDING else Compressor(config, config.head_dim, ratio, policy)
        self.indexer = Indexer(config, ratio, policy) if ratio == CSA else None


class Attention(nn.Layer):
    """F(x) of the attention half of a layer.

    q_c = RMSNorm(x W_qaᵀ); q = q_c W_qbᵀ as [B, S, H, d] → RMSNorm per head without weight → RoPE.
    kv = RMSNorm(x W_kvᵀ) [B, S, d] → RoPE: key and value at once. Scale d^(-1/2).
    o [B, S, H, d] → inverse RoPE at the query's position → g groups of H·d/g, each by its own matrix → W_ob.
    Logits, softmax and weighted sum in the island dtype. Source: MG `deepseek_v4_hybrid_attention.py`;
    HF `DeepseekV4Attention`.
    """

    def __init__(self, config: ModelConfig, losses: LossConfig, ratio: int, policy: DtypePolicy) -> None:
        super().__init__()
        self.config, self.losses, self.ratio, self.policy = config, losses, ratio, policy
        D, q_rank, wide = config.hidden_size, config.q_lora_rank, config.num_heads * config.head_dim
        self.linear_q_down_proj = Linear(D, q_rank, policy)
        self.q_layernorm = RMSNorm(q_rank, config.rms_eps, policy)
        self.linear_q_up_proj = Linear(q_rank, wide, policy)
        self.linear_kv_proj = Linear(D, config.head_dim, policy)
        self.kv_layernorm = RMSNorm(config.head_dim, config.rms_eps, policy)
        self.core_attention = CoreAttention(config, ratio, policy)
        g, rank = config.o_groups, config.o_lora_rank
        self.linear_o_group_proj = new_parameter(self, [g * rank, wide // g], policy)
        self.linear_proj = Linear(g * rank, D, policy)

    def forward(
        self, x_BSD: paddle.Tensor, trace: Trace | None = None, name: str = ""
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Return the output [B, S, D] and coeff · indexer loss (a scalar; 0 where there is no indexer)."""
        B, S, _ = x_BSD.shape
        H, d = self.config.num_heads, self.config.head_dim
        rope = rope_tables(self.config, self.ratio, S, self.policy.dtype, self.policy.fast)
        act = self.policy.act
        qc = self.q_layernorm(self.linear_q_down_proj(x_BSD))
        q = rms_norm(self.linear_q_up_proj(qc).reshape([B, S, H, d]), self.config.rms_eps, fast=self.policy.fast)
        q = act(rope.rotate(act(q)))
        kv = act(rope.rotate(self.kv_layernorm(self.linear_kv_proj(x_BSD))))
        core = self._fast_core if self.policy.fast else self._plain_core
        o, loss = core(x_BSD, qc, q, kv, rope, trace, name)
        o = act(rope.rotate(act(o), inverse=True))
        return self.linear_proj(self._grouped(o.reshape([B, S, H * d]))), loss

    def _grouped(self, o_BSw: paddle.Tensor) -> paddle.Tensor:
        """Block-diagonal first half of the output projection: [B, S, H·d] → [B, S, g·rank]."""
        B, S, wide = o_BSw.shape
        g, rank = self.config.o_groups, self.config.o_lora_rank
        w_gRi = self.policy.weight(self.linear_o_group_proj).reshape([g, rank, wide // g])
        o_gTi = o_BSw.reshape([B * S, g, wide // g]).transpose([1, 0, 2])
        out_gTR = paddle.matmul(o_gTi, w_gRi, transpose_y=True)
        return self.policy.act(out_gTR.transpose([1, 0, 2]).reshape([B, S, g * rank]))

    def _plain_core(
        self,
        x: paddle.Tensor,
        qc: paddle.Tensor,
        q: paddle.Tensor,
        kv: paddle.Tensor,
        rope: Rope,
        trace: Trace | None,
        name: str,
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Dense masks over [window keys; compressed entries]."""
        B, S = x.shape[:2]
        core, config = self.core_attention, self.config
        nothing = paddle.zeros([], dtype=self.policy.dtype)
        keys, mask = kv, plain.window_mask(S, config.window).unsqueeze(0)
        entries = core.compressor(x, rope) if core.compressor else None
        if entries is None:
            return plain.attend(q, keys, mask, core.attn_sink, config.softmax_scale)[0], nothing
        record(trace, f"{name}.compressed_kv", entries)
        N = entries.shape[1]
        seen = plain.entry_mask(S, N, self.ratio).unsqueeze(0).expand([B, S, N])
        if core.indexer:
            index = core.indexer.project(x, qc, rope)
            scores = index_scores(*index)
            topk = choose_entries(scores, 0, self.ratio, config.index_topk)
            seen = plain.selection_mask(topk, N)
            self._record_scores(trace, name, index)
            record(trace, f"{name}.indexer.topk", topk)
        keys = paddle.concat([keys, entries], axis=1)
        mask = paddle.concat([mask.expand([B, S, S]), seen], axis=-1)
        o, a = plain.attend(q, keys, mask, core.attn_sink, config.softmax_scale)
        if not core.indexer or not self.losses.indexer_loss_coeff:
            return o, nothing
        if self.losses.indexer_sparse_loss:
            loss = indexer_loss(a[..., S:].sum(axis=2), scores, seen)
        else:
            loss = self._dense_indexer_loss(q.detach() * config.softmax_scale, kv.detach(), entries.detach(), scores)
        return o, self.losses.indexer_loss_coeff * loss

    def _fast_core(
        self,
        x: paddle.Tensor,
        qc: paddle.Tensor,
        q: paddle.Tensor,
        kv: paddle.Tensor,
        rope: Rope,
        trace: Trace | None,
        name: str,
    ) -> tuple[paddle.Tensor, paddle.Tensor]:
        """Query blocks over their window, the chosen entries and the sink."""
        core, config, coeff = self.core_attention, self.config, self.losses.indexer_loss_coeff
        nothing = paddle.zeros([], dtype=self.policy.dtype)
        q = q * config.softmax_scale
        entries = core.compressor(x, rope) if core.compressor else None
        if entries is None:
            return BlockAttention.apply(q, kv, None, core.attn_sink, Sight(config.window))[0], nothing
        record(trace, f"{name}.compressed_kv", entries)
        if not core.indexer:
            return BlockAttention.apply(q, kv, entries, core.attn_sink, Sight(config.window, self.ratio))[0], nothing
        with paddle.set_grad_enabled(bool(coeff) and paddle.is_grad_enabled()):
            index = core.indexer.project(x, qc, rope)
        topk = choose_by_blocks(*index, self.ratio, config.index_topk)
        record(trace, f"{name}.indexer.topk", topk)
        self._record_scores(trace, name, index)
        sparse = self.losses.indexer_sparse_loss
        sight = Sight(config.window, self.ratio, topk, teach=bool(coeff) and sparse)
        o, teacher = BlockAttention.apply(q, kv, entries, core.attn_sink, sight)
        if not coeff:
            return o, nothing
        if not sparse:
            topk = all_visible(0, q.shape[1], self.ratio, entries.shape[1], q.shape[0])
            with paddle.no_grad():
                sight = Sight(config.window, self.ratio, topk, teach=True)
                teacher = BlockAttention.apply(q, kv, entries, core.attn_sink, sight)[1]
        return o, coeff * IndexerLoss.apply(*index, teacher, topk)

    def _record_scores(self, trace: Trace | None, name: str, index: Projections) -> None:
        """Keep all scores [B, S, N], -∞ where an entry is not visible; computed for a trace only."""
        if trace is not None:
            scores = index_scores(*index)
            visible = plain.entry_mask(scores.shape[1], scores.shape[2], self.ratio)
            record(
                trace, f"{name}.indexer.scores", paddle.where(visible, scores, paddle.full_like(scores, -float("inf")))
            )

    def _dense_indexer_loss(
        self, q: paddle.Tensor, kv: paddle.Tensor, entries: paddle.Tensor, scores: paddle.Tensor
    ) -> paddle.Tensor:
        """Loss over all visible entries, not the chosen ones; q is already scaled."""
        B, S, N = scores.shape
        visible = plain.entry_mask(S, N, self.ratio).unsqueeze(0).expand([B, S, N])
        mask = paddle.concat(
            [plain.window_mask(S, self.config.window).unsqueeze(0).expand([B, S, S]), visible], axis=-1
        )
        sink = self.core_attention.attn_sink.detach()
        a = plain.attend(q, paddle.concat([kv, entries], axis=1), mask, sink, 1.0)[1]
        return indexer_loss(a[..., S:].sum(axis=2), scores, visible)
