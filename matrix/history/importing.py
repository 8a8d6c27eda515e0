"""Brings foreign results into the history: run folders of other hosts, JUnit files. GitHub's: `importing_github`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from matrix.errors import MatrixError, ToolError, UsageError
from matrix.history.rows import Rows, rows_of
from matrix.junit_file import TestResult, read_junit, read_report
from matrix.records import Attempt, JobRecord, RunRecord, SpecRef, Status, load
from matrix.triage.model import Cause
from matrix.triage.witness import witnessed

_MOST = 4 << 30  # bytes of a JUnit file, read piece by piece


@dataclass(frozen=True, slots=True)
class About:
    """What a JUnit file does not say itself."""

    job: str
    commit: str
    started: str | None = None
    pr: int | None = None
    author: str | None = None


def from_folders(path: Path) -> Iterator[Rows | MatrixError]:
    """Rows of a run folder or of all run folders in a folder, or what is wrong with one."""
    inner = [] if (path / "run.json").exists() else sorted(p.parent for p in path.glob("*/run.json"))
    for folder in inner or [path]:
        try:
            yield from_folder(folder)
        except MatrixError as e:
            yield e


def from_folder(folder: Path) -> Rows:
    """Rows of one run folder (or of its run.json): the record, and the tests of its junit files.

    Raises:
        UsageError: no run there, or one that cannot be read.

    """
    path = folder / "run.json" if folder.is_dir() else folder
    try:
        run = with_causes(read_record(path), path.parent)
        return rows_of(run, folder=str(path.parent.resolve()), tests=tests_of(run, path.parent))
    except ValueError as e:
        raise UsageError(f"{path}: {e}", "name a folder that `matrix run` wrote") from None


def read_record(path: Path) -> RunRecord:
    """Read a run.json; fields that this version does not know are left out, since another one may have written it.

    Raises:
        ToolError: the file is not there or is no run/1 document.

    """
    try:
        return load(path)
    except ToolError as refused:
        try:
            document = json.loads(path.read_bytes())
            RunRecord.model_validate(document)
        except ValidationError as e:
            if any(found["type"] != "extra_forbidden" for found in e.errors()):
                first = next(found for found in e.errors() if found["type"] != "extra_forbidden")
                where = ".".join(map(str, first["loc"]))
                raise ToolError(f"{path}: not a run/1 record: {where}: {first['msg'].lower()}") from None
            for found in e.errors():
                _drop(document, found["loc"])
            return RunRecord.model_validate(document)
        except (OSError, ValueError):
            pass
        raise refused from None


def _drop(document: Any, at: tuple[int | str, ...]) -> None:
    for key in at[:-1]:
        document = document[key]
    document.pop(at[-1], None)


def with_causes(run: RunRecord, folder: Path) -> RunRecord:
    """Read the logs of failed attempts whose causes nobody found yet: other tools write records too."""
    for job in run.jobs:
        for attempt in job.attempts:
            log = folder / attempt.log
            failed = (attempt.status or job.status) in (Status.FAILED, Status.TIMEOUT)
            if failed and not attempt.causes and attempt.log and log.is_file():
                from matrix.triage.diagnosis import diagnose  # noqa: PLC0415 -- most records have their causes

                attempt.causes = diagnose(log, exit_code=attempt.exit_code, job=job.name).causes
            elif failed and not attempt.causes:
                failing = _failing(folder, attempt) or job.failing_tests
                attempt.causes = [_of_tests(failing)] if failing else []
    return run


def _failing(folder: Path, attempt: Attempt) -> list[str]:
    """Return the tests that failed by the junit file beside a log that is not there."""
    path = (folder / attempt.log).with_suffix("") / "junit.xml" if attempt.log else folder / "none"
    return [r.test for r in read_junit(path) if r.counts] if path.is_file() else []


def _of_tests(failing: list[str]) -> Cause:
    """Return a cause that is the same wherever the same tests fail: nothing more is known without a log."""
    named = sorted(set(failing))
    found = witnessed("unknown", f"failed: {', '.join(named[:5])}", rule="failing-tests", about="\0".join(named))
    return found.model_copy(update={"tests": named, "confidence": 0.5})


def tests_of(run: RunRecord, folder: Path) -> dict[tuple[str, int], list[TestResult]]:
    """Results of single tests, from the junit file that each attempt left beside its log."""
    found: dict[tuple[str, int], list[TestResult]] = {}
    for job in run.jobs:
        for attempt in job.attempts:
            path = (folder / attempt.log).with_suffix("") / "junit.xml"
            if path.is_file():
                found[job.name, attempt.n] = read_junit(path)
    return found


def from_junit(path: Path, about: About) -> Rows:
    """Rows of a single JUnit file that some other tool wrote; the same file brought in twice is one run.

    Unless it is said when, it ran when the file says, else when the file was last written.

    Raises:
        UsageError: the file is no JUnit XML.

    """
    report = read_report(path, most=_MOST)
    at = about.started or report.started or datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
    failing = [r.test for r in report.results if r.counts]
    status = Status.FAILED if failing or not report.results else Status.PASSED
    causes = [_of_tests(failing)] if failing else []
    attempt = Attempt(n=1, started=at, status=status, log=path.name, causes=causes)
    record = JobRecord(name=about.job, suite=about.job, status=status, attempts=[attempt], failing_tests=failing)
    told = "\0".join((about.job, about.commit, str(about.pr), about.started or "", report.digest))
    run = RunRecord(
        id=f"junit-{hashlib.sha256(told.encode()).hexdigest()[:32]}", spec=SpecRef(path="", sha256=""), engine="import",
        host="", commit=about.commit, pr=about.pr, author=about.author, started=at, status=status, jobs=[record],
    )  # fmt: skip
    return rows_of(run, tests={(about.job, 1): report.results})
