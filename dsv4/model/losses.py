"""Losses of one micro-batch and their sum for backward (section 9 of the specification)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import paddle
import paddle.nn.functional as F


def token_losses(logits_BSV: paddle.Tensor, labels_BS: paddle.Tensor) -> paddle.Tensor:
    """Cross-entropy per position [B, S], in the dtype of the logits (an island dtype)."""
    B, S, V = logits_BSV.shape
    flat = F.cross_entropy(logits_BSV.reshape([B * S, V]), labels_BS.reshape([B * S]), reduction="none")
    return flat.reshape([B, S])


def masked_mean(losses_BS: paddle.Tensor, mask_BS: paddle.Tensor) -> paddle.Tensor:
    """Σ mask·loss / Σ mask over the micro-batch; 0 if nothing counts."""
    mask = mask_BS.astype(losses_BS.dtype)
    return (losses_BS * mask).sum() / mask.sum().clip(min=1.0)


@dataclass
class ModelOutput:
    """What one micro-batch gives. Losses are scalars; `mtp_losses` are the unweighted means that are logged.

    `indexer_losses` and `balance_losses` hold coeff · loss by layer, MTP modules last, 0 where a layer has none.
    `expert_counts`: name of each score-routed layer's expert_bias → tokens per expert, for the bias update.
    """

    main_loss: paddle.Tensor
    mtp_losses: list[paddle.Tensor]
    indexer_losses: list[paddle.Tensor]
    balance_losses: list[paddle.Tensor]
    mtp_loss_weight: float
    expert_counts: dict[str, paddle.Tensor] = field(default_factory=dict)

    def objective(self, accumulate: int = 1, indexer_loss_accumulate: Literal["sum", "mean"] = "sum") -> paddle.Tensor:
        """Scalar whose gradient one micro-batch of `accumulate` adds.

        (L_main + λ·Σ L_mtp + Σ L_balance)/A + Σ L_indexer, λ = weight / number of MTP modules. Megatron does not
        divide the indexer loss for this attention variant ("sum"); "mean" divides it by A as the others.
        """
        total = self.main_loss
        for loss in self.mtp_losses:
            total = total + (self.mtp_loss_weight / len(self.mtp_losses)) * loss
        for loss in self.balance_losses:
            total = total + loss
        indexer = sum(self.indexer_losses[1:], self.indexer_losses[0])
        return total / accumulate + (indexer / accumulate if indexer_loss_accumulate == "mean" else indexer)
