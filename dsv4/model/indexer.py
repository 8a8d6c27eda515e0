"""Lightning indexer: which compressed entries a CSA query sees, and the loss that trains it (6.3, 6.4)."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import nn

from dsv4.config import ModelConfig
from dsv4.model.compressor import Compressor, visible_entries
from dsv4.model.linear import Linear
from dsv4.model.rope import Rope
from dsv4.numerics.policy import DtypePolicy

Projections = tuple[paddle.Tensor, paddle.Tensor, paddle.Tensor]
"""q^I [B, S, H_I, d_I], k^I [B, N, d_I] and v·d_I^(-1/2) [B, S, H_I]."""


class Indexer(nn.Layer):
    """Scores score(t, w) = Σ_h v_th · d_I^(-1/2) · ReLU(q^I_th · k^I_w), with v = (x W_vᵀ)·H_I^(-1/2).

    q^I from the normed low-rank query, rotated, without an RMSNorm; k^I from an own compressor of width d_I.
    The Walsh-Hadamard rotation of q^I and k^I in Megatron cancels in the product and is left out.
    x and q_c come detached: only the indexer's own loss trains it, and that loss trains nothing else.
    Scores in the island dtype. Source: MG `csa.py` `CSAIndexer`; HF `DeepseekV4Indexer`.
    """

    def __init__(self, config: ModelConfig, ratio: int, policy: DtypePolicy) -> None:
        super().__init__()
        self.config, self.ratio, self.policy = config, ratio, policy
        heads, dim = config.index_heads, config.index_head_dim
        self.linear_wq_b = Linear(config.q_lora_rank, heads * dim, policy)
        self.linear_weights_proj = Linear(config.hidden_size, heads, policy)
        self.compressor = Compressor(config, dim, ratio, policy)

    def project(self, x_BSD: paddle.Tensor, qc_BSq: paddle.Tensor, rope: Rope) -> Projections:
        """Return q^I [B, S, H_I, d_I], k^I [B, N, d_I], and v·d_I^(-1/2) [B, S, H_I]."""
        heads, dim = self.config.index_heads, self.config.index_head_dim
        x, qc = x_BSD.detach(), qc_BSq.detach()
        q = self.linear_wq_b(qc).reshape([*qc.shape[:2], heads, dim])
        q = self.policy.act(rope.rotate(q))
        v = self.linear_weights_proj(x) * (heads**-0.5 * dim**-0.5)
        return q, self.compressor(x, rope), v


def index_scores(q_BSHd: paddle.Tensor, k_BNd: paddle.Tensor, v_BSH: paddle.Tensor) -> paddle.Tensor:
    """Unmasked scores [B, S, N] against all entries."""
    dots = paddle.matmul(q_BSHd, k_BNd.unsqueeze(1), transpose_y=True)
    return (v_BSH.unsqueeze(-1) * F.relu(dots)).sum(axis=2)


def choose_entries(scores_BSN: paddle.Tensor, first: int, ratio: int, topk: int) -> paddle.Tensor:
    """Top-k of the visible entries of queries first, first+1, …: indices [B, S, K], -1 where fewer are visible."""
    S, N = scores_BSN.shape[1:]
    count = visible_entries(paddle.arange(first, first + S), ratio)
    hidden = paddle.arange(N).unsqueeze(0) >= count.unsqueeze(-1)
    masked = paddle.where(hidden, paddle.full_like(scores_BSN, -float("inf")), scores_BSN.detach())
    picked = paddle.topk(masked, min(topk, N), axis=-1)[1]
    return paddle.where(picked < count.reshape([1, S, 1]), picked, paddle.full_like(picked, -1))


def indexer_loss(teacher_BSK: paddle.Tensor, scores_BSK: paddle.Tensor, member_BSK: paddle.Tensor) -> paddle.Tensor:
    """Mean over all B·S rows of KL(teacher ‖ softmax of the scores), over the member entries of each row.

    teacher: attention probabilities of the entries (softmax with window and sink in the denominator), summed over
    heads; normalised here. Rows without a member count with 0. Source: MG `dsa.py` `compute_dsa_indexer_loss`.
    """
    p = paddle.where(member_BSK, teacher_BSK.detach(), paddle.zeros_like(teacher_BSK))
    p = p / p.sum(axis=-1, keepdim=True).clip(min=float(paddle.finfo(paddle.float32).tiny))
    some = member_BSK.any(axis=-1, keepdim=True)
    # A row without members would be a softmax over nothing: give it finite scores, its teacher is 0 anyway.
    lowest = paddle.full_like(scores_BSK, -float("inf"))
    student = F.log_softmax(paddle.where(member_BSK | ~some, scores_BSK, lowest), axis=-1)
    counted = p > 0
    one = paddle.ones_like(p)
    terms = p * (paddle.where(counted, p, one).log() - paddle.where(counted, student, paddle.zeros_like(p)))
    return terms.sum(axis=-1).mean()
