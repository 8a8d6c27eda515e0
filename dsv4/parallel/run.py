"""A training run on several ranks, from configuration to files. Every rank calls it; rank 0 speaks."""

from __future__ import annotations

import faulthandler
import signal
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import paddle

from dsv4 import checkpoint
from dsv4.align.record import meta_path
from dsv4.align.writer import RecordWriter
from dsv4.data.batch import Source
from dsv4.errors import Dsv4Error, UsageError
from dsv4.identity import head_lines, run_identity, write_meta
from dsv4.parallel.checkpoint import RankCheckpoints
from dsv4.parallel.groups import Groups, Launched, Rendezvous, connect
from dsv4.parallel.launch import LOST_PEER
from dsv4.parallel.layout import Place, make_layout
from dsv4.parallel.records import RankWriter, cut_rank_records, rank_record
from dsv4.parallel.trainer import ParallelTrainer
from dsv4.run import (
    RunOptions,
    arrays_of,
    changes_since,
    check_config,
    check_reach,
    named_source,
    run_state,
)
from dsv4.run_config import RunConfig
from dsv4.runlog import RunLog
from dsv4.stop import EXIT_CODE, StopRequest
from dsv4.weights import megatron_state


class LostPeerError(Dsv4Error):
    """Another rank of the job is gone."""

    exit_code = LOST_PEER


class Job:
    """One rank's connections, which may serve several runs one after another."""

    def __init__(self, launched: Launched) -> None:
        self.launched = launched
        self.rendezvous = Rendezvous(launched)
        self._runs = 0

    def connect(self, place: Place) -> Groups:
        """Make the groups of a layout."""
        return connect(self.rendezvous, place)

    def token(self) -> str:
        """Give a word that all ranks of this run share and no other run has."""
        key, self._runs = f"dsv4/run/{self._runs}", self._runs + 1
        if self.launched.rank == 0:
            self.rendezvous.store.set(key, uuid.uuid4().hex[:12])
        return bytes(self.rendezvous.store.get(key)).decode()


def run_rank(config: RunConfig, options: RunOptions, job: Job | None = None) -> ParallelTrainer:
    """Train this rank's part to the last step.

    Raises what `run_training` raises, and LostPeerError when another rank is gone.
    """
    if options.dump is not None:
        raise UsageError("--dump works on one rank", "dump a run of one rank: it computes the same")
    launched = job.launched if job else Launched.from_environment()
    faulthandler.register(signal.SIGUSR1, all_threads=True)  # a launcher asks for the stacks of a rank that hangs
    layout = make_layout(config.parallel, launched.world, config.model.num_experts)
    own_job = job is None
    try:
        job = job or Job(launched)
        trainer = _run(config, options, job, layout.place(launched.rank))
        if own_job:
            job.rendezvous.leave()
    except RuntimeError as e:
        if lost := lost_peer(launched.rank, e):
            raise lost from None
        raise
    return trainer


def lost_peer(rank: int, error: RuntimeError) -> LostPeerError | None:
    """Tell a lost connection from a fault of this rank's own."""
    text = str(error)
    signs = ("gloo", "Connection reset", "Connection closed", "Broken pipe", "TCP", "NCCL")
    if not any(sign in text for sign in signs):
        return None
    first = next((line.strip() for line in text.splitlines() if any(sign in line for sign in signs)), "")
    return LostPeerError(f"rank {rank} lost a peer: {first}")


def _run(config: RunConfig, options: RunOptions, job: Job, place: Place) -> ParallelTrainer:
    if config.parallel.data_split == "own":
        config = replace(config, data=config.data.model_copy(update={"rank": place.share}))
    source = named_source(options.tokens or config.data.path, config, "tokens", "--tokens or data.path")
    held_out = named_source(config.data.eval, config, "evaluation", "data.eval") if config.train.eval_every else None
    groups = job.connect(place)
    with ExitStack() as stack:
        writer = _writer(options, place, job.token())
        if writer:
            stack.enter_context(writer)
        trainer = ParallelTrainer(config, source, place, groups, init=options.init)
        check_reach(source, trainer.source_index(config.train.steps, *_last_micro(trainer)))
        tokens = source.identity()
        restored = _restore(trainer, options, tokens)
        if place.rank == 0:
            _tidy(options, trainer)
        meet(groups)
        record, own_record = _records(config, options, trainer)
        for file in (record, own_record):
            if file:
                stack.callback(file.close)
        metrics = options.metrics if place.rank == 0 else None
        log = stack.enter_context(RunLog(config.train.steps, done=trainer.step, metrics=metrics))
        if place.rank == 0:
            for line in [*_identify(config, options, tokens), *restored]:
                log.line(line)
        log.line(_place_line(trainer))
        _steps(trainer, options, log, _Files(record, own_record, writer, held_out, tokens))
    return trainer


def _tidy(options: RunOptions, trainer: ParallelTrainer) -> None:
    """Remove what a killed job left, once, before any rank writes."""
    if options.save:
        checkpoint.clean(options.save)
    if options.record:
        cut_rank_records(options.record, trainer.step)


def _identify(config: RunConfig, options: RunOptions, tokens: dict[str, Any]) -> list[str]:
    prefix = str(options.record or options.save or "none")
    identity = run_identity(config, init=options.init, tokens=tokens, prefix=prefix, stamp=options.stamp)
    if options.record:
        write_meta(meta_path(options.record), identity)
    return head_lines(identity)


def _last_micro(trainer: ParallelTrainer) -> tuple[int, int]:
    micros = trainer.share.local_micros(trainer.config.train.accumulate)
    return len(micros) - 1, micros[-1]


def _place_line(trainer: ParallelTrainer) -> str:
    place, share, part = trainer.place, trainer.share, trainer.part
    layout = place.layout
    split = "own" if share.own else f"micros/{share.micros} rows/{share.rows} same/{share.same}"
    return (
        f"rank {place.rank} of {layout.world}: data_parallel={layout.data} expert_parallel={layout.expert} "
        f"pipeline_parallel={layout.pipeline} sharding={int(trainer.sharded)}; layers {part.layers.start}-"
        f"{part.layers.stop - 1}, experts {part.experts.start}-{part.experts.stop - 1}, data {split}"
    )


@dataclass(frozen=True)
class _Files:
    record: RecordWriter | None  # merged, on rank 0
    own_record: RankWriter | None
    writer: RankCheckpoints | None
    held_out: Source | None
    tokens: Mapping[str, Any]  # identity of the data


def _steps(trainer: ParallelTrainer, options: RunOptions, log: RunLog, to: _Files) -> None:
    """Step until the end, or until any rank is asked to stop; either way the last step is saved."""
    train, every = trainer.config.train, options.save_every
    with StopRequest() as stop:
        stopping = False
        while trainer.step < train.steps and not stopping:
            _one_step(trainer, log, to)
            stopping = _anyone(stop.requested, trainer.groups)
            if to.writer and (trainer.step == train.steps or stopping or (every and trainer.step % every == 0)):
                for file in (to.record, to.own_record):
                    if file:
                        file.sync()
                meet(trainer.groups)  # every rank's record is on disk before a checkpoint relies on it
                save(trainer, to.writer, to.tokens)
    if trainer.step < train.steps:
        log.line(f"stopped by SIGTERM after step {trainer.step}")
        raise SystemExit(EXIT_CODE)


def _one_step(trainer: ParallelTrainer, log: RunLog, to: _Files) -> None:
    train, chief = trainer.config.train, trainer.place.rank == 0
    result = trainer.train_step()
    assert trainer.last_step is not None
    if to.record:
        to.record.write(result.rows)
    if to.own_record:
        to.own_record.write(trainer.last_step.rows)
    if chief:
        log.step(result)
    else:
        log.line(f"rank {trainer.place.rank} finished step {result.step}/{train.steps}")
    if to.held_out and (result.step % train.eval_every == 0 or result.step == train.steps):
        evaluation = trainer.evaluate(to.held_out, train.eval_batches)
        if chief:
            log.evaluation(evaluation)


def meet(groups: Groups) -> None:
    """Return when every rank is here."""
    groups.world.all_gather(paddle.zeros([1]))


def _anyone(flag: bool, groups: Groups) -> bool:
    return any(bool(t) for t in groups.world.all_gather(paddle.to_tensor([float(flag)])))


def _records(
    config: RunConfig, options: RunOptions, trainer: ParallelTrainer
) -> tuple[RecordWriter | None, RankWriter | None]:
    if options.record is None:
        return None, None
    merged = None
    if trainer.place.rank == 0:
        per_step = trainer.share.micros_of_step(config.train.accumulate)
        merged = RecordWriter(options.record, finished_steps=trainer.step, accumulate=per_step)
    own = RankWriter(rank_record(options.record, trainer.place.rank)) if trainer.place.last else None
    return merged, own


def _writer(options: RunOptions, place: Place, token: str) -> RankCheckpoints | None:
    if options.save is None:
        return None
    try:
        return RankCheckpoints(
            options.save, rank=place.rank, world=place.layout.world, job=token, keep=options.keep,
            background=options.background_save,
        )  # fmt: skip
    except OSError as e:
        raise UsageError(f"{options.save}: {e.strerror}", "name a folder that can be written with --save") from None


def save(trainer: ParallelTrainer, writer: RankCheckpoints, tokens: Mapping[str, Any]) -> None:
    """Hand copies of the tensors that this rank answers for to its writer."""
    mine = set(trainer.answers_for())
    if trainer.place.share == 0:  # buffers are equal on all ranks of a stage
        mine |= {name for name, _ in trainer.model.named_buffers()}
    model = {n: t for n, t in megatron_state(trainer.model).items() if n in mine}
    states = {k: t for k, t in trainer.optimizer.state_dict().items() if k.rpartition("/")[0] in mine}
    writer.save(trainer.step, {"model": arrays_of(model), "optimizer": arrays_of(states)}, run_state(trainer, tokens))


def _restore(trainer: ParallelTrainer, options: RunOptions, tokens: Mapping[str, Any]) -> list[str]:
    """Take this rank's tensors out of the newest checkpoint, whatever layout wrote it."""
    if options.resume is None:
        return []
    path: Path | None = checkpoint.latest(options.resume)
    if path is None:
        if options.save == options.resume:
            return [f"{options.save}: no checkpoint yet, beginning at step 1"]
        raise UsageError(f"{options.resume}: no checkpoint in it", "name the folder that --save wrote")
    loaded = checkpoint.read(path)
    check_config(trainer.config, loaded)
    trainer.take_weights(loaded.groups["model"], str(path))
    wanted = trainer.optimizer.state_dict().keys()
    states = {k: paddle.to_tensor(a) for k, a in loaded.groups["optimizer"].items() if k in wanted}
    trainer.optimizer.load_state_dict(states, loaded.state["optimizer_steps"])
    trainer.step = loaded.step
    return [
        f"resumed from {path} at step {trainer.step}",
        *changes_since(loaded, tokens),
    ]
