"""Reads JUnit XML, pytest's and other tools': which test, by its pytest node id, with what outcome."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET
from xml.parsers import expat

from matrix.errors import UsageError

MAX_BYTES = 64 << 20
_ORDER = ("passed", "skipped", "failed", "error")


@dataclass(frozen=True)
class TestResult:
    """Outcome of one test: passed, skipped, failed or error."""

    __test__ = False  # not a test class, whatever pytest makes of the name

    test: str
    outcome: str
    seconds: float | None = None


def read_junit(path: Path) -> list[TestResult]:
    """Read the results in a JUnit file; a test that is listed twice counts once, at its worst.

    Raises:
        UsageError: no JUnit XML, cut off, too large, or with a document type (which JUnit needs not, and bombs do).

    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(f"{path}: larger than {MAX_BYTES >> 20} MiB", "name a JUnit file, not a log")
        raw = path.read_bytes()
        _refuse_document_type(raw)
        root = ET.fromstring(raw)  # noqa: S314 - without document type
    except _DocumentTypeError:
        raise UsageError(f"{path}: has a document type", "JUnit files need none") from None
    except (ET.ParseError, expat.ExpatError, ValueError) as e:
        raise UsageError(f"{path}: not XML: {e}", "name a JUnit file") from None
    except OSError as e:
        raise UsageError(f"{path}: {e.strerror or e}", "name a JUnit file") from None
    worst: dict[str, TestResult] = {}
    for case in root.iter("testcase"):
        result = TestResult(node_id(case), _outcome(case), _seconds(case))
        old = worst.get(result.test)
        if old is None or _ORDER.index(result.outcome) > _ORDER.index(old.outcome):
            worst[result.test] = result
    return list(worst.values())


class _DocumentTypeError(Exception):
    pass


def _refuse_document_type(raw: bytes) -> None:
    """Stop at a document type, in whatever encoding: looking for its letters would miss it in UTF-16."""

    def found(*_: object) -> None:
        raise _DocumentTypeError

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = found
    parser.Parse(raw, True)


def node_id(case: ET.Element) -> str:
    """Make a node id of `tests.a.test_b.TestC` and `test_d[x]`: classes begin with a capital letter, modules do not."""
    parts = [p for p in (case.get("classname") or "").split(".") if p]
    split = next((i for i, p in enumerate(parts) if p[:1].isupper()), len(parts))
    file = "/".join(parts[:split]) + ".py" if split else ""
    return "::".join([*([file] if file else []), *parts[split:], case.get("name") or ""])


def _outcome(case: ET.Element) -> str:
    tags = {child.tag for child in case}
    return next(
        (o for t, o in (("error", "error"), ("failure", "failed"), ("skipped", "skipped")) if t in tags), "passed"
    )


def _seconds(case: ET.Element) -> float | None:
    with contextlib.suppress(ValueError):
        return float(case.get("time", ""))
    return None
