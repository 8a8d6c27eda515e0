"""Failures of quarantined tests are shown and do not count; an entry whose time is over is told loudly."""

from __future__ import annotations

import os
from collections.abc import Generator
from datetime import date

import pytest

from matrix.errors import MatrixError
from matrix.history.quarantine import load
from matrix.junit_file import EXCUSED

_JOB = "MATRIX_JOB"  # set by the runner: an entry may be for one job only


class Quarantined:
    """Applies `.matrix/quarantine.yaml` to the tests of a session."""

    def __init__(self, config: pytest.Config) -> None:
        self.today = date.today().isoformat()  # noqa: DTZ011 -- the reader's day
        try:
            self.quarantine = load(config.rootpath)
        except MatrixError as e:
            raise pytest.UsageError(e.message) from None
        self.seen: list[pytest.TestReport] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Turn a failure into an expected one."""
        report = yield
        entry = self.quarantine.of(item.nodeid, self.today, os.environ.get(_JOB)) if report.failed else None
        if entry is not None:
            report.outcome = "skipped"
            report.wasxfail = entry.said()
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember what is to be shown at the end."""
        if str(getattr(report, "wasxfail", "")).startswith(EXCUSED):
            self.seen.append(report)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the failures that do not count, and the entries that have expired."""
        if self.seen:
            terminalreporter.section("quarantined failures (do not count)", yellow=True)
            for report in self.seen:
                terminalreporter.write_line(f"{report.nodeid}: {report.wasxfail}")
                lines = str(report.longrepr or "").splitlines()
                terminalreporter.write_line("\n".join(f"    {line}" for line in lines[-15:]))
        expired = self.quarantine.expired(self.today)
        if expired:
            terminalreporter.section("QUARANTINE EXPIRED", red=True, bold=True)
            for e in expired:
                terminalreporter.write_line(
                    f".matrix/quarantine.yaml:{e.line}: {e.test}: its failures count again since {e.expires}: "
                    f"mend it, or ask {e.owner} ({e.issue})",
                    red=True,
                )
