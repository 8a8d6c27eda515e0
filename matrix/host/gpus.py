"""Which cards this host has, asked of NVIDIA's management library with a time limit.

The question is put by a child process: a lost card can hang the driver, and a hung call cannot be ended from inside.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from matrix.errors import UsageError

PRETENDED = "pretended"
_LIMIT = 20.0  # seconds; a healthy host with eight cards answers in under two


@dataclass(frozen=True, slots=True)
class Card:
    """A card, or a MIG slice of one. Recorded by uuid: inside a cgroup the indices are renumbered."""

    uuid: str
    index: int
    model: str
    memory: int | None = None  # bytes

    @property
    def visible(self) -> str:
        """Its name in CUDA_VISIBLE_DEVICES: the index in PCI order, as every framework has it; MIG needs a uuid."""
        return self.uuid if self.uuid.startswith("MIG-") else str(self.index)

    def fits(self, model: str | None) -> bool:
        """Whether a job that asks for `model` may run here: "H20" is a word of the name. Pretended ones fit all."""
        if model is None or self.model == PRETENDED:
            return True
        wanted = model.casefold()
        name = self.model.casefold()
        return wanted == name or wanted in name.replace("-", " ").split()


@dataclass(frozen=True, slots=True)
class Discovery:
    """The cards that were found, and why there are none where there should be."""

    cards: tuple[Card, ...] = field(default=())
    problem: str | None = None


def pretended(text: str) -> tuple[Card, ...]:
    """Return the cards of `--cards`: "4", or "H20:4" for cards that say they are of a model.

    Raises:
        UsageError: the text is neither.

    """
    model, _, count = text.rpartition(":")
    if not count.isdecimal() or int(count) > 1024:
        raise UsageError(f"--cards {text}: not a number of cards", "write --cards 4, or --cards H20:4")
    name = model or PRETENDED
    return tuple(Card(f"PRETENDED-{i}", i, name) for i in range(int(count)))


def discover() -> Discovery:
    """Find the cards that this process may use (`CUDA_VISIBLE_DEVICES` narrows them as it does for CUDA)."""
    if not has_driver():
        return Discovery()
    command = [sys.executable, "-c", "from matrix.host.gpus import ask; ask()"]
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env) as child:
        try:
            out, _ = child.communicate(timeout=_LIMIT)
        except subprocess.TimeoutExpired:
            child.kill()
            child.returncode = -9  # it may hang inside the driver for good; do not wait for it
            return Discovery(problem=f"the NVIDIA driver did not answer within {_LIMIT:.0f} s")
    try:
        answer = json.loads(out)
    except ValueError:
        return Discovery(problem=f"asking the NVIDIA driver ended with exit code {child.returncode}")
    cards = tuple(Card(**c) for c in answer["cards"])
    return Discovery(visible(cards, os.environ.get("CUDA_VISIBLE_DEVICES")), answer["problem"])


def has_driver() -> bool:
    """Whether an NVIDIA driver is loaded: /dev/nvidiactl, or /dev/dxg under WSL."""
    return Path("/dev/nvidiactl").exists() or Path("/dev/dxg").exists()


def visible(cards: tuple[Card, ...], narrowed: str | None) -> tuple[Card, ...]:
    """Narrow the cards as CUDA does: indices or (beginnings of) uuids, cut at the first that names no card."""
    if narrowed is None:
        return cards
    chosen: list[Card] = []
    for name in (n.strip() for n in narrowed.split(",")):
        match = [c for c in cards if (name.isdecimal() and c.index == int(name)) or (name and c.uuid.startswith(name))]
        if len(match) != 1 or match[0] in chosen:
            break
        chosen += match
    return tuple(chosen)


def ask() -> None:
    """Print what NVML says as JSON; run in a child process."""
    import pynvml

    found: list[dict[str, object]] = []
    problem = None
    try:
        pynvml.nvmlInit()
        for i in range(pynvml.nvmlDeviceGetCount()):
            device = pynvml.nvmlDeviceGetHandleByIndex(i)
            model = _text(pynvml.nvmlDeviceGetName(device)).removeprefix("NVIDIA ")
            found += [
                {
                    "uuid": _text(pynvml.nvmlDeviceGetUUID(d)),
                    "index": i,
                    "model": model,
                    "memory": int(pynvml.nvmlDeviceGetMemoryInfo(d).total),
                }
                for d in _slices(device) or [device]
            ]
    except pynvml.NVMLError as e:
        problem = f"NVML: {e}"
    print(json.dumps({"cards": found, "problem": problem}))


def _slices(device: object) -> list[object]:
    """Return the MIG devices of a card; none where MIG is off or unknown."""
    import pynvml

    try:
        if pynvml.nvmlDeviceGetMigMode(device)[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
            return []
        count = pynvml.nvmlDeviceGetMaxMigDeviceCount(device)
    except pynvml.NVMLError:
        return []
    slices = []
    for i in range(count):
        try:
            slices.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device, i))
        except pynvml.NVMLError:  # this slot is not in use
            continue
    return slices


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
