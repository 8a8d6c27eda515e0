"""A repository with runs and a history, and the page on it, served by the real server."""

import contextlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import requests

from matrix.history import schema
from matrix.history.rows import rows_of
from matrix.history.store import open_store
from matrix.junit_file import TestResult
from matrix.records import Attempt, CardRecord, JobRecord, RunRecord, SpecRef, Status, save
from matrix.triage.model import Cause

ROOT = Path(__file__).parents[3]
RUN = "20261201-093011-7f3a"
NOW = 1796117411.0
HOSTILE = "<script>alert(1)</script>"


def iso(at):
    return datetime.fromtimestamp(at, UTC).isoformat()


def cause(category, line, text, signature="ab"):
    return Cause(category=category, rule="r", confidence=0.9, line=line, text=text, signature=signature)


def attempt(n, begin, end, status, log, *, cards=(), causes=()):
    held = [CardRecord(uuid=f"GPU-{i}", index=i, model="H20") for i in cards]
    return Attempt(
        n=n,
        started=iso(NOW + begin),
        ended=iso(NOW + end),
        status=status,
        log=log,
        exit_code=int(status != "passed"),
        cards=held,
        causes=list(causes),
    )


def make_run(root, log_lines):
    """A run: a job that passed with losses, one that failed in a log of so many lines, one that it blocked."""
    folder = root / ".matrix/runs" / RUN
    for name in ("pre@tp=2", "sft"):
        (folder / "logs" / name).mkdir(parents=True)
    losses = [(step, 10 / step) for step in range(1, 101)]
    (folder / "logs/pre@tp=2/1.log").write_text("".join(f"step: {s} loss: {v!r}\n" for s, v in losses))
    (root / "base.txt").write_text("".join(f"{s} {v if s < 60 else v * 1.000001!r}\n" for s, v in losses))
    (root / "matrix.yaml").write_text(
        "suites:\n  s:\n    jobs:\n      pre: {command: x, parameters: {tp: [2]}, cards: 2, baseline: {loss: {file: base.txt}},"
        " produces: {name: p, path: out, kind: files}}\n"
        "      sft: {command: x, needs: p, produces: {path: q, kind: files}}\n      lora: {command: x, needs: sft}\n"
    )
    bad = log_lines * 2 // 3
    with (folder / "logs/sft/1.log").open("w") as f:
        for n in range(1, log_lines + 1):
            f.write(
                f"RuntimeError: {HOSTILE} broke\n"
                if n == bad
                else f"line {n} of a log that is as long as logs of training are\n"
            )
    jobs = [
        JobRecord(name="pre@tp=2", suite="s", status=Status.PASSED, attempts=[attempt(1, 0, 60, Status.PASSED, "logs/pre@tp=2/1.log", cards=(0, 1))]),
        JobRecord(
            name="sft", suite="s", status=Status.FAILED, needs=["pre@tp=2"],
            attempts=[attempt(1, 61, 90, Status.FAILED, "logs/sft/1.log", cards=(0,), causes=[cause("worker_exception", bad, f"RuntimeError: {HOSTILE} broke")])],
        ),
        JobRecord(name="lora", suite="s", status=Status.BLOCKED, needs=["sft"], blocked_by=["sft"]),
    ]  # fmt: skip
    run = RunRecord(
        id=RUN,
        spec=SpecRef(path="matrix.yaml", sha256="x"),
        engine="local",
        host="h",
        commit="c" * 40,
        pr=7,
        started=iso(NOW),
        ended=iso(NOW + 100),
        status=Status.FAILED,
        jobs=jobs,
    )
    save(run, folder / "run.json")
    return run, bad


def fill_history(url, run, results):
    """So many test results, over runs of which some failed; feedback on diagnoses."""
    store = open_store(url)
    store.write(rows_of(run))
    made, n, rng = 0, 0, random.Random(1)
    tests = [f"tests/test_{i % 40}.py::test_{i}" for i in range(min(500, max(20, results // 50)))]
    while made < results:
        at = time.time() - n * 3600 % (25 * 86400)
        bad = n % 5 == 0
        one = JobRecord(
            name=f"unit-{n % 7}", suite="s", status=Status.FAILED if bad else Status.PASSED,
            attempts=[Attempt(n=1, started=iso(at), ended=iso(at + 60 + n % 9), status=Status.FAILED if bad else Status.PASSED, log="x",
                              cards=[CardRecord(uuid=f"GPU-{n % 8}", index=n % 8, model="H20")],
                              causes=[cause(("oom", "nccl_error", "unknown")[n % 3], 3, "text")] if bad else [])],
        )  # fmt: skip
        past = RunRecord(
            id=f"r{n}",
            spec=SpecRef(path="m", sha256="x"),
            engine="local",
            host="h",
            commit=f"c{n // 4}",
            pr=n % 5 or None,
            started=iso(at),
            ended=iso(at + 70),
            status=one.status,
            jobs=[one],
        )
        outcomes = [TestResult(t, "failed" if bad and rng.random() < 0.02 else "passed", 0.1) for t in tests]
        store.write(rows_of(past, tests={(one.name, 1): outcomes}))
        made, n = made + len(outcomes), n + 1
    with store.begin() as c:
        rows = [
            {"id": f"f{i}", "at": time.time(), "author": "a", "url": "u", "category": "oom", "right": i % 4 != 0}
            for i in range(8)
        ]
        c.execute(schema.feedback.insert(), rows)
    store.close()


def in_chromium(script, **order):
    """Do what a script of tests/node does in the system's Chromium; return what it says."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    assert program, "chromium is missing: bash scripts/services.sh start"
    assert (ROOT / "tests/node/node_modules/axe-core").is_dir(), "axe-core is missing: bash scripts/node.sh"
    command = ["node", script, json.dumps(order | {"chromium": program})]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "tests/node", timeout=180)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def look_at(urls, *, looks=(("light", 1280),), shots=None):
    """Return what axe, the console and the keyboard say of pages, in each scheme and width of `looks`."""
    return in_chromium("page.mjs", pages=list(urls), looks=[list(look) for look in looks], shots=shots)


class Served:
    """The page, and what is behind it."""

    def __init__(self, root, base, bad=0):
        self.root, self.base, self.bad = root, base, bad

    def get(self, path, **kwargs):
        return requests.get(self.base + path, timeout=30, **kwargs)

    def chromium(self, pages, **how):
        """Open pages of it; what `look_at` says of each."""
        return look_at([self.base + p for p in pages], **how)


def environment():
    return {k: v for k, v in os.environ.items() if not k.startswith("MATRIX_")} | {"PYTHONPATH": str(ROOT)}


def matrix(*arguments):
    return [sys.executable, "-c", "from matrix.cli import main; main()", *arguments]


@contextlib.contextmanager
def serving(root, *, log_lines=2000, results=2000):
    run, bad = make_run(root, log_lines)
    fill_history(f"sqlite:///{root / '.matrix/history.sqlite'}", run, results)
    with serving_what_is_there(root) as served:
        served.bad = bad
        yield served


@contextlib.contextmanager
def serving_what_is_there(root):
    with subprocess.Popen(
        matrix("serve", "--port", "0"), cwd=root, env=environment(), stderr=subprocess.PIPE, text=True
    ) as server:
        try:
            line = server.stderr.readline()
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\n", line), line
            served = Served(root, line.strip().rstrip("/"))
            for _ in range(300):
                with contextlib.suppress(requests.ConnectionError):
                    if served.get("/healthz").ok:
                        break
                time.sleep(0.1)
            yield served
        finally:
            server.terminate()
