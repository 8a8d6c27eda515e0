"""What the tests of a run covered, over all its jobs and shards: data files of coverage.py, combined.

Every attempt gets `COVERAGE_FILE` in its own folder, so `pytest --cov` of a job leaves its data beside its log.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from matrix.files import replace
from matrix.records import RunRecord

DATA = ".coverage"  # of an attempt, beside its log; coverage.py adds suffixes for parallel processes
REPORT = "coverage.json"


@dataclass(frozen=True, slots=True)
class FileCoverage:
    """Lines of one file that can run, and those that did; the same for lines that the change touches."""

    file: str
    statements: int
    covered: int
    changed: int = 0
    changed_covered: int = 0
    missing: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Total:
    """Sums over files."""

    statements: int
    covered: int
    changed: int
    changed_covered: int

    def said(self) -> str:
        """Say it in a line."""
        text = f"{self.covered} of {self.statements} lines covered ({_share(self.covered, self.statements)})"
        if self.changed:
            share = _share(self.changed_covered, self.changed)
            text += f", {self.changed_covered} of {self.changed} changed lines ({share})"
        return text


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "none"


def total(files: Iterable[FileCoverage]) -> Total:
    """Add up."""
    rows = [(f.statements, f.covered, f.changed, f.changed_covered) for f in files]
    return Total(*(sum(column) for column in zip(*rows, strict=True))) if rows else Total(0, 0, 0, 0)


def data_files(run: RunRecord, folder: Path) -> list[Path]:
    """Find the data of the last attempt of each job: an earlier attempt ran the same tests."""
    found = []
    for job in run.jobs:
        if job.attempts:
            beside = (folder / job.attempts[-1].log).with_suffix("")
            found += [p for p in sorted(beside.glob(f"{DATA}*")) if p.is_file() and not p.is_symlink()]
    return found


def merge(run: RunRecord, folder: Path, root: Path) -> tuple[list[FileCoverage], list[str]]:
    """Combine the data of all jobs, write coverage.json, and return its files and what could not be used.

    Paths of other hosts are mapped to the files of `root` by their longest common ending, or by `[paths]` of the
    repository's own configuration of coverage.py.
    """
    paths = data_files(run, folder)
    if not paths:
        return [], []
    try:
        from coverage import Coverage, CoverageData  # noqa: PLC0415 -- an optional extra
        from coverage.exceptions import CoverageException  # noqa: PLC0415
    except ModuleNotFoundError:
        return [], ["jobs left data of coverage.py, which is not installed here: install the extra `coverage`"]
    problems: list[str] = []
    with contextlib.chdir(root):  # where coverage.py looks for its configuration and for relative files
        cov = Coverage(data_file=None)
        into = cov.get_data()
        for path in paths:
            try:
                data = CoverageData(basename=str(path))
                data.read()
                into.update(data, map_path=lambda name: str(root / (here(name, root) or name)))
            except CoverageException as e:
                problems.append(f"{path.relative_to(folder)}: {' '.join(str(e).split())[:200]}")
        touched = changed_lines(root, run.base) if run.base else {}
        files = []
        for name in sorted(into.measured_files()):
            path = Path(name)
            if not path.is_relative_to(root) or not path.is_file():
                problems.append(f"{name}: no such file here, left out")
                continue
            try:
                _, statements, _, missing, _ = cov.analysis2(name)
            except CoverageException as e:
                problems.append(f"{name}: {' '.join(str(e).split())[:200]}")
                continue
            file = path.relative_to(root).as_posix()
            mine = touched.get(file, set()) & set(statements)
            files.append(
                FileCoverage(
                    file, len(statements), len(statements) - len(missing), len(mine), len(mine - set(missing)), missing
                )
            )
    document = {"schema": "coverage/1", "total": asdict(total(files)), "files": [asdict(f) for f in files]}
    replace(folder / REPORT, json.dumps(document, indent=1) + "\n")
    return files, problems


def here(name: str, root: Path) -> str | None:
    """Find the file of this checkout that a path of another host means: the longest ending that is there.

    A bare file name is only believed at the top of the checkout itself.
    """
    parts = [p for p in re.split(r"[/\\]+", name) if p and p != "."]
    if ".." in parts:
        return None
    for i in range(len(parts)):
        rest = "/".join(parts[i:])
        if (root / rest).is_file():
            return rest
    return None


def changed_lines(root: Path, base: str) -> dict[str, set[int]]:
    """Return the lines that differ from a commit, by file; nothing where git cannot say."""
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "diff", "--unified=0", "--no-color", "--no-ext-diff", "--find-renames",
             "--relative", base, "--"],
            capture_output=True, text=True, errors="replace", check=False, timeout=60, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return parse_diff(done.stdout) if done.returncode == 0 else {}


def parse_diff(text: str) -> dict[str, set[int]]:
    """Read a unified diff without context: the lines on its new side."""
    found: dict[str, set[int]] = {}
    lines: set[int] = set()
    left = 0  # lines of the hunk still to come: an added line may look like a header
    for line in text.splitlines():
        if left and line.startswith(("+", "-", "\\")):
            left -= not line.startswith("\\")
            continue
        if line.startswith("+++ "):
            name = line[4:].split("\t")[0]
            lines = found.setdefault(name[2:], set()) if name.startswith("b/") else set()
        elif hunk := re.match(r"@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(hunk[2]), int(hunk[3] or 1)
            lines.update(range(first, first + count))
            left = int(hunk[1] or 1) + count
    return found


def rows(run: str, files: Iterable[FileCoverage]) -> list[dict[str, Any]]:
    """Return what is stored of it."""
    return [
        {"run_id": run, "file": f.file[:500], "statements": f.statements, "covered": f.covered, "changed": f.changed,
         "changed_covered": f.changed_covered}
        for f in files
    ]  # fmt: skip
