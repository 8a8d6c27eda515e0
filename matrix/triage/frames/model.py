"""What the frames hand to the ranking."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from matrix.triage.lines import Line

Kind = Literal["python", "test", "crash", "exception", "tool", "signal", "exit", "launcher", "runner", "word"]


@dataclass(slots=True)
class Incident:
    """Something in the log that may be a failure: one traceback chain, one failing test, one tool's error line."""

    kind: Kind
    line: int  # the line that a person should read first
    start: int
    end: int
    text: str  # of `line`, as shown
    body: str  # of `line`, as rules see it
    keys: list[Line] = field(default_factory=list)  # lines that name the failure, innermost first
    stream: str = ""
    rank: int | None = None
    exception: str = ""  # class name of the innermost exception, without its module
    frames: list[tuple[str, int, str]] = field(default_factory=list)  # (file, line, function), innermost last
    tests: list[str] = field(default_factory=list)
    fatal: float = 0.5  # how sure it is that this ended something
    wrapper: bool = False  # tells of another process's failure
    handled: bool = False  # caught, retried, expected, or in a step that passed
    step: int = 0
    one_of_many: bool = False  # one process of several printed it: a rank, or one run of a loop that went on

    more: list[list[Line]] = field(default_factory=list)  # for each key, the other lines of its message
    context: list[Line] = field(default_factory=list)  # what the report says around it: heading, summary

    @classmethod
    def at(cls, kind: Kind, line: Line, fatal: float, body: str | None = None) -> Incident:
        """An incident of one line."""
        key = line if body is None else line._replace(body=body)
        made = cls(kind, line.no, line.no, line.no, line.text, key.body.strip(), [key])
        made.stream, made.rank, made.fatal = line.stream, line.rank, fatal
        return made

    @property
    def where(self) -> frozenset[str]:
        """Structural conditions (`rule_model.Where`) that its lines meet."""
        where = _WHERE[self.kind]
        if self.tests:
            where |= {"test"}
        if self.one_of_many and self.kind == "python" and in_own_code(self.frames):
            where |= {"rank"}
        return where


def in_own_code(frames: list[tuple[str, int, str]]) -> bool:
    """True if the innermost Python frame is neither an installed package's nor the standard library's."""
    return bool(frames) and _LIBRARY.search(frames[-1][0]) is None


_LIBRARY = re.compile(r"site-packages|dist-packages|/lib/python\d|<frozen|\.pyx$|[\\/]Lib[\\/]")


_WHERE: dict[str, frozenset[str]] = {
    "python": frozenset({"any", "exception", "error_line"}),
    "test": frozenset({"any", "exception", "error_line", "summary"}),
    "crash": frozenset({"any", "exception", "error_line", "launcher"}),
    "exception": frozenset({"any", "exception", "error_line"}),
    "tool": frozenset({"any", "error_line", "exception"}),
    "signal": frozenset({"any", "launcher", "exit"}),
    "exit": frozenset({"any", "exit", "launcher"}),
    "launcher": frozenset({"any", "launcher", "summary"}),
    "runner": frozenset({"any", "exit", "error_line"}),
    "word": frozenset({"any", "error_line", "exit", "summary", "launcher"}),
}


@dataclass(slots=True)
class Step:
    """A stretch of the log that one command or stage printed."""

    name: str
    start: int
    end: int = 0
    status: Literal["passed", "failed", "unknown"] = "unknown"
    exit_code: int | None = None
    failed_at: int | None = None  # the runner's line that says so
    script: tuple[int, int] = (0, -1)  # the lines that only show the step's own script


@dataclass(slots=True)
class Verdict:
    """What the runner itself says about the whole log."""

    status: Literal["passed", "failed", "unknown"] = "unknown"
    exit_code: int | None = None
    line: int | None = None
    runner: bool = False  # a CI runner wrote the log: then its silence about the end means that the log was cut
