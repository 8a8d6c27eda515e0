"""Keeps outcomes and durations in the history, and fails a session in which no test ran."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from matrix.junit_file import EXCUSED, TestResult
from matrix.records import Attempt, JobRecord, RunRecord, SpecRef, Status

JOB = "pytest"
_WORSE = ("skipped", "passed", "failed", "error")


class Outcomes:
    """Collects the outcome of each test in the process that all reports come to."""

    def __init__(self, config: pytest.Config, *, record: bool, must_run: bool) -> None:
        self.config, self.record, self.must_run = config, record, must_run
        self.began = time.time()
        self.results: dict[str, tuple[str, float]] = {}
        self.excused: dict[str, str] = {}
        self.said: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in one phase of a test."""
        outcome = str(report.outcome)
        if (said := str(getattr(report, "wasxfail", ""))).startswith(EXCUSED):
            outcome = "failed"  # it does not count here, and it is what the history has to know
            self.excused[report.nodeid] = said
        elif hasattr(report, "wasxfail"):
            outcome = "passed" if report.when == "call" else "skipped"  # it ran, as it was expected to
        elif report.failed and report.when != "call":
            outcome = "error"
        elif report.passed and report.when != "call":
            outcome = "skipped"  # says nothing yet
        if outcome not in _WORSE:
            return  # a retry of another plugin: its last try counts
        old, seconds = self.results.get(report.nodeid, ("skipped", 0.0))
        self.results[report.nodeid] = (max(old, outcome, key=_WORSE.index), seconds + report.duration)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Keep what was collected; fail where nothing ran."""
        if self.config.option.collectonly:
            return
        ran = sum(outcome != "skipped" for outcome, _ in self.results.values())
        if self.must_run and not ran and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
            self.said.append(f"nothing_ran: no test ran ({len(self.results)} were skipped), which is a failure here")
        if self.record and self.results:
            self.said.append(self._keep())

    def _keep(self) -> str:
        from matrix.errors import MatrixError  # noqa: PLC0415 -- the database loads slowly
        from matrix.history.remember import default_url  # noqa: PLC0415
        from matrix.history.rows import rows_of  # noqa: PLC0415
        from matrix.history.spool import record  # noqa: PLC0415

        folder = self.config.rootpath / ".matrix"
        # Jobs of the matrix are remembered by their own run.
        tests = [
            TestResult(t, o, s, self.excused.get(t))
            for t, (o, s) in self.results.items()
            if not t.partition("::")[0].endswith(".yaml")
        ]
        if not tests:
            return "history: nothing but matrix jobs, which their run has kept"
        run = session_record(self.config.rootpath, JOB, "pytest", self.began, tests)
        try:
            warning = record(default_url(folder, os.environ), rows_of(run, tests={(JOB, 1): tests}), folder / "spool")
        except (MatrixError, OSError) as e:
            warning = f"history: {e}"
        return warning or f"history: {len(tests)} outcomes kept as run {run.id}"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was kept and what was missing."""
        for line in self.said:
            terminalreporter.write_line(f"matrix: {line}", red=line.startswith("nothing_ran"))


def session_record(root: Path, job: str, engine: str, began: float, tests: list[TestResult]) -> RunRecord:
    """Return the record of tests that were run outside of a matrix run: one job with one attempt."""
    from matrix.history.origin import origin  # noqa: PLC0415

    bad = any(t.counts for t in tests)
    status = Status.FAILED if bad else Status.PASSED
    started, ended = (datetime.fromtimestamp(t, UTC).isoformat() for t in (began, time.time()))
    attempt = Attempt(n=1, started=started, ended=ended, status=status, log="")
    record = JobRecord(name=job, suite=job, status=status, attempts=[attempt])
    found = origin(root, os.environ)
    name = time.strftime("%Y%m%d-%H%M%S", time.gmtime(began)) + f"-{engine}-{secrets.token_hex(2)}"
    return RunRecord(
        schema_="run/1", id=name, spec=SpecRef(path="", sha256=""), engine=engine,
        host=socket.gethostname().split(".")[0], commit=clean_commit(root),
        base=found.base, repository=found.repository, branch=found.branch, pr=found.pr,
        author=found.author, changed_files=found.changed_files, started=started, ended=ended, status=status,
        jobs=[record],
    )  # fmt: skip


def clean_commit(root: Path) -> str | None:
    """Return the commit that was tested; none where files differ from it, as two outcomes would then not compare."""
    commands = (["status", "--porcelain", "--untracked-files=no"], ["rev-parse", "--verify", "--quiet", "HEAD"])
    said = []
    for command in commands:
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *command], capture_output=True, text=True, check=False, timeout=60,
                stdin=subprocess.DEVNULL, env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode:
            return None
        said.append(done.stdout.strip())
    return said[1] if not said[0] else None
