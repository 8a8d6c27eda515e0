"""After a run: its verdicts from what is remembered, and this run remembered too. Never the reason that a run fails."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from matrix.errors import MatrixError
from matrix.history import keeping
from matrix.history.covered import REPORT, FileCoverage, merge, total
from matrix.history.importing import tests_of
from matrix.history.remember import default_url, judge, judge_and_record
from matrix.records import JobRecord, RunRecord, Status, save
from matrix.run.folder import RECORD
from matrix.run.patience import PATIENCE, within
from matrix.spec.load import Spec

_PROBLEMS = 3  # of coverage that are told


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
    covered = _coverage(record, folder, spec.root)
    archive = keeping.name_of(record) if os.environ.get("MATRIX_ARCHIVE") else None
    try:
        tests = tests_of(record, folder)
        warning = judge_and_record(
            record, folder, url=url, spool=matrix_folder / "spool", tests=tests, commands=commands,
            covered=covered, archive=archive,
        )  # fmt: skip
    except (MatrixError, OSError) as e:
        warning = f"history: {e}"
    save(record, folder / RECORD)
    return warning


def keep_folder(record: RunRecord, folder: Path, spec: Spec) -> str | None:
    """Keep the folder of a finished run in the archive that `$MATRIX_ARCHIVE` names; return a warning if it is away."""
    try:
        return keeping.keep(record, folder, spec.root / ".matrix" / "spool", os.environ)
    except (MatrixError, OSError) as e:
        return f"archive: {e}"


def _coverage(record: RunRecord, folder: Path, root: Path) -> list[FileCoverage]:
    """Combine what the jobs covered, and say so on standard error."""
    try:
        files, problems = merge(record, folder, root)
    except OSError as e:
        files, problems = [], [str(e)]
    if files:
        print(f"matrix: {total(files).said()}: {folder / REPORT}", file=sys.stderr)
    for problem in problems[:_PROBLEMS]:
        print(f"matrix: coverage: {problem}", file=sys.stderr)
    if len(problems) > _PROBLEMS:
        print(f"matrix: coverage: and {len(problems) - _PROBLEMS} more", file=sys.stderr)
    return files
