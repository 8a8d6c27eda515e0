"""Quarantine: tests whose failures are shown and do not count, each with an owner, a reason, an issue and an end.

The file is `.matrix/quarantine.yaml`, kept in the repository:

quarantine:
  - test: tests/train/test_loss.py::test_resume
    owner: alice
    reason: the port of the store is taken now and then
    issue: https://github.com/o/r/issues/12
    expires: 2027-01-31
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from matrix.junit_file import EXCUSED
from matrix.spec.complain import sentence
from matrix.spec.document import parse, plain
from matrix.spec.fields import Date, Line
from matrix.spec.problems import Problem, SpecError, show_path
from matrix.triage.model import Cause

FILE = Path(".matrix/quarantine.yaml")
_MOST = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Entry:
    """A test (a whole node id, or the beginning of one: a file, a class, a test with all its parameters)."""

    test: str
    owner: str
    reason: str
    issue: str
    expires: str  # YYYY-MM-DD, the first day on which its failures count again
    job: str | None  # only in this job of the matrix
    line: int

    def covers(self, test: str, job: str | None) -> bool:
        """Whether this entry is about a test."""
        if self.job is not None and job is not None and job != self.job:
            return False
        rest = test.removeprefix(self.test)
        return test.startswith(self.test) and (not rest or rest[0] in "[:/" or self.test.endswith("/"))

    def said(self) -> str:
        """Say in a line why a failure does not count."""
        return f"{EXCUSED}{self.expires}: {self.reason} ({self.owner}, {self.issue})"

    def over(self) -> str:
        """Say that its time is over: whose it is, since when, what to do."""
        return (
            f"{FILE}:{self.line}: quarantine of {self.test} expired on {self.expires}: its failures count again; "
            f"{self.owner}: mend it and take the entry out, or set a later day ({self.reason}, {self.issue})"
        )


@dataclass(frozen=True, slots=True)
class Quarantine:
    """All entries of a repository."""

    entries: tuple[Entry, ...] = ()

    def of(self, test: str, today: str, job: str | None = None) -> Entry | None:
        """Find the entry by which a failure of a test does not count today."""
        return next((e for e in self.entries if today < e.expires and e.covers(test, job)), None)

    def expired(self, today: str) -> list[Entry]:
        """List the entries whose time is over: their failures count again."""
        return [e for e in self.entries if e.expires <= today]

    def expired_of(self, tests: Sequence[str], today: str, job: str) -> list[Entry]:
        """List the expired entries about any of these tests, unless another entry still covers it."""
        counting = [test for test in tests if self.of(test, today, job) is None]
        return [e for e in self.expired(today) if any(e.covers(test, job) for test in counting)]

    def told(self, tests: Sequence[str], today: str, job: str) -> list[str]:
        """Say of each of these failing tests that is quarantined until when, why and whose it is."""
        found = {test: self.of(test, today, job) for test in tests}
        return [f"{test} {entry.said()}" for test, entry in found.items() if entry is not None]

    def excuse(self, failing: Sequence[str], causes: Sequence[Cause], today: str, job: str) -> str | None:
        """Say why the failure of a job does not count: every test that failed is quarantined, and nothing else failed.

        A cause that names no test (a crash, a hand-off that is missing) always counts.
        """
        blamed = {test for c in causes for test in c.tests}
        if not failing or not causes or not all(c.tests for c in causes):
            return None
        found = {test: self.of(test, today, job) for test in {*failing, *blamed}}
        reasons = dict.fromkeys(e.said() for e in found.values() if e is not None)
        return "; ".join(reasons) if all(found.values()) else None


class _Entry(BaseModel):
    """A test whose failures are shown and do not count."""

    model_config = ConfigDict(extra="forbid")
    test: Line = Field(description="Node id: of a file, a class, a test with all its parameters, or one of these.")
    owner: Line = Field(description="Who mends it.")
    reason: Line = Field(description="Why it may fail for now; shown with every failure.")
    issue: Line = Field(description="Where it is followed up.")
    expires: Date = Field(description="The first day on which its failures count again.")
    job: Line | None = Field(None, description="Only in this job of the matrix.")


class QuarantineFile(BaseModel):
    """The tests in quarantine."""

    model_config = ConfigDict(extra="forbid")
    quarantine: list[_Entry] = Field(default_factory=list, description="The entries.")


def load(root: Path) -> Quarantine:
    """Read the quarantine of a repository; none where there is no file.

    Raises:
        SpecError: every mistake in it, with its line.

    """
    path = root / FILE
    try:
        with path.open("rb") as f:
            data = f.read(_MOST + 1)
    except FileNotFoundError:
        return Quarantine()
    except OSError as e:
        raise SpecError(str(path), [Problem(0, "", (e.strerror or str(e)).lower())]) from None
    return read(data, str(path))


def read(text: bytes, path: str) -> Quarantine:
    """Read the text of a quarantine file; `path` names it in what is said of mistakes.

    Raises:
        SpecError: every mistake in it, with its line.

    """
    document = parse(text)
    problems = list(document.problems)
    data = plain(document.data)
    if not problems and data is not None:
        try:
            listed = QuarantineFile.model_validate(data).quarantine
        except ValidationError as e:
            problems = [
                Problem(document.line(error["loc"]), show_path(error["loc"]), sentence(error, QuarantineFile))
                for error in e.errors()
            ]
        else:
            return Quarantine(
                tuple(
                    Entry(e.test, e.owner, e.reason, e.issue, e.expires, e.job, document.line(("quarantine", i)))
                    for i, e in enumerate(listed)
                )
            )
    if problems:
        raise SpecError(path, problems)
    return Quarantine()
