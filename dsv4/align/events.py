"""What a run did, tensor by tensor, in order; kept in memory or in a dump folder."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from dsv4.align.bits import Array
from dsv4.errors import UsageError


@dataclass(frozen=True)
class Event:
    """One tensor at one moment of a step. `stage` is such as `weights` or `micro 0 activation`."""

    stage: str
    name: str
    value: Array


class Side(Protocol):
    """One of the two runs that are compared."""

    @property
    def label(self) -> str:
        """How the side is called in the report."""

    def events(self, step: int) -> list[Event] | None:
        """All tensors of a step, in order; None when the run has no such step. Steps are asked for in order."""


class Collector:
    """An observer of a trainer that keeps copies of what it sees."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def see(self, stage: str, name: str, tensor: Any) -> None:
        """Take a copy of one tensor."""
        self.events.append(Event(stage, name, np.array(tensor.numpy())))

    def take(self) -> list[Event]:
        """Return what was collected and begin anew."""
        events, self.events = self.events, []
        return events


_FILE = "step-{:08d}.safetensors"
_KEY = re.compile(r"(\d{6})\|([^|]+)\|(.+)", re.DOTALL)


def write_dump(folder: Path, step: int, events: list[Event]) -> None:
    """Write the events of a step as one safetensors file; keys keep the order."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {f"{i:06d}|{e.stage}|{e.name}": np.array(e.value, order="C") for i, e in enumerate(events)}
    partial = folder / f".unfinished-{step}"
    save_file(arrays, partial)
    partial.replace(folder / _FILE.format(step))


class Dump:
    """A recorded run: a folder that `dsv4 train --dump` wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not any(folder.glob("step-*.safetensors")):
            raise UsageError(f"{folder}: no dumped step in it", "write one with dsv4 train --dump")

    @property
    def label(self) -> str:
        """Path of the folder."""
        return str(self.folder)

    def first_step(self) -> int:
        """Return the number of the first dumped step."""
        return min(int(p.stem.removeprefix("step-")) for p in self.folder.glob("step-*.safetensors"))

    def events(self, step: int) -> list[Event] | None:
        """Events of a step, in the order in which they were written."""
        path = self.folder / _FILE.format(step)
        if not path.exists():
            return None
        try:
            return list(_ordered(path))
        except (SafetensorError, OSError) as e:
            raise UsageError(f"{path}: {e}", "dump the step again") from None


def _ordered(path: Path) -> Iterator[Event]:
    for key, value in sorted(load_file(path).items()):
        match = _KEY.fullmatch(key)
        if match is None:
            raise UsageError(f"{path}: {key!r} is not a dumped tensor", "give a folder that dsv4 train --dump wrote")
        yield Event(match[2], match[3], value)
