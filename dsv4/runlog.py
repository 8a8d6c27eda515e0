"""What a run says while it runs: plain lines or a progress bar, and metrics as JSON lines."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from dsv4.errors import UsageError
from dsv4.trainer import Evaluation, StepResult


def step_line(result: StepResult, steps: int) -> str:
    """One line a step. `global_step:` and `loss:` are what loss baselines look for."""
    fields = [f"global_step: {result.step}/{steps}", f"loss: {result.loss:.8f}"]
    if result.mtp_loss is not None:
        fields.append(f"mtp_loss: {result.mtp_loss:.8f}")
    fields += [f"learning_rate: {result.lr:.6g}", f"grad_norm: {result.grad_norm:.6g}"]
    if result.clip_factor < 1:
        fields.append(f"clip: {result.clip_factor:.4g}")
    fields.append(f"tokens_per_second: {result.tokens / result.seconds:.0f}")
    return " ".join(fields)


def _short(result: StepResult) -> str:
    """Sum a step up in what fits beside a progress bar on 80 columns."""
    mtp = "" if result.mtp_loss is None else f" mtp {result.mtp_loss:.4f}"
    return f"loss {result.loss:.4f}{mtp} lr {result.lr:.3g} norm {result.grad_norm:.3g}"


def step_metrics(result: StepResult) -> dict[str, Any]:
    """One JSON line a step."""
    return {
        "step": result.step,
        "loss": result.loss,
        "mtp_loss": result.mtp_loss,
        "indexer_loss": result.indexer_loss,
        "balance_loss": result.balance_loss,
        "lr": result.lr,
        "grad_norm": result.grad_norm,
        "clip_factor": result.clip_factor,
        "tokens": result.tokens,
        "seconds": round(result.seconds, 4),
    }


class RunLog:
    """Context of one run's output: a rich progress bar on a terminal, plain lines anywhere else."""

    def __init__(self, steps: int, *, done: int, metrics: Path | None, stream: TextIO | None = None) -> None:
        self._steps, self._done = steps, done
        self._stream = stream or sys.stdout
        self._progress = _progress(self._stream) if self._stream.isatty() else None
        self._metrics = _open_metrics(metrics, done) if metrics else None

    def __enter__(self) -> Self:
        if self._progress:
            self._progress.start()
            self._task = self._progress.add_task("steps", total=self._steps, completed=self._done, last="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress:
            self._progress.stop()
        if self._metrics:
            self._metrics.close()

    def line(self, text: str) -> None:
        """Say something that is not a step."""
        if self._progress:
            self._progress.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self._stream, flush=True)

    def step(self, result: StepResult) -> None:
        """Report a finished step."""
        if self._progress:
            self._progress.update(self._task, completed=result.step, last=_short(result))
        else:
            print(step_line(result, self._steps), file=self._stream, flush=True)
        self._write(step_metrics(result))

    def evaluation(self, result: Evaluation) -> None:
        """Report an evaluation."""
        mtp = "" if result.mtp_loss is None else f" eval_mtp_loss: {result.mtp_loss:.8f}"
        self.line(f"eval_step: {result.step} eval_loss: {result.loss:.8f}{mtp}")
        self._write({"step": result.step, "eval_loss": result.loss, "eval_mtp_loss": result.mtp_loss})

    def _write(self, values: dict[str, Any]) -> None:
        if self._metrics:
            self._metrics.write(json.dumps(values) + "\n")
            self._metrics.flush()


def _progress(stream: TextIO) -> Progress:
    return Progress(
        BarColumn(bar_width=16),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[last]}", markup=False),
        console=Console(file=stream),
    )


def _open_metrics(path: Path, done: int) -> TextIO:
    """Keep the lines of finished steps and append after them."""
    kept: list[str] = []
    try:
        if done and path.exists():
            kept = [line for line in path.read_text().splitlines() if _step_of(line) <= done]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(line + "\n" for line in kept))
        return path.open("a")
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror}", "name a file that can be written") from None


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # cut by a kill
