"""What an attempt left to be read: facts, and the results of its tests. Written by strangers, so bounded."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from matrix import junit_file
from matrix.errors import UsageError
from matrix.records import Fact

MAX_FACTS = 1000
MAX_FACT_BYTES = 64 << 10


def read_facts(path: Path, shown: str) -> list[Fact]:
    """Read the JSON lines that a job wrote to $MATRIX_FACTS; lines that are none are counted in a fact of their own."""
    facts: list[Fact] = []
    bad: list[int] = []
    try:
        with path.open("rb") as f:
            n = 0
            while len(facts) < MAX_FACTS and (line := f.readline(MAX_FACT_BYTES)):
                n += 1
                if not line.strip():
                    continue
                fact = _fact(line, f"{shown}:{n}")
                if fact:
                    facts.append(fact)
                else:
                    bad.append(n)
    except FileNotFoundError:
        return []
    except OSError as e:
        return [Fact(key="facts_unreadable", value=e.strerror, source=shown)]
    if bad:
        facts.append(Fact(key="facts_unreadable", value=f"{len(bad)} lines", source=f"{shown}:{bad[0]}"))
    return facts


def _fact(line: bytes, source: str) -> Fact | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    if not isinstance(found, dict) or not isinstance(found.get("key"), str) or "value" not in found:
        return None
    return Fact(key=found["key"], value=found["value"], source=source)


@dataclass(frozen=True, slots=True)
class Tests:
    """What pytest's XML file says."""

    ran: int = 0  # skipped ones did not
    skipped: int = 0
    failing: list[str] = field(default_factory=list)
    excused: list[str] = field(default_factory=list)  # failures that do not count: which, and what is said of them


def read_junit(path: Path) -> Tests | None:
    """Read pytest's XML results; None where there is no whole file (the run broke off)."""
    try:
        results = junit_file.read_junit(path)
    except UsageError:
        return None
    skipped = sum(r.outcome == "skipped" for r in results)
    failing = [r.test for r in results if r.counts]
    excused = [f"{r.test} {r.excused}" for r in results if r.excused]
    return Tests(len(results) - skipped, skipped, failing, excused)
