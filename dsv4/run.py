"""A training run from configuration to files: setup, steps, log, save."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paddle

from dsv4 import checkpoint
from dsv4.align.events import Collector, write_dump
from dsv4.align.record import meta_path
from dsv4.align.writer import RecordWriter
from dsv4.data.batch import Source
from dsv4.data.replay import Replay
from dsv4.data.sources import open_source
from dsv4.data.tokens import TokenTensors
from dsv4.errors import UsageError
from dsv4.identity import head_lines, run_identity, write_meta
from dsv4.numerics import env
from dsv4.run_config import RunConfig
from dsv4.runlog import RunLog
from dsv4.stop import EXIT_CODE, StopRequest
from dsv4.trainer import StepResult, Trainer
from dsv4.weights import megatron_state
from dsv4.weights.files import set_weights


@dataclass(frozen=True)
class RunOptions:
    """What the command line adds to a configuration: files."""

    tokens: Path | None = None
    init: Path | None = None
    record: Path | None = None
    metrics: Path | None = None
    save: Path | None = None
    save_every: int | None = None
    keep: int | None = None
    background_save: bool = True
    resume: Path | None = None
    stamp: str | None = None
    dump: Path | None = None  # every tensor of the first `dump_steps` steps, for bisect
    dump_steps: int = 10


def run_training(config: RunConfig, options: RunOptions) -> Trainer:
    """Train to the last step and return the trainer as it ends.

    Raises UsageError for what the user can mend, DivergedError when a value is not finite.
    """
    source = named_source(options.tokens or config.data.path, config, "tokens", "--tokens or data.path")
    held_out = named_source(config.data.eval, config, "evaluation", "data.eval") if config.train.eval_every else None
    check_reach(source, config.train.steps * config.train.accumulate - 1)
    with ExitStack() as stack:
        writer = stack.enter_context(_checkpoint_writer(options)) if options.save else None
        trainer = Trainer(config, source, init=options.init)
        tokens = source.identity()
        restored = _restore(trainer, options, tokens)
        prefix = str(options.record or options.save or "none")
        identity = run_identity(config, init=options.init, tokens=tokens, prefix=prefix, stamp=options.stamp)
        record = None
        if options.record:
            record = RecordWriter(options.record, finished_steps=trainer.step, accumulate=config.train.accumulate)
            stack.callback(record.close)
            write_meta(meta_path(options.record), identity)
        log = stack.enter_context(RunLog(config.train.steps, done=trainer.step, metrics=options.metrics))
        for line in [*head_lines(identity), *restored]:
            log.line(line)
        _steps(trainer, _Outputs(options, log, record, writer, held_out, tokens))
    return trainer


@dataclass(frozen=True)
class _Outputs:
    """Where the results of steps go."""

    options: RunOptions
    log: RunLog
    record: RecordWriter | None
    writer: checkpoint.Writer | None
    held_out: Source | None
    tokens: dict[str, Any]  # identity of the data


def _steps(trainer: Trainer, to: _Outputs) -> None:
    """Step until the end, or until asked to stop; either way the last step is saved."""
    train = trainer.config.train
    with StopRequest() as stop:
        every, stopping = to.options.save_every, False
        while trainer.step < train.steps and not stopping:
            _one_step(trainer, to)
            stopping = stop.requested  # asked once, so that the step at which the run stops is a saved one
            if trainer.step == train.steps or stopping or (every and trainer.step % every == 0):
                _save(trainer, to)
    if trainer.step < train.steps:
        hint = f"; go on with --resume {to.options.save}" if to.options.save else ""
        to.log.line(f"stopped by SIGTERM after step {trainer.step}{hint}")
        raise SystemExit(EXIT_CODE)


def _one_step(trainer: Trainer, to: _Outputs) -> None:
    """Train, record, log, evaluate, in this order."""
    train = trainer.config.train
    result = _dumped_step(trainer, to.options) if to.options.dump else trainer.train_step()
    if to.record:
        to.record.write(result.rows)
    to.log.step(result)
    if to.held_out and (result.step % train.eval_every == 0 or result.step == train.steps):
        to.log.evaluation(trainer.evaluate(to.held_out, train.eval_batches))


def _save(trainer: Trainer, to: _Outputs) -> None:
    if to.writer:
        if to.record:
            to.record.sync()  # the checkpoint will rely on these rows
        save(trainer, to.writer, to.tokens)


def _dumped_step(trainer: Trainer, options: RunOptions) -> StepResult:
    """Train one step and, up to the last step to be dumped, write everything it did."""
    assert options.dump is not None
    if trainer.step >= options.dump_steps:
        trainer.observer = None
        return trainer.train_step()
    trainer.observer = collector = Collector()
    result = trainer.train_step()
    write_dump(options.dump, result.step, collector.take())
    return result


def check_reach(source: Source, last: int) -> None:
    """Ask for the last micro-batch now rather than in the middle of the night."""
    if isinstance(source, TokenTensors | Replay):
        source.batch(last)


def _checkpoint_writer(options: RunOptions) -> checkpoint.Writer:
    assert options.save is not None
    try:
        return checkpoint.Writer(options.save, keep=options.keep, background=options.background_save)
    except OSError as e:
        raise UsageError(f"{options.save}: {e.strerror}", "name a folder that can be written with --save") from None


def named_source(path: Path | str | None, config: RunConfig, what: str, how: str) -> Source:
    """Open what the user named, or say how to name it."""
    if path is None:
        raise UsageError(f"no {what} named", f"name a file with {how}")
    return open_source(Path(path), config)


# -- checkpoints -----------------------------------------------------------------------------------------------------


def save(trainer: Trainer, writer: checkpoint.Writer, tokens: Mapping[str, Any]) -> None:
    """Hand copies of all tensors to the writer, with the place in the data and the seeds."""
    groups = {"model": arrays_of(megatron_state(trainer.model)), "optimizer": arrays_of(trainer.optimizer.state_dict())}
    writer.save(trainer.step, groups, run_state(trainer, tokens))


def run_state(trainer: Trainer, tokens: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values of a checkpoint: configuration, place in the data, environment, seeds."""
    train = trainer.config.train
    return {
        "config": trainer.config.as_dict(),
        "config_sha256": trainer.config.sha256,
        "optimizer_steps": trainer.optimizer.steps,
        "tokens": dict(tokens),
        "data_position": trainer.step * train.accumulate,  # micro-batches consumed
        "environment": env.describe(),
        "random": {"seed": train.seed, "scheme": "paddle.seed(seed + step) begins every step"},
    }


def arrays_of(tensors: Mapping[str, paddle.Tensor]) -> checkpoint.Arrays:
    """Copy tensors to the host."""
    return {name: t.numpy().copy() for name, t in tensors.items()}


def _restore(trainer: Trainer, options: RunOptions, tokens: Mapping[str, Any]) -> list[str]:
    """Take over the newest checkpoint of `--resume`, whole and unaltered, or refuse it by name.

    Returns what to tell the user, also when the data or the numerics environment are not what they were.
    """
    if options.resume is None:
        return []
    path = checkpoint.latest(options.resume)
    if path is None:
        if options.save == options.resume:
            # Killed before its first save: the run begins again.
            return [f"{options.save}: no checkpoint yet, beginning at step 1"]
        raise UsageError(f"{options.resume}: no checkpoint in it", "name the folder that --save wrote")
    loaded = checkpoint.read(path)
    check_config(trainer.config, loaded)
    set_weights(trainer.model, loaded.groups["model"], str(path / "model.safetensors"))
    states = {name: paddle.to_tensor(a) for name, a in loaded.groups["optimizer"].items()}
    trainer.optimizer.load_state_dict(states, loaded.state["optimizer_steps"])
    trainer.step = loaded.step
    return [f"resumed from {path} at step {trainer.step}", *changes_since(loaded, tokens)]


def changes_since(loaded: checkpoint.Checkpoint, tokens: Mapping[str, Any]) -> list[str]:
    """Tell what is not as it was when a checkpoint was saved: the environment, the data."""
    before, now = loaded.state["environment"], env.describe()
    changed = [
        f"resumed under another {name}: was {before.get(name, 'unset')}, is {now.get(name, 'unset')}; bits may differ"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
    if loaded.state["tokens"].get("sha256") != tokens.get("sha256"):
        changed.append(f"resumed with other data: was {loaded.state['tokens'].get('path')}, is {tokens.get('path')}")
    return changed


# May change from one part of a run to the next without making it another run.
_FREE = frozenset({"steps", "eval_every", "eval_batches"})


def check_config(config: RunConfig, loaded: checkpoint.Checkpoint) -> None:
    """Refuse a checkpoint of another model or another training; the layout over ranks is free."""
    keys = ("config", "optimizer_steps", "tokens", "environment")
    lacking = [g for g in ("model", "optimizer") if g not in loaded.groups] + [k for k in keys if k not in loaded.state]
    if lacking:
        raise UsageError(f"{loaded.path}: holds no {lacking[0]}", "resume from what dsv4 train --save wrote")
    saved: dict[str, Any] = loaded.state["config"]
    now = config.as_dict()
    for section in ("model", "train"):
        for key, value in now[section].items():
            before = saved.get(section, {}).get(key)
            if key not in _FREE and before != value:
                raise UsageError(
                    f"{loaded.path}: {section}.{key} was {before!r}, the configuration says {value!r}",
                    "resume with the configuration that saved it, or start from its model.safetensors with --init",
                )
