"""Twenty processes contend for the real card by leases, ten are killed: storm.py

Each holder takes 4 GiB of the card under its lease, so that an overlap would show in the card's memory too. Prints how
often the card was leased, overlaps, and the card's memory before and after.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pynvml

HOLDER = """
import ctypes, os, sys, time
sys.path.insert(0, {root!r})
from matrix.host.gpus import discover
from matrix.host.leases import Busy, Leases
card, leases, cuda = discover().cards[0], Leases(), ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDeviceGet(ctypes.byref(device), 0)
end = time.time() + {seconds}
while time.time() < end:
    try:
        lease = leases.take([card.uuid], f"storm-{{os.getpid()}}")
    except Busy:
        time.sleep(0.01)
        continue
    began = time.time()
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    cuda.cuCtxSetCurrent(context)
    memory = ctypes.c_uint64()
    code = cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4 << 30))
    time.sleep(0.02)
    cuda.cuMemFree_v2(memory)
    cuda.cuDevicePrimaryCtxRelease_v2(device)
    print(f"{{began}} {{time.time()}} {{code}}", flush=True)
    lease.release()
"""


def used() -> int:

    pynvml.nvmlInit()
    return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(0)).used)


def main(seconds: float = 40.0) -> None:
    root = str(Path(__file__).parents[2])
    before = used()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["MATRIX_LEASE_DIR"] = folder + "/leases"
        code = HOLDER.format(root=root, seconds=seconds)
        outs = [Path(folder) / f"{i}.txt" for i in range(20)]
        children = [subprocess.Popen([sys.executable, "-c", code], stdout=out.open("w")) for out in outs]
        for victim in random.Random(0).sample(children, 10):
            time.sleep(seconds / 12)
            victim.send_signal(signal.SIGKILL)
        for child in children:
            child.wait()
        lines = [line.split() for out in outs for line in out.read_text().splitlines() if line.count(" ") == 2]
    spans = sorted((float(a), float(b)) for a, b, _ in lines)
    refused = sum(code != "0" for _, _, code in lines)
    overlaps = sum(b[0] < a[1] for a, b in itertools.pairwise(spans))
    time.sleep(1)
    print(f"leases {len(spans)}, killed 10, overlaps {overlaps}, allocations refused {refused}, "
          f"card memory before {before / 2**20:.0f} MiB, after {used() / 2**20:.0f} MiB")  # fmt: skip


if __name__ == "__main__":
    main()
