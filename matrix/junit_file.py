"""Reads JUnit XML, pytest's and other tools': which test, by its pytest node id, with what outcome."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast
from xml.etree import ElementTree as ET
from xml.parsers import expat

from matrix.errors import UsageError

MAX_BYTES = 64 << 20
EXCUSED = "quarantined until "  # how our plugin begins what it says of a failure that does not count
_ORDER = ("passed", "skipped", "failed", "error")


@dataclass(frozen=True)
class TestResult:
    """Outcome of one test: passed, skipped, failed or error."""

    __test__ = False  # not a test class, whatever pytest makes of the name

    test: str
    outcome: str
    seconds: float | None = None
    excused: str | None = None  # of a failure that does not count: what the quarantine says of it

    @property
    def counts(self) -> bool:
        """Whether it is a failure that makes its job fail."""
        return self.outcome in ("failed", "error") and self.excused is None


@dataclass(frozen=True)
class Report:
    """What a JUnit file says."""

    results: list[TestResult]
    started: str | None  # ISO time, of the first suite that tells one
    digest: str  # of the content


def read_junit(path: Path) -> list[TestResult]:
    """Read the results in a JUnit file; a test that is listed twice counts once, at its worst.

    Raises:
        UsageError: no JUnit XML, cut off, too large, or with a document type (which JUnit needs not, and bombs do).

    """
    return read_report(path).results


def read_report(path: Path, *, most: int = MAX_BYTES) -> Report:
    """Read a JUnit file, compressed or not, piece by piece.

    Raises:
        UsageError: no JUnit XML, cut off, larger than `most` bytes, or with a document type.

    """
    reader = _Reader()
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream = gzip.GzipFile(fileobj=raw) if packed else raw
            while piece := stream.read(1 << 20):
                reader.feed(piece)
                if reader.size > most:
                    raise UsageError(f"{path}: larger than {most >> 20} MiB", "name a JUnit file, not a log")
        return reader.close()
    except _DocumentTypeError:
        raise UsageError(f"{path}: has a document type", "JUnit files need none") from None
    except (ET.ParseError, expat.ExpatError, ValueError, EOFError, zlib.error) as e:
        raise UsageError(f"{path}: not XML: {e}", "name a JUnit file") from None
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror or e}", "name a JUnit file") from None


class _DocumentTypeError(Exception):
    pass


class _Reader:
    """Takes a file piece by piece and keeps the results only."""

    def __init__(self) -> None:
        self.size = 0
        self.started: str | None = None
        self._worst: dict[str, TestResult] = {}
        self._hash = hashlib.sha256()
        self._pull: ET.XMLPullParser[ET.Element] = ET.XMLPullParser(["start", "end"])
        # Stops at a document type, in whatever encoding: looking for its letters would miss it in UTF-16.
        self._guard = expat.ParserCreate()
        self._guard.StartDoctypeDeclHandler = self._refuse

    def _refuse(self, *_: object) -> None:
        raise _DocumentTypeError

    def feed(self, piece: bytes) -> None:
        self.size += len(piece)
        self._hash.update(piece)
        self._guard.Parse(piece, False)
        self._pull.feed(piece)
        self._take()

    def close(self) -> Report:
        self._guard.Parse(b"", True)
        self._pull.close()
        self._take()
        return Report(list(self._worst.values()), self.started, self._hash.hexdigest())

    def _take(self) -> None:
        for event, element in cast("Iterator[tuple[str, ET.Element]]", self._pull.read_events()):
            tag = _local(element)
            if event == "start" and tag == "testsuite" and self.started is None:
                self.started = _time(element.get("timestamp"))
            elif event == "end" and tag == "testcase":
                excused = _excused(element)
                outcome = "failed" if excused else _outcome(element)
                self._add(TestResult(node_id(element), outcome, _seconds(element), excused))
                element.clear()

    def _add(self, result: TestResult) -> None:
        old = self._worst.get(result.test)
        if old is None or _rank(result) > _rank(old):
            self._worst[result.test] = result


def _rank(result: TestResult) -> tuple[int, bool]:
    return _ORDER.index(result.outcome), result.excused is None


def _local(element: ET.Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _time(text: str | None) -> str | None:
    """Return an ISO time with its zone; one without is of UTC, as most tools mean it."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).isoformat()


def node_id(case: ET.Element) -> str:
    """Make a node id of `tests.a.test_b.TestC` and `test_d[x]`: classes begin with a capital letter, modules do not.

    What is no dotted name (jest's sentences, gtest's `Suite/Test`) stands as it is.
    """
    classname, name = case.get("classname") or "", case.get("name") or ""
    if not re.fullmatch(r"[\w.\[\]-]*", classname):
        return f"{classname}::{name}"
    parts = [p for p in classname.split(".") if p]
    split = next((i for i, p in enumerate(parts) if p[:1].isupper()), len(parts))
    file = "/".join(parts[:split]) + ".py" if split else ""
    return "::".join([*([file] if file else []), *parts[split:], name])


def _outcome(case: ET.Element) -> str:
    tags = {_local(child) for child in case}
    if not tags & {"error", "failure"} and (case.get("status") == "notrun" or case.get("result") == "suppressed"):
        return "skipped"  # gtest's disabled tests
    return next(
        (o for t, o in (("error", "error"), ("failure", "failed"), ("skipped", "skipped")) if t in tags), "passed"
    )


def _excused(case: ET.Element) -> str | None:
    """Return what the quarantine says of a failure that our plugin turned into an expected one."""
    tags = {_local(child): child for child in case}
    if tags.keys() & {"error", "failure"} or "skipped" not in tags:
        return None
    said = tags["skipped"].get("message") or ""
    return said if tags["skipped"].get("type") == "pytest.xfail" and said.startswith(EXCUSED) else None


def _seconds(case: ET.Element) -> float | None:
    with contextlib.suppress(ValueError):
        return float(case.get("time", ""))
    return None
