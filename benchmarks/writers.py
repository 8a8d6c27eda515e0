"""Many writers at one history: writers.py [--writers 16] [--seconds 60] [--db URL]

Each process records runs by the way that `matrix run` takes (spool, store) until the time is over. Prints what was
written, what is stored, what is left in the spools, warnings, and how long one took.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks.history import made_run
from matrix.history import schema
from matrix.history.rows import rows_of
from matrix.history.spool import record
from matrix.history.store import open_store
from matrix.junit_file import TestResult

Said = tuple[int, list[str], list[float], int]


def write(url: str, writer: int, seconds: float, spool: Path, ready: Any, out: multiprocessing.Queue[Said]) -> None:
    """Record runs for so long, once all writers are there, and tell how it went."""
    spool.mkdir()
    record_, _ = made_run(random.Random(writer), writer, datetime.now(UTC), fail=0.2)
    record_.jobs = record_.jobs[:4]
    tests = {(job.name, 1): [TestResult(f"t.py::t{k}", "passed", 0.1) for k in range(10)] for job in record_.jobs}
    done, said, took = 0, list[str](), list[float]()
    ready.wait()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        rows = rows_of(record_.model_copy(update={"id": f"w{writer}-{done}"}), tests=tests)
        start = time.perf_counter()
        warning = record(url, rows, spool)
        took.append(time.perf_counter() - start)
        done += 1
        if warning:
            said.append(warning)
    out.put((done, said, took, len(list(spool.iterdir()))))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--db")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = args.db or f"sqlite:///{folder}/h.sqlite"
        store = open_store(url)
        with store.begin() as c:
            before = c.execute(select(func.count()).select_from(schema.runs)).scalar() or 0
        context = multiprocessing.get_context("spawn")
        ready = context.Barrier(args.writers)
        out: multiprocessing.Queue[Said] = context.Queue()
        writers = [
            context.Process(target=write, args=(url, w, args.seconds, Path(folder) / f"spool{w}", ready, out))
            for w in range(args.writers)
        ]
        for w in writers:
            w.start()
        said = [out.get() for _ in writers]
        for w in writers:
            w.join()
        with store.begin() as c:
            stored = (c.execute(select(func.count()).select_from(schema.runs)).scalar() or 0) - before
        store.close()
        done, took = sum(s[0] for s in said), sorted(t for s in said for t in s[2])
        print(f"{store.engine.dialect.name}: {args.writers} writers, {args.seconds:.0f} s: {done} runs written, "
              f"{stored} stored, {sum(s[3] for s in said)} waiting, {sum(len(s[1]) for s in said)} warnings; "
              f"median {statistics.median(took):.3f} s, slowest {took[-1]:.1f} s")  # fmt: skip
        for warning in sorted({w for s in said for w in s[1]})[:5]:
            print(f"    {warning}")


if __name__ == "__main__":
    main()
