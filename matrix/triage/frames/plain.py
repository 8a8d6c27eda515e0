"""Failures that no traceback or test report holds: tools' error lines, signals, exit codes, launchers' words."""

from __future__ import annotations

import re

from matrix.triage.fate import HANDLED
from matrix.triage.frames.model import Incident, Kind
from matrix.triage.lines import Line

MARKS = frozenset(
    {"exception", "fault", "signal", "exit", "tool", "make", "launcher", "cross", "lint", "ci_word", "ci", "test_crash"}
)

_EXCEPTION = re.compile(
    r"(?:Caused by: |Exception in thread \".*?\" |Uncaught |Unhandled (?:exception[.:]? )?|\[?ERROR\]? )?"
    r"(?:[A-Za-z_$][\w$]*[.:]{1,2})*(?P<name>[A-Za-z_$][\w$]*(?:Error|Exception|Interrupt|Failure|Timeout|Expired|Fault))(?:\([\w.]+\))?(?: \[\w+\])?(?::(?: |$)|$)"
)
_PANIC = re.compile(
    r"(?:\S+: .*: Assertion [`'].*' failed\.|panic: |thread '.*' (?:\(\d+\) )?panicked at |fatal error: |Fatal Python error: |FATAL(?: EXCEPTION)?: |terminate called|==\d+==\s?ERROR: |\S*: (?:symbol lookup|runtime) error: )"
)
_COMPILER = re.compile(
    r"(?:[\w./\\+@-]+[:(]\d+(?:[:,]\d+)*\)?:? ?(?:-\s)?(?:fatal )?(?:[Ee]rror|ERROR)\b|error(?:\[E\d+\]|: | TS\d+)|.*: undefined reference to |.*/ld: |ld: |collect2: error|CMake Error|.*: error: )"
)
_SHELL_SIGNAL = re.compile(
    r"(?:.*: line \d+: +\d+ |\[\d+\]\s+(?:\+\s+)?\d*\s*|.*: )?(?P<what>Killed|Segmentation fault|segmentation fault|Aborted|Bus error|Illegal instruction"
    r"|Floating point exception|Trace/breakpoint trap|Terminated)(?: ?\(core dumped\))?(?:\s{2,}\S.*|\s*$)"
)
_LINT = re.compile(
    r"[\w./\\@+-]+\.\w+:\d+(?::\d+)?:? [A-Z]{1,6}\d{2,5}\b|[Ww]ould reformat:? |[A-Z]{1,4}\d{3,4} (?:\[\*\] )?\S|\s*\d+:\d+\s+error\s"
)
_TOOL = re.compile(
    r"(?:(?:[\w./+@-]+|\[[\w ./:-]+\])(?:\[\d+\])?[: ] ?){0,3}?(?:\*\*\* )?(?:##\[error\]|::error[^:]*::|[\u2717\u2718\u274c\u2716\u00d7] ?|\U0001f6a8 )?\s?"
    r"(?:fatal(?: error)?|error|Error|ERROR|ERR!|E|FATAL|Fatal|FAILED|FAILURE|Failure|Failed|failed|FAIL|panic|abort|ABORT)(?:\[\w+\]|\([\w ]+\)| \w+\d+)?(?:!|:|\]| -|\s*$)"
)
_SHELL = re.compile(
    r"(?:Can't |Cannot |Could not |Couldn't |Unable to |Failed to )\S|(?:[\w./+-]+(?: \(\w+\))?: )(?:line \d+: |\d+: )?.*(?:No such file or directory|command not found|not found|[Pp]ermission denied|cannot |can't |failed|refused|denied"
    r"|No space left|Is a directory|Not a directory|invalid|unrecognized|unknown|missing|unbound variable|syntax error|ambiguous redirect|[Ff]ailed to|No (?:module|rule|match|such)|Cannot |Can't |curl: \(\d+\)|timed out|unable to|does not exist|Text file busy|Read-only)"
)
_EXIT = re.compile(
    r"(?:exit(?:ed|s|ing)?|return(?:ed|s)?|rc|status|code)\b.{0,24}?(?P<code>-?\d{1,3})\b", re.IGNORECASE
)
_MAKE = re.compile(
    r"(?:g?make|ninja)(?:\[\d+\])?: (?:\*\*\* \[|build stopped)|FAILED: \S+\.\w+|npm (?:ERR!|error) (?:code|errno|syscall|A complete log|path|Lifecycle|Exit)|.*\*\*\* \[.*\] Error \d+"
    r"|npm (?:ERR!|error)\s*$|Found \d+ (?:error|problem)|.*\bwould be reformatted|\[\*\] "
)
# The last word of a build that did not succeed; the status of its program is 1 or 2 then, never 0.
BUILD_OVER = re.compile(
    r"g?make: \*\*\* (?!.*\(ignored\))|ninja: build stopped|(?:ERROR|error): .*\bdid not complete successfully: exit code: [1-9]"
)
LAUNCHER = re.compile(
    r".*(?:ChildFailedError|Container (?:rank \d+|failed)|LAUNCH ERROR|Pod failed|failed \(exitcode: |sigkill_handler|died with <Signals|Primary job  terminated"
    r"|srun: error|exits with return code|Root Cause \(first|mpirun |exited on signal|exitcode\s*: )"
)
_RUNNER = re.compile(
    r"(?:##\[error\]|Error: |::error[^:]*::)?.*\b(?:operation was cancell?ed|has timed out after|exceeded the maximum execution time|lost communication|shutdown signal|Build timed out|job was cancell?ed)",
    re.IGNORECASE,
)
_BENIGN = re.compile(
    r"\b0 (?:errors?|failed|failures?|warnings?)\b|\bno errors?\b|\berrors?[:=] ?0\b|^Unable to find image '.*' locally$",
    re.IGNORECASE,
)
_QUIET = frozenset({"info", "debug", "warning", "trace", "notice"})


def classify(line: Line) -> tuple[Kind, float]:
    """What a line outside all reports is, and how sure it is that it ended something (0 to 1)."""
    body = line.body.strip()
    word = loudness(line)
    if word <= 0.1:
        return "word", word
    handled = 0.2 - word
    for kind, pattern, fatal in _KINDS:
        if pattern.match(body):
            return kind, fatal - handled
    if line.level in {"error", "critical", "fatal", "severe"}:
        return "tool", 0.55 - handled
    return "word", word


def loudness(line: Line) -> float:
    """How fatal a line is of which only words speak."""
    body = line.body.strip()
    if line.level in _QUIET or body[:11].lower().startswith(
        ("##[warning]", "##[debug]", "warning", "warn:", "note:", "hint:", "deprecat")
    ):
        return 0.1
    return 0.2 - (0.5 if HANDLED.search(body) or _BENIGN.search(body) else 0.0)


_KINDS: tuple[tuple[Kind, re.Pattern[str], float], ...] = (
    ("launcher", LAUNCHER, 0.35),
    ("exit", re.compile(r"(?:🚨 )?Error: The command (?:exited|was interrupted)|user command error: "), 0.3),
    ("signal", _SHELL_SIGNAL, 0.85),
    ("runner", _RUNNER, 0.8),
    ("crash", _PANIC, 0.9),
    (
        "exit",
        re.compile(
            r"##\[error\](?:Process completed|\w+ exited) with|Error: Process completed|ERROR: (?:Job failed|script returned)"
        ),
        0.2,
    ),
    ("exit", _MAKE, 0.35),
    ("exit", BUILD_OVER, 0.35),
    ("exception", _EXCEPTION, 0.75),
    ("tool", _COMPILER, 0.8),
    ("tool", _LINT, 0.75),
    ("tool", re.compile(r"npm (?:ERR!|error) \S|\[ERROR\] \S|Failed example:|\*\*\*Test Failed\*\*\*"), 0.72),
    ("tool", _TOOL, 0.7),
    ("exit", re.compile(r".{0,80}\b(?:exit(?:ed)?|return(?:ed)?)\b.{0,20} (?:code|status)[ :=]+[\(']?-?[1-9]"), 0.35),
    ("tool", _SHELL, 0.68),
)


def incident(line: Line, kind: Kind, fatal: float) -> Incident:
    """An incident of one line."""
    name = found["name"] if kind == "exception" and (found := _EXCEPTION.match(line.body.strip())) else ""
    return Incident(
        kind, line.no, line.no, line.no, line.text, line.body.strip(), [line], line.stream, line.rank, name, fatal=fatal,
        handled=fatal <= 0.15, wrapper=kind in {"launcher", "exit"},
    )  # fmt: skip


def exit_code(body: str) -> int | None:
    """The exit code that a line states, if any."""
    found = _EXIT.search(body)
    return int(found["code"]) if found else None
