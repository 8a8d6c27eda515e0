#!/usr/bin/env python3
"""Speed and memory of whole triage (read, scan, frames, rank), each figure from a fresh process.

    python benchmarks/triage.py [--size MB] [--large MB] [--repeat N]

Prints, as medians: the floor (a chunk reader that counts newlines), triage of a log without a match and of one with a
failure in every megabyte, each with what it costs over the floor, the peak memory, and 30 small logs in one call with
start-up. Logs are made on the spot from a fixed seed. Run it on an idle machine; versions are printed with the figures.
"""

from __future__ import annotations

import argparse
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

FLOOR = """
import resource, sys, time
t = time.perf_counter(); n = 0
with open(sys.argv[1], "rb", buffering=0) as f:
    while b := f.read(4 << 20): n += b.count(b"\\n")
print(time.perf_counter() - t, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
TRIAGE = """
import resource, sys, time
from matrix.triage import diagnose
from matrix.triage.diagnosis import default_rules
from matrix.triage.analysis import scanner_for
scanner_for(default_rules())
t = time.perf_counter(); diagnose(sys.argv[1])
print(time.perf_counter() - t, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
CALL = """
import subprocess, sys, time
t = time.perf_counter()
subprocess.run([sys.executable, "-c", "from matrix.cli import main; main()", "triage", "--json", *sys.argv[1:]], stdout=subprocess.DEVNULL, check=True)
print(time.perf_counter() - t, 0)
"""  # noqa: E501
FAILURE = """Traceback (most recent call last):
  File "/workspace/train.py", line 88, in <module>
    main()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
##[error]Process completed with exit code 1."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--large", type=int, default=0, help="also a log of so many MB, for its memory")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    print(f"Python {platform.python_version()}, hyperscan {version('hyperscan')}, {platform.machine()}")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        clean = make(root / "clean.log", options.size, failures=False)
        dense = make(root / "dense.log", options.size, failures=True)
        floor, _ = timed(FLOOR, [clean], options.repeat)
        print(f"floor, {options.size} MB: {floor:.2f} s")
        for name, path in (("no match", clean), ("a failure a MB", dense)):
            took, memory = timed(TRIAGE, [path], options.repeat)
            print(
                f"triage, {options.size} MB, {name}: {took:.2f} s ({took - floor:+.2f} s), {memory:.0f} MiB at the peak"
            )
        if options.large:
            took, memory = timed(TRIAGE, [make(root / "large.log", options.large, failures=False)], 1)
            print(f"triage, {options.large} MB, no match: {took:.2f} s, {memory:.0f} MiB at the peak")
        small = [make(root / f"small{n}.log", 0.3, failures=True, seed=n) for n in range(30)]
        took, _ = timed(CALL, small, options.repeat)
        print(f"30 logs of 0.3 MB in one call, start-up included: {took:.2f} s")


def make(path: Path, megabytes: float, *, failures: bool, seed: int = 7) -> Path:
    """Write a training log; with failures one near every megabyte, and one at the end."""
    rng = random.Random(seed)
    size, step, next_failure = 0, 0, 1_000_000
    with path.open("w") as log:
        while size < megabytes * 1_000_000:
            step += 1
            clock = f"2026-12-01T01:{step // 60 % 60:02d}:{step % 60:02d}.{rng.randrange(10_000_000):07d}Z"
            line = f"{clock}  iteration {step:8d}/ 9000000 | consumed samples: {step * 16:12d} |"
            line += f" elapsed time per iteration (ms): {rng.random() * 100:.1f} | lm loss: {rng.random():.6E} |\n"
            if failures and size > next_failure:
                next_failure += 1_000_000
                line += "".join(f"2026-12-01T01:00:00.0000000Z {part}\n" for part in FAILURE.splitlines())
            size += log.write(line)
        if failures:
            log.write("".join(f"2026-12-01T01:00:00.0000000Z {part}\n" for part in FAILURE.splitlines()))
    return path


def timed(code: str, paths: list[Path], repeat: int) -> tuple[float, float]:
    """Medians of seconds and peak MiB over fresh processes; one run before warms the caches."""
    figures = []
    for _ in range(repeat + 1):
        out = subprocess.run([sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True, check=True)
        figures.append([float(word) for word in out.stdout.split()])
    return statistics.median(f[0] for f in figures[1:]), statistics.median(f[1] for f in figures[1:])


if __name__ == "__main__":
    main()
