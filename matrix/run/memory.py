"""After a run: its verdicts from what is remembered, and this run remembered too. Never the reason that a run fails."""

from __future__ import annotations

import os
from pathlib import Path

from matrix.errors import MatrixError
from matrix.history.importing import tests_of
from matrix.history.remember import default_url, judge, judge_and_record
from matrix.records import JobRecord, RunRecord, Status, save
from matrix.run.folder import RECORD
from matrix.run.patience import PATIENCE, within
from matrix.spec.load import Spec


def verdict_now(record: RunRecord, job: JobRecord, folder: Path, spec: Spec) -> str:
    """Return what the history says of the last attempt of a job; `cannot-tell` where it does not answer soon."""
    only = record.model_copy(update={"jobs": [job.model_copy(deep=True)]})
    only.jobs[0].status = job.attempts[-1].status or Status.FAILED
    commands = {each.name: " ".join(each.command) for each in spec.jobs if each.name == job.name}
    url = default_url(spec.root / ".matrix", os.environ)
    try:
        within(PATIENCE, lambda: judge(only, folder, url=url, commands=commands))
    except (MatrixError, OSError, TimeoutError):
        return "cannot-tell"
    found = only.jobs[0].verdict
    return found.value if found else "cannot-tell"


def remember(record: RunRecord, folder: Path, spec: Spec) -> str | None:
    """Fill in the verdicts, save them, and store the run; return a warning where that was not possible."""
    matrix_folder = spec.root / ".matrix"
    commands = {job.name: " ".join(job.command) for job in spec.jobs}
    url = default_url(matrix_folder, os.environ)
    try:
        tests = tests_of(record, folder)
        warning = judge_and_record(
            record, folder, url=url, spool=matrix_folder / "spool", tests=tests, commands=commands
        )
    except (MatrixError, OSError) as e:
        warning = f"history: {e}"
    save(record, folder / RECORD)
    return warning
