"""After a run: its verdicts from what is remembered, and this run remembered too. Never the reason that a run fails."""

from __future__ import annotations

import os
from pathlib import Path

from matrix.errors import MatrixError
from matrix.history.importing import tests_of
from matrix.history.remember import default_url, judge_and_record
from matrix.records import RunRecord, save
from matrix.run.folder import RECORD


def remember(record: RunRecord, folder: Path, root: Path) -> str | None:
    """Fill in the verdicts, save them, and store the run; return a warning where that was not possible."""
    matrix_folder = root / ".matrix"
    url = default_url(matrix_folder, os.environ)
    try:
        tests = tests_of(record, folder)
        warning = judge_and_record(record, folder, url=url, spool=matrix_folder / "spool", tests=tests)
    except (MatrixError, OSError) as e:
        warning = f"history: {e}"
    save(record, folder / RECORD)
    return warning
