"""What an attempt left to be read: facts, and the results of its tests. Written by strangers, so bounded."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

from matrix.records import Fact

MAX_FACTS = 1000
MAX_FACT_BYTES = 64 << 10
MAX_JUNIT_BYTES = 64 << 20


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


def read_junit(path: Path) -> Tests | None:
    """Read pytest's XML results; None where there is no whole file (the run broke off)."""
    try:
        if path.stat().st_size > MAX_JUNIT_BYTES:
            return None
        raw = path.read_bytes()
        if b"<!DOCTYPE" in raw[:4096] or b"<!ENTITY" in raw:
            return None  # pytest writes none; entities can blow a small file up
        tree = ET.fromstring(raw)  # noqa: S314 -- without document type
    except (OSError, ET.ParseError):
        return None
    ran = skipped = 0
    failing = []
    for case in tree.iter("testcase"):
        if case.find("skipped") is not None:
            skipped += 1
            continue
        ran += 1
        if case.find("failure") is not None or case.find("error") is not None:
            failing.append(_node_id(case))
    return Tests(ran, skipped, failing)


def _node_id(case: ET.Element) -> str:
    """Make a node id of `tests.a.test_b.TestC` and `test_d[x]`: classes begin with a capital letter, modules do not."""
    parts = [p for p in (case.get("classname") or "").split(".") if p]
    split = next((i for i, p in enumerate(parts) if p[:1].isupper()), len(parts))
    file = "/".join(parts[:split]) + ".py" if split else ""
    return "::".join([*([file] if file else []), *parts[split:], case.get("name") or ""])
