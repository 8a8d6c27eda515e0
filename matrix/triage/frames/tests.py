"""Test reports: pytest (any verbosity, xdist, reruns, collection, fixtures), unittest, and the failing tests of other runners."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from matrix.triage.frames import python
from matrix.triage.frames.model import Incident
from matrix.triage.frames.python import EXCEPTION, WRAPPERS
from matrix.triage.lines import Line
from matrix.triage.store import LineStore

MARKS = frozenset({"section", "block", "test_word", "test_count", "test_crash", "test_e", "fault"})
_SECTION = re.compile(r"=+ (?P<name>.+?) =+$")
_BLOCK = re.compile(r"_{3,} (?P<title>.+?) _{3,}$")
_SUMMARY = re.compile(r"(?P<word>FAILED|ERROR|SUBFAILED(?:\([^)]*\)|\[[^\]]*\])?) (?P<rest>\S.*)$")
_VERBOSE = re.compile(
    r"(?:\[gw\d+\] (?:\[ *\d+%\] )?(?P<w1>PASSED|FAILED|ERROR|RERUN|SKIPPED|XFAIL|XPASS) (?P<id1>\S.*?)\s*$"
    r"|(?P<id2>\S+\.py(?:::.+?)?) (?P<w2>PASSED|FAILED|ERROR|RERUN|SKIPPED|XFAIL|XPASS)(?: \(.*\))?\s*(?:\[ *\d+%\])?$)"
)
_CUT_OFF = re.compile(r"(?P<id>\S+\.py::\S+?(?:\[.*?\])?) (?:\++ Timeout \++|Fatal Python error: |Timeout \()")
_E = re.compile(r"E {3,}(?P<rest>.*)$|E$")
MESSAGE = 60  # lines of one test's message that rules may read
_SHOWN = re.compile(r"E +File \"")
_LOCATION = re.compile(r"(?P<file>[^\s:]+\.(?:py|pyx)):(?P<line>\d+): (?P<what>.*)$")
_CRASH = re.compile(r"worker '(?P<worker>\w+)' crashed while running '(?P<id>.+)'")
_COUNTS = re.compile(r"(\d+) (passed|failed|errors?|skipped|deselected|xfailed|xpassed|rerun|warnings?)\b")
_FINAL = re.compile(
    r"(?:=+ )?(?:\d+ \w+, )*\d+ (?:passed|failed|errors?|skipped|deselected|xfailed|xpassed|rerun)\b.* in [\d.]+ ?s|=+ no tests ran|no tests ran in"
)
_UNIT = re.compile(r"(?P<word>FAIL|ERROR): (?P<name>\S+)(?: \((?P<path>[^)]+)\))?")
_UNIT_END = re.compile(r"FAILED \((?:failures|errors|unexpected|expected)[^)]*\)$")
_COVERAGE = re.compile(r"(?:FAIL Required test coverage of|ERROR: Coverage failure:)")
_SETUP = re.compile(r"ERROR at (?:setup|teardown) of (?P<title>.+)$")
_COLLECT = re.compile(r"ERROR collecting (?P<path>\S+)")


@dataclass(slots=True)
class TestReport:
    """What the test runners in a log said."""

    incidents: list[Incident] = field(default_factory=list)
    failing: list[str] = field(default_factory=list)  # ids of tests whose last outcome is a failure, in order
    ran: bool = False
    passed_end: int | None = None  # line of a closing count without failures
    failed_end: int | None = None  # line of a closing count with failures
    regions: list[tuple[int, int]] = field(default_factory=list)  # lines that a report of failures covers
    captured: list[tuple[int, int]] = field(default_factory=list)  # output captured from tests


def read_tests(store: LineStore, lines: list[int]) -> TestReport:
    """Read the reports; `lines` are those with a mark of MARKS, in order."""
    reader = _Reader(store)
    for no in lines:
        line = store.line(no)
        if line is not None and line.body:
            reader.see(line)
    return reader.finish()


class _Reader:
    def __init__(self, store: LineStore) -> None:
        self.store = store
        self.report = TestReport()
        self.outcome: dict[str, str] = {}
        self.summary: list[tuple[str, str, str, Line]] = []  # word, id, message, line
        self.where = ""  # failures, errors, summary or ""
        self.block: tuple[str, int] | None = None
        self.blocks: list[tuple[str, int, int, str]] = []
        self.units: list[tuple[str, Line]] = []
        self.region_start = 0

    def see(self, line: Line) -> None:
        body = line.body
        if body.startswith("=") and (found := _SECTION.match(body)):
            self._section(found["name"], line)
        elif body.startswith("_") and self.where in {"failures", "errors"} and (found := _BLOCK.match(body)):
            self._close_block(line.no)
            self.block = (found["title"], line.no)
        elif found := _VERBOSE.match(body):
            word, name = found["w1"] or found["w2"], found["id1"] or found["id2"]
            self.report.ran = True
            self.outcome.pop(name, None)
            self.outcome[name] = word
        elif found := _CUT_OFF.match(body):
            self._cut_off(found["id"], line)
        elif (found := _SUMMARY.match(body)) and (name := _node(found["rest"])):
            self.summary.append((found["word"], name[0], name[1], line))
            self.report.ran = True
        elif found := _CRASH.search(body):
            self.outcome.setdefault(found["id"], "FAILED")
            self.report.ran = True
        elif (
            body.startswith("E  ")
            and not self.where
            and (found := _E.match(body))
            and _exception_name(found["rest"] or "")
        ):
            self._loose(line, (found["rest"] or "").strip())
        elif _FINAL.match(body):
            self._final(line)
        elif (found := _UNIT.match(body)) and self._after_rule(line):
            path = found["path"] or ""
            name = found["name"]
            if path and not path.endswith(f".{name}"):
                path = f"{path}.{name}"
            self.units.append(((path or name).removeprefix("unittest.loader._FailedTest."), line))
            self.report.ran = True
        elif _UNIT_END.match(body) or _COVERAGE.match(body):
            self.report.failed_end = line.no

    def _cut_off(self, name: str, line: Line) -> None:
        """Keep a test whose outcome was never printed, since the process ended in it."""
        self.outcome[name] = "FAILED"
        self.report.ran = True
        body = line.body[len(name) :].strip()
        made = Incident.at("crash", line, 0.95, body)
        made.tests = [name]
        self.report.incidents.append(made)

    def _loose(self, line: Line, body: str) -> None:
        """Keep an exception of pytest's own start: a conftest that cannot be loaded."""
        made = Incident.at("exception", line, 0.88, body)
        made.exception = _exception_name(body)
        made.context = self._near(line.no - 8, line.no)
        self.report.incidents.append(made)

    def _near(self, low: int, high: int) -> list[Line]:
        return [line for no in range(low, high) if (line := self.store.line(no)) is not None]

    def _after_rule(self, line: Line) -> bool:
        before, after = self.store.line(line.no - 1), self.store.line(line.no + 1)
        return (
            before is not None
            and before.body.startswith("=====")
            and after is not None
            and after.body.startswith(("-----", "Traceback"))
        )

    def _section(self, name: str, line: Line) -> None:
        self._close_block(line.no)
        if self.where in {"failures", "errors"}:
            self.report.regions.append((self.region_start, line.no - 1))
        self.where = {"FAILURES": "failures", "ERRORS": "errors", "short test summary info": "summary"}.get(name, "")
        self.region_start = line.no
        if (_COUNTS.search(name) or name.startswith("no tests ran")) and (_FINAL.match(line.body) or " in " in name):
            self._final(line)
        elif name == "test session starts":
            self.report.ran = True

    def _final(self, line: Line) -> None:
        counts = {word.rstrip("s"): int(n) for n, word in _COUNTS.findall(line.body)}
        if counts.get("failed") or counts.get("error"):
            self.report.failed_end = line.no
        elif not counts and "no tests ran" in line.body:
            self.report.incidents.append(Incident.at("tool", line, 0.5))
        elif counts.get("passed") and not (self.report.failed_end and self.report.failed_end > line.no - 200):
            self.report.passed_end = line.no

    def _close_block(self, no: int) -> None:
        if self.block is not None:
            title, start = self.block
            self.blocks.append((title, start, no - 1, self.where))
            self.block = None

    def finish(self) -> TestReport:
        self._close_block(self.store.total + 1)
        if self.where in {"failures", "errors"}:
            self.report.regions.append((self.region_start, self.store.total))
        report = self.report
        ids = {name: None for _, name, _, _ in self.summary} if self.summary else {}
        failing = dict.fromkeys(ids)
        if not failing:
            failing = dict.fromkeys(n for n, word in self.outcome.items() if word in {"FAILED", "ERROR"})
        for title, start, end, _ in self.blocks:
            made = self._block_incident(title, start, end, failing)
            report.incidents.append(made)
        for path, line in self.units:
            failing.setdefault(path)
            report.incidents.append(self._unit_incident(path, line))
        if report.failed_end is not None:
            # The session lived on to count its failures: what cut a line off was a worker's end, which its report tells better.
            report.incidents = [i for i in report.incidents if i.kind != "crash" or i.start != i.end]
        loose = [i for i in report.incidents if i.kind == "exception"]
        if loose and not self.blocks and self.summary:
            # The report's headings are cut off: its exception still belongs to the tests that the summary names.
            loose[0].kind, loose[0].tests = "test", list(failing)
        covered = {t for i in report.incidents for t in i.tests}
        for _, name, message, line in self.summary:
            if name not in covered:
                report.incidents.append(_summary_incident(name, message, line))
                covered.add(name)
        report.failing = list(failing)
        report.incidents.sort(key=lambda i: i.start)
        return report

    def _block_incident(self, title: str, start: int, end: int, failing: dict[str, None]) -> Incident:
        bare = (m["title"] if (m := _SETUP.match(title)) else title).strip()
        tests = [n for n in failing if _names(n, bare)]
        if m := _COLLECT.search(title):
            tests = [m["path"]]
            failing.setdefault(m["path"])
        end = min(end, start + 4000)
        keys: list[Line] = []
        crash: Line | None = None
        location: Line | None = None
        previous_e = -9
        native: list[int] = []
        more: list[list[Line]] = []
        first_path = ""
        for no in range(start + 1, end + 1):
            line = self.store.line(no)
            if line is None:
                continue
            body = line.body
            if body.startswith("-") and re.match(r"-+ Captured ", body):
                self.report.captured.append((no, end))
                break
            if found := _E.match(body):
                rest = found["rest"] or ""
                if no > previous_e + 1 and rest.strip():
                    keys.append(line)
                    more.append([])
                elif keys and _SHOWN.match(keys[-1].body) and _exception_name(rest):
                    keys[-1] = line  # a syntax error shows the place before it says its name
                elif keys and rest.strip() and len(more[-1]) < MESSAGE:
                    more[-1].append(line)
                previous_e = no
            elif body.startswith("Traceback ") and not keys:
                native.append(no)
            elif found := _CRASH.search(body):
                crash = line
                tests = tests or [found["id"]]
            elif found := _LOCATION.match(body):
                location = line
                first_path = first_path or found["file"]
        if not tests and first_path and "." in bare[:1] + bare:
            tests = [f"{first_path}::{bare.replace('.', '::') if '[' not in bare else bare}"]
        if not tests and first_path:
            tests = [f"{first_path}::{bare}"]
        for test in tests:
            failing.setdefault(test)
        if not keys and native:
            keys = [k for i in python.incidents(self.store, native) for k in i.keys]
        key = keys[0] if keys else crash or location or self.store.line(start)
        assert key is not None
        body = _E.sub(lambda m: m["rest"] or "", key.body)
        name = _exception_name(body)
        if not name and location is not None and (m := _LOCATION.match(location.body)):
            name = m["what"].split(":")[0]
        if body.startswith("assert ") or re.match(r"assert\b", body):
            name = name or "AssertionError"
        frames = [(m["file"], int(m["line"]), "") for m in [_LOCATION.match(location.body)] if m] if location else []
        made = Incident(
            "crash" if crash is not None and not keys else "test",
            key.no,
            start,
            end,
            key.text,
            body.strip(),
            keys or [key],
        )
        made.more, made.stream, made.rank, made.exception, made.frames = more, key.stream, key.rank, name, frames
        made.tests, made.fatal = tests, 0.95
        made.context = [
            line
            for no in range(start, start + 4)
            if (line := self.store.line(no)) is not None and no <= end and not _E.match(line.body)
        ]
        made.context.extend(line for _, named, _, line in self.summary if named in tests)
        return made

    def _unit_incident(self, path: str, line: Line) -> Incident:
        for no in range(line.no + 1, line.no + 8):
            at = self.store.line(no)
            if at is not None and at.body.startswith("Traceback"):
                for made in python.incidents(self.store, [no]):
                    made.kind, made.start, made.tests, made.fatal = "test", line.no, [path], 0.95
                    made.context = self._near(line.no, no)
                    return made
        made = Incident.at("test", line, 0.9)
        made.tests = [path]
        return made


def _summary_incident(name: str, message: str, line: Line) -> Incident:
    made = Incident.at("test", line, 0.9, message or None)
    made.exception, made.tests = _exception_name(made.body), [name]
    made.context = [line]
    return made


def _exception_name(body: str) -> str:
    found = EXCEPTION.match(body.strip())
    if not found:
        return ""
    name = found["name"].rsplit(".", 1)[-1]
    return name if name[:1].isupper() and name not in WRAPPERS else ""


def _names(node: str, title: str) -> bool:
    """True if a report's heading (`TestC.test_d[x]`) names this node id (`tests/a.py::TestC::test_d[x]`)."""
    if "::" not in node:
        return node == title
    tail = node.split("::", 1)[1]
    if tail == title:
        return True
    head, bracket, rest = tail.partition("[")
    return head.replace("::", ".") + bracket + rest == title


def _node(rest: str) -> tuple[str, str] | None:
    """Split `tests/a.py::test[x - y] - message` into id and message; None if it is no node id."""
    if not re.match(r"[^\s:]*(?:\.py\b|::|/)|\S+\.py", rest):
        return None
    bracket = rest.find("[")
    dash = rest.find(" - ")
    if 0 <= bracket < (dash if dash >= 0 else len(rest)):
        close = re.search(r"\](?= - |\s*$)", rest[bracket:])
        if close:
            cut = bracket + close.end()
            return rest[:cut], rest[cut:].removeprefix(" - ").strip()
    name, _, message = rest.partition(" - ")
    name = name.strip()
    if " " in name and "::" not in name:
        return None
    return name, message.strip()
