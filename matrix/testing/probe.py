"""Runs one test many times, each in a process of its own, and keeps every outcome."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from matrix.errors import UsageError
from matrix.history.rows import rows_of
from matrix.history.spool import record
from matrix.junit_file import TestResult, read_junit
from matrix.records import Attempt, Status
from matrix.testing.outcomes import session_record

_NOT_FOUND = (4, 5)  # pytest's exit codes for wrong use and for no test


@dataclass(frozen=True, slots=True)
class Try:
    """One run of the test: passed, failed, error (its process died or did not end) or skipped."""

    outcome: str
    began: float
    seconds: float
    reason: str | None = None  # why it was skipped

    @property
    def bad(self) -> bool:
        """Whether it counts as a failure."""
        return self.outcome in ("failed", "error")


def probe_test(test: str, times: int, limit: float) -> Iterator[Try]:
    """Yield one try after the other.

    Raises:
        UsageError: there is no such test.

    """
    for n in range(times):
        with tempfile.TemporaryDirectory(prefix="matrix-probe-") as folder:
            yield _once(test, limit, Path(folder) / "junit.xml", first=n == 0)


def _once(test: str, limit: float, junit: Path, *, first: bool) -> Try:
    # A quarantine would turn every failure into a skip: how often it fails is just what is asked.
    alone = ["-p", "no:cacheprovider", "-p", "no:matrix-quarantine"]
    command = [sys.executable, "-m", "pytest", "-q", "-rsx", *alone, f"--junitxml={junit}", "--", test]
    began = time.time()
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        out, _ = child.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        return Try("error", began, time.time() - began)
    seconds = time.time() - began
    if child.returncode in _NOT_FOUND and first:
        lines = [line for line in out.decode(errors="replace").splitlines() if line.strip()]
        said = lines[-1] if lines else "it says nothing"
        raise UsageError(f"{test}: pytest finds no such test: {said}", "write a node id: tests/test_a.py::test_b")
    if child.returncode not in (0, 1):
        return Try("error", began, seconds)
    results = {r.outcome for r in read_junit(junit)}
    outcome = next((o for o in ("error", "failed", "passed") if o in results), "skipped")
    reason = _reason(out.decode(errors="replace")) if outcome == "skipped" else None
    return Try(outcome, began, seconds, reason)


def _reason(out: str) -> str | None:
    """Return why the test did not run: the line of pytest's summary."""
    return next((line for line in out.splitlines() if line.startswith(("SKIPPED ", "XFAIL "))), None)


def keep(root: Path, url: str, test: str, tries: Sequence[Try]) -> tuple[str, str | None]:
    """Remember each try that ran as an attempt of one run; return its id, and a warning where that was not possible."""
    results = [TestResult(test, t.outcome, t.seconds) for t in tries]
    run = session_record(root, f"probe {test}"[:300], "probe", tries[0].began, results)
    run.jobs[0].attempts = [
        Attempt(
            n=n,
            started=datetime.fromtimestamp(t.began, UTC).isoformat(),
            ended=datetime.fromtimestamp(t.began + t.seconds, UTC).isoformat(),
            status=Status.FAILED if t.bad else Status.PASSED,
            log="",
        )
        for n, t in enumerate(tries, 1)
    ]
    tests = {(run.jobs[0].name, n): [result] for n, result in enumerate(results, 1)}
    return run.id, record(url, rows_of(run, tests=tests), root / ".matrix" / "spool")
