"""Failing tests of the other runners that a model repository's CI meets: jest, vitest, mocha, cargo, go, gtest, ctest, JVM, .NET, TAP."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from matrix.triage.frames.model import Incident
from matrix.triage.lines import Line
from matrix.triage.store import LineStore

MARKS = frozenset({"test_word", "test_other", "cross", "tool", "make"})
AHEAD = 40  # lines in which a test's own message stands after or before its name

_AFTER = (  # the message follows the name
    re.compile(r"\s*● (?P<id>(?!Console|Validation|Deprecation)\S.*)$"),
    re.compile(r"\s?FAIL  (?P<id>\S+(?: > .+| \[ .+ \]))$"),
    re.compile(r"\s*--- FAIL: (?P<id>\S+) \([\d.]+s\)"),
    re.compile(r"(?P<id>[\w.$]+ > \S.*) FAILED$"),
    re.compile(r"\[ERROR\] (?P<id>[\w.$]+\.\w+(?:\[.*\])?) -- Time elapsed: .* <<< (?:FAILURE|ERROR)!"),
    re.compile(r"\[ERROR\] (?P<method>\w+)\((?P<class>[\w.$]+)\)\s+Time elapsed: .* <<< (?:FAILURE|ERROR)!"),
    re.compile(r"\s+Failed (?P<id>[\w.]+(?:\(.*\))?) \[(?:< )?\d+ m?s\]"),
    re.compile(r"\s*\(fail\) (?P<id>.+?)(?: \[[\d.]+ms\])?$"),
    re.compile(r"not ok \d+ (?:- )?(?P<id>(?!.*# (?:TODO|SKIP)).+)$"),
    re.compile(r"(?:rspec|cucumber) (?P<id>\S+:\d+) # "),
    re.compile(r"\s*\d+/\d+ Test +#\d+: (?P<id>\S+) \.+\s*\*\*\*(?:Failed|Exception|Timeout|Not Run)"),
    re.compile(r"Test Case '(?P<id>[^']+)' failed \("),
)
_BEFORE = (  # the message came before the name
    re.compile(r"\[  FAILED  \] (?P<id>[\w/]+\.[\w/]+)(?:, where .*| \(\d+ ms\))?$"),
    re.compile(r"test (?P<id>\S+)(?: - .*)? \.\.\. FAILED$"),
)
_MOCHA = re.compile(r"\s+\d+ failing$")
_MOCHA_ITEM = re.compile(r"\s+(?P<n>\d+)\) (?P<id>.+)$")
_MESSAGE = re.compile(
    r"\s*(?:(?:E\s+)?(?:[\w$]+[.:]{1,2})*[\w$]*(?:Error|Exception|Failure|Failed|Timeout)\b.*|expect\(.*|Cannot find .*|assert.*|thread '.*' .*panicked at.*|.*: Failure$"
    r"|\S+\.\w+:\d+(?::\d+)?: .+|panic: .*|Expected.*|.*timed? ?out.*)"
)
_PANIC = re.compile(r"thread '(?P<id>[^']+)' .*panicked at ")
_SUITE = re.compile(r"\s?FAIL\s+(?P<file>\S+\.[cm]?[jt]sx?)\b")


@dataclass(slots=True)
class _State:
    store: LineStore
    incidents: list[Incident] = field(default_factory=list)
    failing: dict[str, None] = field(default_factory=dict)
    panics: dict[str, Line] = field(default_factory=dict)
    suite: str = ""
    mocha: bool = False


def read_other_tests(store: LineStore, lines: list[int]) -> tuple[list[Incident], list[str]]:
    """Read failing tests; `lines` are those with a mark of MARKS, in order. Gives incidents and ids."""
    state = _State(store)
    for no in lines:
        line = store.line(no)
        if line is not None and line.body:
            _see(state, line)
    return state.incidents, list(state.failing)


def _see(state: _State, line: Line) -> None:
    body = line.body
    if found := _PANIC.match(body):
        state.panics.setdefault(found["id"], line)
    if found := _SUITE.match(body):
        state.suite = found["file"].removeprefix("./")
    if _MOCHA.match(body):
        _mocha(state, line)
        return
    for pattern in _AFTER:
        if found := pattern.match(body):
            groups = found.groupdict()
            name = groups.get("id") or f"{groups['class']}.{groups['method']}"
            _add(state, name, line, _message(state.store, line, range(line.no + 1, line.no + AHEAD)))
            return
    for pattern in _BEFORE:
        if found := pattern.match(body):
            name = found["id"]
            _add(
                state,
                name,
                line,
                state.panics.get(name)
                or _panic_after(state.store, name, line)
                or _message(state.store, line, range(line.no - 1, line.no - AHEAD, -1)),
            )
            return


def _add(state: _State, name: str, line: Line, message: Line | None) -> None:
    if name == "Test suite failed to run":
        name = state.suite or name
    if name in state.failing:
        return
    state.failing[name] = None
    key = message or line
    found = Incident(
        "test",
        key.no,
        min(line.no, key.no),
        max(line.no, key.no),
        key.text,
        key.body.strip(),
        [key],
        key.stream,
        key.rank,
    )
    found.tests, found.fatal = [name], 0.93
    state.incidents.append(found)


def _message(store: LineStore, name: Line, numbers: range) -> Line | None:
    """The line near a failing test's name that says what was wrong."""
    for no in numbers:
        line = store.line(no)
        if line is None or (no > name.no and any(p.match(line.body) for p in _AFTER)):
            return None
        if line.body.strip() and _MESSAGE.match(line.body):
            return line
    return None


def _panic_after(store: LineStore, name: str, line: Line) -> Line | None:
    """Rust prints the names first and each test's output after all of them."""
    for no in range(line.no + 1, line.no + 2000):
        at = store.line(no)
        if at is None:
            return None
        if (found := _PANIC.match(at.body)) and found["id"] == name:
            return at
    return None


def _mocha(state: _State, head: Line) -> None:
    """Mocha's list of failures: a number, then suite and test one below the other up to a colon."""
    parts: list[str] = []
    first: Line | None = None
    for no in range(head.no + 1, head.no + 400):
        line = state.store.line(no)
        if line is None:
            return
        if found := _MOCHA_ITEM.match(line.body):
            parts, first = [found["id"]], line
        elif first is not None and line.body.strip():
            parts.append(line.body.strip())
        if first is not None and parts[-1].endswith(":"):
            name = " ".join(parts).removesuffix(":")
            _add(state, name, first, _message(state.store, first, range(no + 1, no + 12)))
            first, parts = None, []
