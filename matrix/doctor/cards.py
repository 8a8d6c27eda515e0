"""Checks of the cards: are they there, does the driver answer, are they as jobs want them, can Paddle use them."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from typing import Any

from matrix.doctor.model import Finding, Place, State
from matrix.errors import MatrixError
from matrix.host import gpus
from matrix.host.leases import Leases
from matrix.plan.hosts import hosts_file, read_hosts

_DIRTY = 1 << 30  # bytes in use on a card that nobody has leased

# The name of this project on the public index is nobody's: an extra of it must not be advised.
_INSTALL = "where jobs train with Paddle: pip install paddlepaddle"
_INSTALL_GPU = "take paddlepaddle-gpu from Paddle's own package index"

# Asked in a child process, as the driver may hang.
_NVML = """
import json, pynvml
pynvml.nvmlInit()
out = {"driver": pynvml.nvmlSystemGetDriverVersion(), "cuda": pynvml.nvmlSystemGetCudaDriverVersion_v2(), "cards": []}
for i in range(pynvml.nvmlDeviceGetCount()):
    device = pynvml.nvmlDeviceGetHandleByIndex(i)
    card = {"index": i, "uuid": pynvml.nvmlDeviceGetUUID(device), "used": pynvml.nvmlDeviceGetMemoryInfo(device).used}
    for key, ask in (
        ("mig", lambda: pynvml.nvmlDeviceGetMigMode(device)[0]),
        ("errors", lambda: pynvml.nvmlDeviceGetTotalEccErrors(device, 1, 0)),
    ):
        try:
            card[key] = ask()
        except pynvml.NVMLError:
            card[key] = None
    out["cards"].append(card)
print(json.dumps(out))
"""
_PADDLE = """
import json, paddle
gpu = paddle.is_compiled_with_cuda()
cards = paddle.device.cuda.device_count() if gpu else 0
out = {"version": paddle.__version__, "gpu": gpu, "cards": cards, "error": None}
try:
    paddle.set_device("gpu" if cards else "cpu")
    assert float((paddle.ones([2, 2]) @ paddle.ones([2, 2])).sum()) == 8.0
except Exception as e:
    out["error"] = str(e).strip().splitlines()[-1][:200]
print("\\n" + json.dumps(out))
"""


def cards(_: Place) -> Finding:
    """Which cards jobs would get here."""
    found = gpus.discover()
    if found.problem:
        return Finding("cards", State.BAD, found.problem, "see `dmesg | grep -i nvrm`; a lost card needs a reset")
    if found.cards:
        models = Counter(c.model for c in found.cards)
        return Finding("cards", State.OK, ", ".join(f"{n} of {model}" for model, n in models.items()))
    try:
        path = hosts_file()
        hosts = read_hosts(path) if path else []
    except MatrixError as e:
        return Finding("cards", State.BAD, e.message.splitlines()[0], e.advice or "mend the hosts file")
    if hosts:
        said = ", ".join(f"{h.name}: {len(h.cards)}" for h in hosts)
        return Finding("cards", State.OK, f"no driver here; {path} says {said}")
    return Finding("cards", State.ABSENT, "no card on this host", "to try jobs with cards: matrix run --cards 4")


def _nvml(place: Place) -> dict[str, Any] | str:
    done = place.ask(sys.executable, "-c", _NVML)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else f"exit code {done.returncode}"
    return answer if isinstance(answer, dict) else "no answer"


def driver(place: Place) -> Finding:
    """Whether the driver answers, and whether a card counted errors or is full though nobody has leased it."""
    if not gpus.has_driver():
        return Finding("driver", State.ABSENT, "no NVIDIA driver is loaded", "on a host with NVIDIA cards: install it")
    answer = _nvml(place)
    if isinstance(answer, str):
        advice = "reboot after an update of the driver; in a container, start it with --gpus"
        return Finding("driver", State.BAD, f"the driver does not answer: {answer}", advice)
    cuda = answer["cuda"]
    said = f"driver {answer['driver']}, CUDA up to {cuda // 1000}.{cuda % 1000 // 10}"
    broken = [c["index"] for c in answer["cards"] if c["errors"]]
    if broken:
        return Finding("driver", State.BAD, f"{said}; uncorrected memory errors on cards {broken}", "take them out")
    free = set(Leases().free(c["uuid"] for c in answer["cards"]))
    full = [c["index"] for c in answer["cards"] if c["used"] > _DIRTY and c["uuid"] in free]
    if full:
        advice = "nvidia-smi shows whose they are; end them, or the next job runs out of memory"
        return Finding("driver", State.WARNING, f"{said}; memory in use without a lease on cards {full}", advice)
    return Finding("driver", State.OK, said)


def mig(place: Place) -> Finding:
    """Whether cards are cut into slices."""
    if not gpus.has_driver():
        return Finding("MIG", State.ABSENT, "no NVIDIA driver is loaded", "nothing to do without cards")
    answer = _nvml(place)
    if isinstance(answer, str):
        return Finding("MIG", State.UNKNOWN, answer, "see what is said of the driver")
    cut = [c["index"] for c in answer["cards"] if c["mig"]]
    if not cut:
        return Finding("MIG", State.OK, "off on all cards")
    slices = [c for c in gpus.discover().cards if c.uuid.startswith("MIG-")]
    if not slices:
        return Finding(
            "MIG", State.BAD, f"on for cards {cut}, without a slice", "make slices: nvidia-smi mig -cgi; or turn it off"
        )
    said = f"on for cards {cut}: {len(slices)} slices; NCCL does not join slices"
    return Finding("MIG", State.WARNING, said, "give jobs one slice each (cards: 1), or turn it off: nvidia-smi -mig 0")


def paddle(place: Place) -> Finding:
    """Whether the Python of the jobs has a Paddle that computes, on the cards where there are some."""
    python = shutil.which("python", path=place.env.get("PATH")) or sys.executable
    there = place.ask(python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('paddle') is None)")
    if there.returncode:
        return Finding("Paddle", State.ABSENT, f"not installed for {python}", _INSTALL)
    done = place.ask(python, "-c", _PADDLE)
    try:
        answer = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        said = lines[-1][:200] if lines else f"exit code {done.returncode}"
        return Finding("Paddle", State.BAD, f"cannot be imported by {python}: {said}", "install it anew")
    said = f"{answer['version']}, {'GPU' if answer['gpu'] else 'CPU'} build"
    if answer["error"]:
        advice = "this build does not suit this card: take it from Paddle's own index" if answer["gpu"] else None
        return Finding("Paddle", State.BAD, f"{said}; a small product fails: {answer['error']}", advice)
    if gpus.has_driver() and not answer["gpu"]:
        return Finding("Paddle", State.WARNING, f"{said} on a host with cards", _INSTALL_GPU)
    if answer["gpu"] and not answer["cards"]:
        return Finding("Paddle", State.WARNING, f"{said} sees no card", "see the driver; or install the CPU build")
    return Finding("Paddle", State.OK, said)
