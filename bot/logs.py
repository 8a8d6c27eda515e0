"""Fetches logs of failed jobs and has them diagnosed: one archive an attempt, bounded, cached by job."""

from __future__ import annotations

import itertools
import logging
import re
import tempfile
from collections.abc import Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, Field

from bot.github import BudgetError, GitHub, GitHubError
from bot.runs import Job, Run
from bot.safe_zip import HostileArchiveError, SafeZip
from matrix.errors import MatrixError
from matrix.masking import shown_line
from matrix.triage.model import LogReport

log = logging.getLogger("bot")

ARCHIVE_LIMIT = 64 << 20  # bytes of an attempt's archive as sent
UNPACKED_LIMIT = 1 << 30
LOG_LIMIT = 64 << 20  # bytes of one log that are read
_BEFORE, _AFTER, _LONGEST = 4, 6, 40  # lines of an excerpt around the evidence
_RUN_ID = re.compile(rb"\b\d{8}-\d{6}-[0-9a-f]{4}\b")

Diagnose = Callable[[Path, str], LogReport]


class JobLog(BaseModel):
    """What a job's log says. `state`: read, later (the run is not over), gone."""

    state: str = "read"
    report: LogReport | None = None
    excerpts: list[str] = Field(default_factory=list)  # one a cause
    anchors: list[str] = Field(default_factory=list)  # `step:4:12` of each cause, empty where it is not known
    matrix_runs: list[str] = Field(default_factory=list)  # ids of `matrix run`s that the log mentions


def diagnose_log(path: Path, job: str) -> LogReport:
    """Have the matrix's triage read a log."""
    from matrix.triage import diagnose  # noqa: PLC0415 - loads the rules

    return diagnose(path, job=job)


@dataclass
class Logs:
    """Reads logs for one event. Finished logs never change, so what was read is kept by job id."""

    github: GitHub
    diagnose: Diagnose = diagnose_log
    cache: MutableMapping[int, str] = field(default_factory=dict)  # job id -> JobLog as JSON
    short_of_budget: bool = False

    def of(self, run: Run, jobs: Iterable[Job]) -> dict[int, JobLog]:
        """Read the logs of these jobs of one run."""
        found: dict[int, JobLog] = {}
        todo: list[Job] = []
        for job in jobs:
            if text := self.cache.get(job.id):
                found[job.id] = JobLog.model_validate_json(text)
            else:
                todo.append(job)
        if not todo:
            return found
        archive = self._archive(run) if run.completed else None
        for job in todo:
            found[job.id] = self._one(run, job, archive)
            if found[job.id].state == "read":
                self.cache[job.id] = found[job.id].model_dump_json()
        return found

    def _archive(self, run: Run) -> SafeZip | None:
        try:
            url = self.github.location(f"/actions/runs/{run.id}/attempts/{run.attempt}/logs")
            data = self.github.download(url, ARCHIVE_LIMIT + 1) if url else None
            if data is None or len(data) > ARCHIVE_LIMIT:
                return None
            return SafeZip.open(data, UNPACKED_LIMIT)
        except (GitHubError, HostileArchiveError) as e:
            log.warning("archive of run %s: %s", run.id, e.message)
            return None
        except BudgetError:
            self.short_of_budget = True
            return None

    def _one(self, run: Run, job: Job, archive: SafeZip | None) -> JobLog:
        try:
            data, steps = _from_archive(archive, job) if archive else (None, {})
            if data is None:
                url = self.github.location(f"/actions/jobs/{job.id}/logs")
                data = self.github.download(url, LOG_LIMIT) if url else None
        except BudgetError:
            self.short_of_budget = True
            return JobLog(state="later")
        except (GitHubError, HostileArchiveError) as e:
            log.warning("log of job %s: %s", job.id, e.message)
            return JobLog(state="later")
        if not data:
            return JobLog(state="gone" if run.completed else "later")
        return self._read(job, data, steps)

    def _read(self, job: Job, data: bytes, steps: dict[int, bytes]) -> JobLog:
        with tempfile.TemporaryDirectory(prefix="bot-log-") as folder:
            path = Path(folder) / "job.log"
            path.write_bytes(data)
            try:
                report = self.diagnose(path, job.name)
            except MatrixError as e:
                log.warning("log of job %s cannot be diagnosed: %s", job.id, e.message)
                report = None
        lines = data.split(b"\n")
        causes = report.causes if report else []
        spans = [(c.line, min(max(c.end_line or c.line, c.line + _AFTER), c.line + _LONGEST)) for c in causes if c.line]
        return JobLog(
            report=report.model_copy(update={"path": job.name}) if report else None,
            excerpts=[_excerpt(lines, first, last) for first, last in spans],
            anchors=[_anchor(lines[first - 1], steps) for first, _ in spans],
            matrix_runs=sorted({found.decode() for found in _RUN_ID.findall(data)})[:20],
        )


def _excerpt(lines: list[bytes], line: int, last: int) -> str:
    picked = itertools.islice(lines, max(0, line - 1 - _BEFORE), last)
    return "\n".join(shown_line(one) for one in picked)


def file_name(name: str) -> str:
    """Make a job's or step's name as it stands in GitHub's archive: without slashes and colons, cut at 90 UTF-16
    units.
    """
    return re.sub("[/:]", "", name).encode("utf-16-le")[:180].decode("utf-16-le", "ignore")


def _from_archive(archive: SafeZip, job: Job) -> tuple[bytes | None, dict[int, bytes]]:
    """Return the job's whole log and, by number, those of its failed steps; (None, {}) if the archive has no such
    job.
    """
    name = file_name(job.name)
    whole = [n for n in archive.names if re.fullmatch(rf"-?\d+_{re.escape(name)}\.txt", n)]
    if len(whole) != 1:  # none, or two jobs whose names are alike once cut
        return None, {}
    numbers = dict(job.steps)
    steps = {
        int(found[1]): archive.read(n, LOG_LIMIT)
        for n in archive.names
        if n.startswith(f"{name}/") and (found := re.fullmatch(r"(\d+)_.*\.txt", n[len(name) + 1 :]))
        if not numbers or int(found[1]) in numbers
    }
    return archive.read(whole[0], LOG_LIMIT), steps


def _anchor(line: bytes, steps: dict[int, bytes]) -> str:
    """Say where GitHub's page shows this very line; empty unless exactly one step holds it exactly once."""
    if not line.strip():
        return ""
    needle = b"\n" + line + b"\n"
    hits: list[tuple[int, int]] = []
    for number, text in steps.items():
        padded = b"\n" + text + b"\n"
        at = padded.find(needle)
        if at >= 0:
            hits.append((number, padded.count(b"\n", 0, at + 1)))
            if padded.find(needle, at + 1) >= 0:
                return ""
    return f"step:{hits[0][0]}:{hits[0][1]}" if len(hits) == 1 else ""
