"""Is a card clean before a job starts on it? Foreign memory, memory errors, and a probe that must answer in time.

A card that an orphan fills, or that answers no more, fails every job that is sent to it. So it is looked at first, and
set aside with its evidence. The driver is asked by a child process with a time limit, since a lost card hangs whoever
asks.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

_LIMIT = 20.0  # seconds for the answers and the probe together
_IDLE = 1 << 30  # bytes in use without a process that explains them, as the driver itself needs some
_FOREIGN = 256 << 20  # bytes of a foreign process that a job would miss
_PROBE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that holds memory of a card."""

    pid: int
    memory: int  # bytes
    name: str  # its command line, as far as it may be seen

    def __str__(self) -> str:
        return f"process {self.pid} ({self.name}) holds {self.memory / 2**30:.1f} GiB"


@dataclass(frozen=True, slots=True)
class Health:
    """What a card says of itself."""

    uuid: str
    used: int | None = None  # bytes
    holders: tuple[Holder, ...] = ()
    uncorrected: int | None = None  # memory errors since the last reset that could not be corrected
    remap_failed: bool = False
    problem: str | None = None  # it gave no answer, or the probe failed


Look = Callable[[Sequence[str], bool], list[Health]]  # uuids, and whether to probe
T = TypeVar("T")


def evidence(health: Health, ours: Callable[[int], bool], *, shared: bool) -> list[str]:
    """Say why a card is not fit for a job; empty where it is.

    `ours` tells processes of jobs that the matrix itself runs; on a card that is shared their memory is expected.
    """
    said = [health.problem] if health.problem else []
    if health.uncorrected:
        said.append(f"{health.uncorrected} memory errors that could not be corrected")
    if health.remap_failed:
        said.append("a row of its memory could not be remapped")
    foreign = [h for h in health.holders if not ours(h.pid)]
    said += [str(h) for h in foreign if h.memory >= _FOREIGN]
    explained = sum(h.memory for h in health.holders)
    if health.used is not None and health.used - explained >= _IDLE and not said and not shared:
        said.append(f"{(health.used - explained) / 2**30:.1f} GiB in use by nobody who can be seen")
    return said


def look(uuids: Sequence[str], probe: bool) -> list[Health]:
    """Ask the driver about cards, and probe each if asked; a card that does not answer in time says so."""
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))}
    env.pop("CUDA_VISIBLE_DEVICES", None)
    code = "import sys; from matrix.host.health import answer; answer(sys.argv[1:])"
    command = [sys.executable, "-c", code, *(["--probe"] if probe else []), *uuids]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, env=env) as child:
        try:
            out, _ = child.communicate(timeout=_LIMIT)
        except subprocess.TimeoutExpired:
            child.kill()
            child.returncode = -9  # it may hang inside the driver for good; do not wait for it
            return [Health(u, problem=f"did not answer within {_LIMIT:.0f} s") for u in uuids]
    try:
        return [Health(**{**h, "holders": tuple(Holder(**p) for p in h["holders"])}) for h in json.loads(out)]
    except (ValueError, TypeError, KeyError):
        return [Health(u, problem=f"the probe ended with exit code {child.returncode}") for u in uuids]


def answer(arguments: Sequence[str]) -> None:
    """Print the health of cards as JSON; run in a child process."""
    import pynvml

    pynvml.nvmlInit()
    probe = "--probe" in arguments
    print(json.dumps([_card(uuid, probe) for uuid in arguments if uuid != "--probe"]))


def _card(uuid: str, probe: bool) -> dict[str, object]:
    import pynvml

    try:
        device = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        used = int(pynvml.nvmlDeviceGetMemoryInfo(device).used)
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
    except pynvml.NVMLError as e:
        return {"uuid": uuid, "holders": [], "problem": f"NVML: {e}"}
    holders = [{"pid": p.pid, "memory": int(p.usedGpuMemory or 0), "name": _command(p.pid)} for p in processes]
    errors = _maybe(lambda: pynvml.nvmlDeviceGetTotalEccErrors(device, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, 0))
    remapped = _maybe(lambda: pynvml.nvmlDeviceGetRemappedRows(device))
    return {
        "uuid": uuid,
        "used": used,
        "holders": holders,
        "uncorrected": errors,
        "remap_failed": bool(remapped and remapped[3]),
        "problem": _probe(uuid) if probe else None,
    }


def _maybe(call: Callable[[], T]) -> T | None:
    import pynvml

    try:
        return call()
    except pynvml.NVMLError:  # not every card can say
        return None


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "not visible here"
    return b" ".join(words).decode(errors="replace").strip()[:120] or "no command line"


def _probe(uuid: str) -> str | None:
    """Write and read some memory of the card through the driver alone; return what failed."""
    os.environ["CUDA_VISIBLE_DEVICES"] = uuid
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None  # cards without the compute driver are no cards for jobs; discovery said so
    device, context, memory, value = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint32()
    size = ctypes.c_size_t(_PROBE_BYTES)
    steps: list[tuple[str, Callable[[], int]]] = [
        ("cuInit", lambda: cuda.cuInit(0)),
        ("cuDeviceGet", lambda: cuda.cuDeviceGet(ctypes.byref(device), 0)),
        ("cuDevicePrimaryCtxRetain", lambda: cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)),
        ("cuCtxSetCurrent", lambda: cuda.cuCtxSetCurrent(context)),
        ("cuMemAlloc", lambda: cuda.cuMemAlloc_v2(ctypes.byref(memory), size)),
        ("cuMemsetD32", lambda: cuda.cuMemsetD32_v2(memory, ctypes.c_uint32(0x5AA55AA5), _PROBE_BYTES // 4)),
        ("cuMemcpyDtoH", lambda: cuda.cuMemcpyDtoH_v2(ctypes.byref(value), memory, ctypes.c_size_t(4))),
        ("cuMemFree", lambda: cuda.cuMemFree_v2(memory)),
    ]
    for name, step in steps:
        code = step()
        if code:
            return f"the probe failed: {name} returned {code}"
    cuda.cuDevicePrimaryCtxRelease_v2(device)
    return None if value.value == 0x5AA55AA5 else "the probe failed: memory did not keep what was written"
