"""The training loop of one rank among several."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import paddle

from dsv4 import guard
from dsv4.data.batch import Source, check_ids
from dsv4.data.replay import Replay
from dsv4.model import DeepseekV4
from dsv4.model.part import ModelPart
from dsv4.optim.build import build_optimizer
from dsv4.optim.clip import clip_
from dsv4.parallel.data import LocalBatch, share_of
from dsv4.parallel.dispatch import ExchangeDispatcher
from dsv4.parallel.groups import Groups
from dsv4.parallel.layout import Place, check_compute_path, make_share
from dsv4.parallel.norm import NormParts, gather_parts, is_expert
from dsv4.parallel.pipeline import Schedule, forward_only
from dsv4.parallel.records import RankRow, merge
from dsv4.parallel.reduce import Bucket, assign_owners, ordered_sum
from dsv4.parallel.segment import cut
from dsv4.parallel.stage import StagePass, StepWork
from dsv4.run_config import RunConfig
from dsv4.trainer import Evaluation, StepResult, Trainer, loss_row
from dsv4.weights import megatron_state
from dsv4.weights.files import read_arrays, set_weights
from dsv4.weights.names import Arrays


def part_of(config: RunConfig, place: Place) -> ModelPart:
    """Layers and experts that a rank holds."""
    layers = cut(config.model, place.layout.pipeline, config.parallel.seg_method)[place.stage]
    per = config.model.num_experts // place.layout.expert
    mtp = config.model.mtp_layers > 0
    return ModelPart(
        layers,
        range(place.expert * per, (place.expert + 1) * per),
        first=place.first,
        last=place.last,
        embedding=place.first or (place.last and mtp),
    )


@dataclass(frozen=True)
class RankStep:
    """What a step was on this rank: the merged result, this rank's own rows, and the parts of the norm."""

    result: StepResult
    rows: tuple[RankRow, ...]
    parts: NormParts


class ParallelTrainer(Trainer):
    """This rank's part of model, optimizer and data."""

    def __init__(
        self, config: RunConfig, source: Source, place: Place, groups: Groups, *, init: Path | None = None
    ) -> None:
        train = config.train
        check_compute_path(train.compute_path, place.layout)
        self.config, self.source, self.place, self.groups = config, source, place, groups
        self.share = make_share(config.parallel, place, train.accumulate, train.micro_batch)
        self.part = part_of(config, place)
        self.model = DeepseekV4(
            config.model, train.losses(), train.dtype, train.compute_path,
            init_std=train.init_std, seed=train.seed, part=self.part,
        )  # fmt: skip
        if place.layout.expert > 1:
            for layer in self.model.sublayers():
                if hasattr(layer, "dispatcher"):
                    layer.dispatcher = ExchangeDispatcher(config.model.num_experts, groups.expert)
        if init is not None:
            self.take_weights(read_arrays(init), str(init))
        self.parameters = dict(self.model.named_parameters())
        self.buckets = self._make_buckets()
        self.sharded = config.parallel.sharding == 1
        owned = {name: self.parameters[name] for bucket in self.buckets for name in bucket.owned()}
        held = {name: p for name, p in self.parameters.items() if not self.sharded or name in owned}
        self.optimizer = build_optimizer(held, config)
        self._schedule = train.schedule()
        self._pipeline = Schedule(place, groups)
        self.step = 0
        self.observer = None
        self.last_step: RankStep | None = None

    def _make_buckets(self) -> tuple[Bucket, Bucket]:
        """Dense parameters over the ranks of the stage, experts over those that hold the same ones."""
        dense = {n: p for n, p in self.parameters.items() if not is_expert(n)}
        experts = {n: p for n, p in self.parameters.items() if is_expert(n)}
        stage, replica = self.groups.stage, self.groups.replica
        return (
            Bucket(dense, assign_owners(dense, stage.size), stage),
            Bucket(experts, assign_owners(experts, replica.size), replica),
        )

    def take_weights(self, arrays: Arrays, where: str) -> None:
        """Set this rank's weights from arrays of the whole model."""
        own = megatron_state(self.model)
        set_weights(self.model, {n: a for n, a in arrays.items() if n in own}, where)

    def answers_for(self) -> list[str]:
        """Parameters that this rank, and no other, counts in the norm and writes to checkpoints."""
        copied = set() if self.part.first else {n for n in self.parameters if n.startswith("embedding.")}
        return [n for bucket in self.buckets for n in bucket.owned() if n not in copied]

    # -- one step ------------------------------------------------------------------------------------------------

    def train_step(self) -> StepResult:
        """Do forward and backward of this rank's share, sum gradients over ranks, clip, update."""
        started = time.perf_counter()
        paddle.seed(self.config.train.seed + self.step)
        step, lr = self.step + 1, self._schedule.lr(self.step)
        self._clear_gradients()
        work = StepWork(self.model, self.config.train, self.share, self.local_batches(step), step)
        self._pipeline.run(work, len(work.batches))
        self._move_expert_biases(work.counts)
        gradients = self._reduced_gradients()
        parts = gather_parts(gradients, self.answers_for(), sharded=self.sharded, world=self.groups.world)
        if not math.isfinite(parts.norm):
            raise guard.stop(step, 0, "the gradient norm", {"gradient": gradients.items()})
        factor = clip_(gradients.values(), parts.norm, self.config.train.clip_grad)
        self.optimizer.step(gradients, lr)
        self._spread_parameters()
        self.step = step
        merged = merge(step, work.losses, self.share, self.place.layout, self.groups.world)
        train = self.config.train
        tokens = len(merged.rows) * train.micro_batch * train.seq_len
        result = StepResult(
            step, merged.rows, lr, parts.norm, factor, merged.indexer_loss, merged.balance_loss, tokens,
            seconds=time.perf_counter() - started,
        )  # fmt: skip
        self.last_step = RankStep(result, merged.of_rank(self.place.rank), parts)
        return result

    def local_batches(self, step: int) -> list[LocalBatch]:
        """Load this rank's micro-batches of a step."""
        accumulate, batches = self.config.train.accumulate, []
        for j, micro in enumerate(self.share.local_micros(accumulate)):
            index = self.source_index(step, j, micro)
            whole = self.source.batch(index)
            check_ids(whole, self.config.model.vocab_size, f"step {step} micro {micro}")
            batches.append(share_of(whole, micro, self.share, self.config.model.mtp_layers))
        return batches

    def source_index(self, step: int, local: int, micro: int) -> int:
        """Find a micro-batch in the source. Replayed arrays of a rank's own are numbered for that rank alone."""
        if self.share.own and isinstance(self.source, Replay):
            return (step - 1) * self.config.train.accumulate + local
        return (step - 1) * self.share.micros_of_step(self.config.train.accumulate) + micro

    @paddle.no_grad()
    def _move_expert_biases(self, counts: Sequence[dict[str, paddle.Tensor]]) -> None:
        """Move the biases by the counts of all ranks that share the layers, alike on each."""
        names = sorted(counts[0])
        if not names:
            return
        local = paddle.stack([sum((c[n] for c in counts[1:]), counts[0][n]) for n in names])
        total = ordered_sum(local, self.groups.stage)
        self._update_expert_bias([{name: total[i] for i, name in enumerate(names)}])

    def _reduced_gradients(self) -> dict[str, paddle.Tensor]:
        """Sum over ranks: what this rank owns when sharded, else of all."""
        local = self.gradients()
        for name in [n for n in self.parameters if n.startswith("embedding.")]:
            if self.groups.embedding.size > 1:  # first and last stage each have a part of it
                own = local.get(name, paddle.zeros_like(self.parameters[name]))
                local[name] = ordered_sum(own, self.groups.embedding)
        reduced: dict[str, paddle.Tensor] = {}
        for bucket in self.buckets:
            owned = bucket.reduce(local)
            reduced |= owned if self.sharded else bucket.spread(owned)
        return reduced

    @paddle.no_grad()
    def _spread_parameters(self) -> None:
        """Owners have updated their parameters: everyone takes them."""
        if not self.sharded:
            return
        for bucket in self.buckets:
            for name, value in bucket.spread({n: self.parameters[n] for n in bucket.owned()}).items():
                if bucket.owners[name] != bucket.group.rank:
                    paddle.assign(value, self.parameters[name])

    # -- evaluation ----------------------------------------------------------------------------------------------

    @paddle.no_grad()
    def evaluate(self, source: Source, batches: int) -> Evaluation:
        """Mean losses of the first micro-batches of a source; every rank computes all of them."""
        losses = []
        for i in range(batches):
            batch = source.batch(i)
            check_ids(batch, self.config.model.vocab_size, f"evaluation micro-batch {i}")
            stage = StagePass(self.model, batch)
            forward_only(self.place, self.groups, stage.streams(), stage.forward)
            if stage.output is not None:
                row = loss_row(self.step, i, stage.output)
                losses.append([row.main, math.nan if row.mtp is None else row.mtp])
        own = paddle.to_tensor(losses or [[0.0, 0.0]] * batches, dtype="float64")
        # The last rank is of the last stage.
        main, mtp = self.groups.world.all_gather(own)[-1].mean(axis=0).tolist()
        return Evaluation(self.step, main, None if math.isnan(mtp) else mtp)
