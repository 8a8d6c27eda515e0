"""A run that is trained while it is compared, and faults that can be planted in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import paddle

from dsv4.align.events import Collector, Event
from dsv4.errors import UsageError
from dsv4.trainer import Trainer
from dsv4.weights import megatron_state


@dataclass(frozen=True)
class Plant:
    """A fault put into a run on purpose, to see that it is found. Applied before the step it is for."""

    step: int
    apply: Callable[[Trainer], None]


class Live:
    """A trainer seen as a side of a comparison."""

    def __init__(self, label: str, trainer: Trainer, plants: list[Plant] | None = None) -> None:
        self.label = label
        self._trainer, self._plants = trainer, plants or []
        self._collector = Collector()
        trainer.observer = self._collector

    def events(self, step: int) -> list[Event] | None:
        """Train up to `step` and return what that step did."""
        if step > self._trainer.config.train.steps:
            return None
        while self._trainer.step < step:
            self._collector.take()
            for plant in self._plants:
                if plant.step == self._trainer.step + 1:
                    plant.apply(self._trainer)
            self._trainer.train_step()
        return self._collector.take()


def parse_plant(text: str) -> Plant:
    """Read `weight:STEP:NAME:INDEX:ULPS` or `rope:LAYER:FACTOR`.

    The first moves one element (flat index) of a weight by that many ulps before the step; the second multiplies the
    rotary base of one decoder layer from the start. A wrong constant needs no plant: set it on one side.
    """
    kind, *parts = text.split(":")
    try:
        if kind == "weight":
            step, name, index, ulps = int(parts[0]), parts[1], int(parts[2]), int(parts[3])
            return Plant(step, lambda t: nudge(t, name, index, ulps))
        if kind == "rope":
            layer, factor = int(parts[0]), float(parts[1])
            return Plant(1, lambda t: bend_rope(t, layer, factor))
    except (IndexError, ValueError):
        pass
    raise UsageError(f"--plant-b {text}: not understood", "write weight:7:NAME:0:1 or rope:1:1.001")


def nudge(trainer: Trainer, name: str, index: int, ulps: int) -> None:
    """Move one element of a weight by `ulps` representable values."""
    state = megatron_state(trainer.model)
    if name not in state or not 0 <= index < state[name].size:
        raise UsageError(f"no element {index} of a weight {name}", "take a name of dsv4 train --print-optimizer")
    value = state[name].numpy().copy()
    flat = value.reshape(-1)
    for _ in range(abs(ulps)):
        flat[index] = np.nextafter(flat[index], np.asarray(np.inf if ulps > 0 else -np.inf, flat.dtype))
    state[name].set_value(paddle.to_tensor(value))


def bend_rope(trainer: Trainer, layer: int, factor: float) -> None:
    """Multiply the rotary base of one decoder layer, whichever of the two it uses."""
    config = trainer.config.model
    if not 0 <= layer < config.num_layers:
        raise UsageError(f"no decoder layer {layer}", f"write 0 to {config.num_layers - 1}")
    attention = trainer.model.decoder.layers[layer].self_attention
    attention.config = config.model_copy(
        update={
            "rope_theta": config.rope_theta * factor,
            "compress_rope_theta": config.compress_rope_theta * factor,
        }
    )
