"""Micro-batches on one pipeline stage: forward, objective, backward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import paddle

from dsv4 import guard
from dsv4.data.batch import Batch
from dsv4.model import DeepseekV4, ModelOutput
from dsv4.model.packing import Packing
from dsv4.parallel.data import LocalBatch
from dsv4.parallel.layout import Share
from dsv4.parallel.pipeline import InFlight
from dsv4.parallel.records import LocalLoss
from dsv4.run_config import TrainConfig
from dsv4.trainer import loss_row
from dsv4.weights import megatron_state


class StagePass:
    """Forward of one micro-batch through this stage."""

    def __init__(self, model: DeepseekV4, batch: Batch) -> None:
        self._model = model
        self.tokens = paddle.to_tensor(batch.tokens_BS.astype("int64"))
        self.labels = paddle.to_tensor(batch.labels_BS.astype("int64"))
        self.mask = None if batch.mask_BS is None else paddle.to_tensor(batch.mask_BS.astype("int64"))
        self.packing = None if batch.documents_BS is None else Packing.of(batch.documents_BS)
        self.output: ModelOutput | None = None  # with main loss 0 and no MTP losses before the last stage

    def streams(self) -> paddle.Tensor:
        """Return an empty tensor of what travels between stages."""
        config = self._model.config
        return paddle.empty([*self.tokens.shape, config.hc_mult, config.hidden_size], self._model.policy.dtype)

    def forward(self, X: paddle.Tensor | None) -> paddle.Tensor | None:
        """Streams for the next stage; the last returns None and has losses."""
        model = self._model
        X_in = model.embed(self.tokens) if X is None else X
        X_out, outs = model.decode(X_in, self.tokens, None, self.packing)
        if model.part.last:
            self.output = model.losses_of(X_out, outs, self.tokens, self.labels, self.mask, None, self.packing)
            return None
        zero = paddle.zeros([], X_out.dtype)
        self.output = ModelOutput(
            zero, [], [o.indexer_loss for o in outs], [o.balance_loss for o in outs], 0.0, model.expert_counts(outs)
        )
        return X_out


class StepWork:
    """A step's micro-batches on this stage, for the pipeline's schedule."""

    def __init__(
        self, model: DeepseekV4, train: TrainConfig, share: Share, batches: Sequence[LocalBatch], step: int
    ) -> None:
        self._model, self._train, self._share, self._step = model, train, share, step
        self.batches = batches
        self._flight = InFlight()
        self.losses: list[LocalLoss] = []
        self.counts: list[dict[str, paddle.Tensor]] = []

    def streams(self, micro: int) -> paddle.Tensor:
        """Shape of what travels."""
        return StagePass(self._model, self.batches[micro].batch).streams()

    def forward(self, micro: int, X: paddle.Tensor | None) -> paddle.Tensor | None:
        """Forward of one micro-batch; its objective is kept for backward."""
        local, train = self.batches[micro], self._train
        if X is not None:
            X.stop_gradient = False
        stage = StagePass(self._model, local.batch)
        X_out = stage.forward(X)
        out = stage.output
        assert out is not None
        self._note(local, out)
        objective = weighted(out, local.weights).objective(train.accumulate, train.indexer_loss_accumulate)
        self._flight.put(X, X_out, objective * self._share.weight)
        return None if X_out is None else X_out.detach()

    def backward(self, _micro: int, dX: paddle.Tensor | None) -> paddle.Tensor | None:
        """Backward of the oldest micro-batch in flight."""
        return self._flight.backward(dX)

    def _note(self, local: LocalBatch, out: ModelOutput) -> None:
        last = self._model.part.last
        row = loss_row(self._step, local.micro, out)
        if not all(math.isfinite(v) for v in (row.main, row.mtp) if v is not None):
            state = megatron_state(self._model).items()
            raise guard.stop(self._step, local.micro, "a loss", {"weight": state})
        self.counts.append(out.expert_counts)
        self.losses.append(
            LocalLoss(
                micro=local.micro,
                main=row.main if last else None,
                mtp=row.mtp,
                main_weight=local.weights[0],
                mtp_weight=sum(local.weights[1:]) / max(1, len(local.weights) - 1),
                indexer=float(sum(out.indexer_losses)),
                balance=float(sum(out.balance_losses)),
            )
        )


def weighted(out: ModelOutput, weights: Sequence[float]) -> ModelOutput:
    """Scale the losses over some rows so that the shares of a micro-batch average to it."""
    if all(w == 1.0 for w in weights):
        return out
    mtp = [loss * w for loss, w in zip(out.mtp_losses, weights[1:], strict=False)]
    return replace(out, main_loss=out.main_loss * weights[0], mtp_losses=mtp)
