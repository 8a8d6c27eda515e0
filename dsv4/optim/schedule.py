"""Learning-rate schedules of Megatron's parameter scheduler. Pure functions of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dsv4.errors import UsageError

SCHEDULES = ("constant", "linear", "cosine", "wsd")
WSD_STYLES = ("cosine", "linear", "exponential", "minus_sqrt")


def _wsd_coefficient(style: str, ratio: float) -> float:
    """Return what is left of (max - min) after `ratio` of the tail."""
    if style == "cosine":
        return 0.5 * (math.cos(math.pi * ratio) + 1.0)
    if style == "linear":
        return 1.0 - ratio
    if style == "exponential":
        return 2.0 * math.pow(0.5, ratio) - 1.0
    return 1.0 - math.sqrt(ratio)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Learning rate by step; the first update uses step 0, so with a warm-up it has `initial` (section 10.5)."""

    kind: str
    peak: float
    initial: float = 0.0
    minimum: float = 0.0
    warmup: int = 0
    length: int = 0  # steps after which linear, cosine and wsd stay at `minimum`
    tail: int = 0  # of wsd
    tail_style: str = "cosine"

    def __post_init__(self) -> None:
        if self.kind not in SCHEDULES:
            raise UsageError(f"lr_schedule: no schedule {self.kind!r}", f"write one of {', '.join(SCHEDULES)}")
        if self.tail_style not in WSD_STYLES:
            raise UsageError(f"wsd_decay_style: no style {self.tail_style!r}", f"write one of {', '.join(WSD_STYLES)}")
        if self.kind != "constant" and self.length < 1:
            raise UsageError(f"lr_decay_steps is {self.length}", f"{self.kind} needs at least 1 step")
        if self.kind in ("linear", "cosine") and self.warmup >= self.length:
            raise UsageError(
                f"warmup_steps {self.warmup} leaves no step of lr_decay_steps {self.length}",
                "write fewer warmup_steps or more lr_decay_steps",
            )
        if self.kind == "wsd" and not 1 <= self.tail <= self.length:
            raise UsageError(
                f"wsd_decay_steps is {self.tail}", f"write 1 to {self.length}: the tail ends at lr_decay_steps"
            )

    def lr(self, step: int) -> float:
        """Learning rate of the update number `step`, counted from 0."""
        if self.warmup > 0 and step <= self.warmup:
            return self.initial + (self.peak - self.initial) * step / self.warmup
        if self.kind == "constant":
            return self.peak
        if step > self.length:
            return self.minimum
        if self.kind == "wsd":
            start = self.length - self.tail
            left = 1.0 if step <= start else _wsd_coefficient(self.tail_style, (step - start) / self.tail)
        else:
            ratio = (step - self.warmup) / (self.length - self.warmup)
            left = 1.0 - ratio if self.kind == "linear" else 0.5 * (math.cos(math.pi * ratio) + 1.0)
        return self.minimum + left * (self.peak - self.minimum)
