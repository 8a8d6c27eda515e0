"""The training loop of one rank: setup, micro-batches, step. What is logged and saved is decided by the caller."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import paddle

from dsv4 import guard
from dsv4.align.record import Row
from dsv4.data.batch import Batch, Source, check_ids
from dsv4.errors import DivergedError
from dsv4.model import DeepseekV4
from dsv4.model.losses import ModelOutput
from dsv4.model.packing import Packing
from dsv4.model.trace import Trace
from dsv4.optim.build import build_optimizer
from dsv4.optim.clip import clip_, squared_norm
from dsv4.run_config import RunConfig
from dsv4.weights import load_megatron, megatron_state


class Observer(Protocol):
    """Sees every tensor of a step in the order in which it comes to be; used by bisect and by dumps."""

    def see(self, stage: str, name: str, tensor: paddle.Tensor) -> None:
        """Take note of one tensor. `stage` is such as `weights`, `micro 0 activation`, `optimizer`."""


@dataclass(frozen=True)
class StepResult:
    """What one optimizer step did."""

    step: int  # from 1
    rows: tuple[Row, ...]  # one a micro-batch
    lr: float
    grad_norm: float  # before clipping
    clip_factor: float
    indexer_loss: float  # coefficient times loss, over layers, mean of the micro-batches
    balance_loss: float
    tokens: int
    seconds: float

    @property
    def loss(self) -> float:
        """Mean main loss of the micro-batches."""
        return sum(row.main for row in self.rows) / len(self.rows)

    @property
    def mtp_loss(self) -> float | None:
        """Mean MTP loss of the micro-batches."""
        values = [row.mtp for row in self.rows if row.mtp is not None]
        return sum(values) / len(values) if values else None


@dataclass(frozen=True)
class Evaluation:
    """Losses over the evaluation data, each the mean of its micro-batches."""

    step: int
    loss: float
    mtp_loss: float | None


class Trainer:
    """Model, optimizer and data of one run, moved forward one step at a time."""

    def __init__(self, config: RunConfig, source: Source, *, init: Path | None = None) -> None:
        self.config, self.source = config, source
        train = config.train
        self.model = DeepseekV4(
            config.model, train.losses(), train.dtype, train.compute_path, init_std=train.init_std, seed=train.seed
        )
        if init is not None:
            load_megatron(self.model, init)
        self.parameters = dict(self.model.named_parameters())
        self.optimizer = build_optimizer(self.parameters, config)
        self._schedule = train.schedule()
        self.step = 0  # finished steps
        self.observer: Observer | None = None

    # -- one step ------------------------------------------------------------------------------------------------

    def train_step(self) -> StepResult:
        """Accumulate the micro-batches of the next step and update once (order of section 10.6)."""
        started = time.perf_counter()
        paddle.seed(self.config.train.seed + self.step)  # randomness is a function of the step, so a resume has it too
        step, lr = self.step + 1, self._schedule.lr(self.step)
        self._show("weights", megatron_state(self.model).items())
        self._clear_gradients()
        outputs = [self._micro_batch(step, micro) for micro in range(self.config.train.accumulate)]
        rows = tuple(row for row, _, _, _ in outputs)
        self._update_expert_bias([counts for _, counts, _, _ in outputs])
        gradients = self.gradients()
        norm = math.sqrt(squared_norm(gradients.values()))
        if not math.isfinite(norm):
            raise self._diagnose_gradients(step)
        factor = clip_(gradients.values(), norm, self.config.train.clip_grad)
        self._show("clipped gradient", gradients.items())
        self.optimizer.step(gradients, lr)
        self._show("optimizer", self.optimizer.state_dict().items())
        self._show("updated weights", megatron_state(self.model).items())
        self.step = step
        micros = len(rows)
        return StepResult(
            step, rows, lr, norm, factor,
            indexer_loss=sum(indexer for _, _, indexer, _ in outputs) / micros,
            balance_loss=sum(balance for _, _, _, balance in outputs) / micros,
            tokens=micros * self.config.train.micro_batch * self.config.train.seq_len,
            seconds=time.perf_counter() - started,
        )  # fmt: skip

    def _micro_batch(self, step: int, micro: int) -> tuple[Row, dict[str, paddle.Tensor], float, float]:
        """Forward and backward of one micro-batch; gradients add up in the parameters."""
        train = self.config.train
        trace: Trace | None = {} if self.observer else None
        out = self._forward(self._batch(step, micro), trace)
        row = loss_row(step, micro, out)
        if not all(math.isfinite(v) for v in (row.main, row.mtp) if v is not None):
            raise self._diagnose_forward(step, micro)
        # The loss is scaled by 1/A before backward, not the gradient after it (section 9).
        out.objective(train.accumulate, train.indexer_loss_accumulate).backward()
        if self.observer:
            self._show(f"micro {micro} activation", (trace or {}).items())
            self._show(f"micro {micro} loss", (("main", out.main_loss), *self._named_mtp(out)))
            self._show(f"micro {micro} accumulated gradient", reversed(self.gradients().items()))
        return row, out.expert_counts, float(sum(out.indexer_losses)), float(sum(out.balance_losses))

    def _forward(self, batch: Batch, trace: Trace | None = None) -> ModelOutput:
        mask = None if batch.mask_BS is None else paddle.to_tensor(batch.mask_BS.astype("int64"))
        tokens, labels = (paddle.to_tensor(ids.astype("int64")) for ids in (batch.tokens_BS, batch.labels_BS))
        packing = None if batch.documents_BS is None else Packing.of(batch.documents_BS)
        output: ModelOutput = self.model(tokens, labels, mask, trace, packing)
        return output

    def _batch(self, step: int, micro: int) -> Batch:
        batch = self.source.batch((step - 1) * self.config.train.accumulate + micro)
        check_ids(batch, self.config.model.vocab_size, f"step {step} micro {micro}")
        return batch

    @staticmethod
    def _named_mtp(out: ModelOutput) -> Iterator[tuple[str, paddle.Tensor]]:
        for k, loss in enumerate(out.mtp_losses):
            yield f"mtp{k}", loss

    @paddle.no_grad()
    def _update_expert_bias(self, counts: list[dict[str, paddle.Tensor]]) -> None:
        """Bias += rate · sign(mean count - count), from the counts of all micro-batches of the step (section 7)."""
        buffers = dict(self.model.named_buffers())
        for name in counts[0]:
            bias = buffers[name]
            total = sum((c[name] for c in counts[1:]), counts[0][name]).cast(bias.dtype)
            bias.add_((total.mean() - total).sign() * self.config.train.bias_update_rate)

    # -- gradients -----------------------------------------------------------------------------------------------

    def gradients(self) -> dict[str, paddle.Tensor]:
        """Accumulated gradients by parameter name; a parameter that took no part has none."""
        return {name: p.grad for name, p in self.parameters.items() if p.grad is not None}

    def _clear_gradients(self) -> None:
        for p in self.parameters.values():
            p.clear_gradient(set_to_zero=False)

    # -- evaluation ----------------------------------------------------------------------------------------------

    @paddle.no_grad()
    def evaluate(self, source: Source, batches: int) -> Evaluation:
        """Mean losses of the first micro-batches of a source, without touching gradients or biases."""
        rows = []
        for i in range(batches):
            batch = source.batch(i)
            check_ids(batch, self.config.model.vocab_size, f"evaluation micro-batch {i}")
            rows.append(loss_row(self.step, i, self._forward(batch)))
        mtp = [row.mtp for row in rows if row.mtp is not None]
        return Evaluation(self.step, sum(r.main for r in rows) / len(rows), sum(mtp) / len(mtp) if mtp else None)

    # -- when a value is not finite ------------------------------------------------------------------------------

    def _diagnose_forward(self, step: int, micro: int) -> DivergedError:
        """Repeat the forward pass with every activation recorded. Nothing was updated, so it fails alike."""
        trace: Trace = {}
        self._forward(self._batch(step, micro), trace)
        activations = [(name, t) for name, t in trace.items() if not name.endswith("indexer.scores")]
        return guard.stop(
            step, micro, "a loss", {"weight": megatron_state(self.model).items(), "activation": activations}
        )

    def _diagnose_gradients(self, step: int) -> DivergedError:
        """Repeat the micro-batches one by one to find the one whose backward pass broke."""
        self._clear_gradients()
        for micro in range(self.config.train.accumulate):
            self._micro_batch(step, micro)
            backward = list(reversed(self.gradients().items()))
            if guard.first_non_finite(backward):
                return guard.stop(step, micro, "a gradient", {"gradient": backward})
        return guard.stop(step, micro, "the gradient norm", {})

    def _show(self, stage: str, tensors: Iterable[tuple[str, paddle.Tensor]]) -> None:
        if self.observer:
            for name, tensor in tensors:
                self.observer.see(stage, name, tensor)


def loss_row(step: int, micro: int, out: ModelOutput) -> Row:
    """Losses of a micro-batch as they are recorded; of several MTP modules their mean, which lambda multiplies."""
    mtp = [float(loss) for loss in out.mtp_losses]
    return Row(step, micro, float(out.main_loss), sum(mtp) / len(mtp) if mtp else None)
