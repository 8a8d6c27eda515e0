"""What a job costs over its bare command: the median time of `true` alone, by the engine, and in a whole run.

Repeat: python benchmarks/overhead.py [COUNT]
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from matrix.engine.base import Launch
from matrix.engine.local import LocalEngine
from matrix.host.gpus import pretended

COMMANDS = {"true": ["true"], "python": [sys.executable, "-c", "pass"]}


def bare(argv: list[str], count: int) -> list[float]:
    out = []
    for _ in range(count):
        begin = time.perf_counter()
        subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)
        out.append(time.perf_counter() - begin)
    return out


async def by_engine(argv: list[str], count: int, folder: Path, cards: int) -> list[float]:
    engine = LocalEngine(pretended("4"), lease_dir=str(folder / "leases"))
    out = []
    for i in range(count):
        place = folder / f"{argv[0].replace('/', '_')}-{cards}-{i}"
        begin = time.perf_counter()
        run = await engine.start(
            Launch(
                tag=str(place),
                argv=tuple(argv),
                cwd=folder,
                env=dict(os.environ),
                log=place / "log",
                scratch=place,
                timeout=60,
                cards=engine.cards[:cards],
            )
        )
        assert run is not None
        ended = await run.wait()
        out.append(time.perf_counter() - begin)
        assert ended.exit_code == 0
    return out


def by_run(argv: list[str], count: int, folder: Path) -> float:
    """Return the time of each further job in `matrix run`, one after another, records and all."""
    spans = {}
    for jobs in (1, count + 1):
        root = folder / f"run-{jobs}"
        root.mkdir()
        listed = {f"j{i}": {"command": argv} for i in range(jobs)}
        (root / "matrix.yaml").write_text(json.dumps({"version": 1, "suites": {"s": {"jobs": listed}}}))
        command = [sys.executable, "-c", "from matrix.cli import main; main()", "run", "--cpu-jobs", "1"]
        begin = time.perf_counter()
        subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        spans[jobs] = time.perf_counter() - begin
    return (spans[count + 1] - spans[1]) / count


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    print(
        f"Python {platform.python_version()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {count} times each"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["MATRIX_LEASE_DIR"] = str(folder / "leases")
        for what, argv in COMMANDS.items():
            alone = statistics.median(bare(argv, count))
            print(f"{what:8} bare command                 {alone * 1e3:7.1f} ms (median)")
            for cards in (0, 2):
                engine = statistics.median(asyncio.run(by_engine(argv, count, folder, cards)))
                over = (engine - alone) * 1e3
                print(
                    f"{what:8} supervised, {cards} cards          {engine * 1e3:7.1f} ms, over the bare {over:6.1f} ms"
                )
            whole = by_run(argv, count, folder) if what == "true" else None
            if whole is not None:
                over = (whole - alone) * 1e3
                print(
                    f"{what:8} one more job of `matrix run` {whole * 1e3:7.1f} ms (mean), over the bare {over:6.1f} ms"
                )


if __name__ == "__main__":
    main()
