"""Jobs of a matrix as pytest items. An item runs nothing: it waits for its job's record and reports it."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback

from matrix.errors import MatrixError, ToolError
from matrix.records import BAD, FINAL, JobRecord, RunRecord, Status, load
from matrix.run.folder import RECORD
from matrix.spec.job import Job
from matrix.spec.load import FILE_NAME, find, read
from matrix.testing.meeting import Meeting
from matrix.testing.text import failure_text, message

_POLL = 0.1  # seconds between looks at the record
_SETTLED = 0.3  # seconds that a failure must stand: a job that is tried again fails only for a moment


class JobFailedError(Exception):
    """A job did not pass."""


class Jobs:
    """Collects the jobs of the matrix that the command line asks for."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        given, _, selected = str(config.getoption("matrix")).partition("::")
        try:
            self.spec = _spec_path(given, config.invocation_params.dir)
        except MatrixError as e:
            advice = (e.advice or "").replace("matrix run PATH", "--matrix=PATH")
            raise pytest.UsageError(f"{e.message}; {advice}" if advice else e.message) from None
        wanted = f"{self.spec}::{selected}" if selected else str(self.spec)
        named = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else []
        here = {str(self.spec), self.spec.name}
        config.args = [*named, *([] if any(a.split("::")[0] in here for a in named) else [wanted])]

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Make the matrix file a collector."""
        return MatrixFile.from_parent(parent, path=file_path) if file_path == self.spec else None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Report how long the job took, rather than how long it was waited for."""
        report = yield
        if isinstance(item, JobItem) and call.when == "call" and item.took is not None:
            report.duration = item.took
        return report


class MatrixFile(pytest.File):
    """A matrix file."""

    def collect(self) -> Iterator[JobItem]:
        """Yield an item for each job."""
        try:
            spec = read(self.path)
        except MatrixError as e:
            raise self.CollectError(e.message) from None
        for job in spec.jobs:
            yield JobItem.from_parent(self, name=job.name, job=job)


class JobItem(pytest.Item):
    """A job."""

    def __init__(self, *, job: Job, **kwargs: object) -> None:
        super().__init__(**kwargs)  # type: ignore[arg-type]
        self.job = job
        self.run: RunRecord | None = None
        self.folder: Path | None = None
        self.took: float | None = None
        self.extra_keyword_matches.update({job.suite, *job.tags})
        names = [
            *job.tags,
            *(["single_card"] if job.cards.count == 1 else []),
            *(["multi_card"] if job.cards.count > 1 else []),
        ]
        for name in names:
            if name.isidentifier():
                self.config.addinivalue_line("markers", f"{name}: a tag of the matrix")
                self.add_marker(getattr(pytest.mark, name))
        if job.cards.count:
            self.add_marker(pytest.mark.cards(job.cards.count))
        if self.config.pluginmanager.has_plugin("timeout"):
            self.add_marker(pytest.mark.timeout(0))  # the job has a limit of its own

    def runtest(self) -> None:
        """Wait for the job's record; fail, skip or pass by it."""
        self.run, self.folder, record = self._wait()
        self._describe(record)
        if record.status in BAD:
            if record.allowed:
                pytest.xfail(f"{message(record)} (allowed: {record.reason})")
            raise JobFailedError(message(record))
        if record.status is Status.SKIPPED:
            pytest.skip(record.reason or "not selected")

    def _wait(self) -> tuple[RunRecord, Path, JobRecord]:
        meeting = Meeting.of(self.config)
        stands: tuple[Status, int] | None = None
        since = 0.0
        while True:
            ended = meeting.ended()
            folder = meeting.folder()
            run = _load(folder) if folder else None
            record = next((j for j in run.jobs if j.name == self.name), None) if run else None
            if run and folder and record and record.status in FINAL:
                now = (record.status, len(record.attempts))
                if now != stands:
                    stands, since = now, time.monotonic()
                good = record.status in (Status.PASSED, Status.SKIPPED)
                if good or ended is not None or time.monotonic() - since > _SETTLED:
                    return run, folder, record
            elif ended is not None:
                pytest.fail(ended, pytrace=False)
            time.sleep(_POLL)

    def _describe(self, record: JobRecord) -> None:
        from matrix.report.view import cards, took  # noqa: PLC0415 -- the reports load slowly

        assert self.run is not None
        last = record.attempts[-1] if record.attempts else None
        self.took = took(record)
        causes = last.causes if last and record.status in BAD else []
        self.user_properties += [
            ("cards", cards(last)),
            ("status", str(record.status)),
            ("category", causes[0].category if causes else ""),
            ("run", self.run.id),
            ("log", f"{self.folder}/{last.log}" if last else ""),
        ]

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> object:  # type: ignore[override]  # noqa: ARG002
        """Show cause and evidence instead of a traceback through this file."""
        if not isinstance(excinfo.value, JobFailedError):
            return super().repr_failure(excinfo)
        assert self.run is not None
        assert self.folder is not None
        text = failure_text(self.run, self.run.job(self.name), self.folder)
        where = ReprFileLocation(str(self.path), self.job.line, str(excinfo.value))
        entries = [ReprEntryNative([line + "\n" for line in text.splitlines()])]
        return ReprExceptionInfo(reprtraceback=ReprTraceback(entries, None, "native"), reprcrash=where)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Say where the job stands in the matrix."""
        return self.path, max(0, self.job.line - 1), self.name


def _spec_path(given: str, cwd: Path) -> Path:
    if not given:
        return find(cwd)
    path = cwd / given
    path = path / FILE_NAME if path.is_dir() else path
    if path.suffix not in (".yaml", ".yml") or not path.is_file():
        raise ToolError(f"--matrix {given}: no matrix file", "write --matrix=matrix.yaml, or put --matrix last")
    return path.resolve()


def _load(folder: Path) -> RunRecord | None:
    try:
        return load(folder / RECORD)
    except ToolError:
        return None
