"""Steps of a job and the runner's verdict, from the markers of GitHub, Azure, GitLab, Jenkins, Buildkite and plain scripts."""

from __future__ import annotations

import re

from matrix.triage.frames.model import Step, Verdict
from matrix.triage.store import LineStore

_GHA_RUN = re.compile(r"##\[group\]\s?(?P<name>(?:Run|Post|Pre|Starting:) .+)")
_GHA_EXIT = re.compile(
    r"(?:##\[error\]|Error: |::error::)\s*(?:Process completed|.{0,60} exited) with (?:exit )?code '?(-?\d+)'?"
)
_GHA_DEAD = re.compile(
    r"##\[error\].*(?:has timed out after|operation was cancell?ed|exceeded the maximum execution time|lost communication"
    r"|received a shutdown signal|No space left on device|The job was cancell?ed|timed out|failed with exit code [1-9])",
    re.IGNORECASE,
)
_AZURE = re.compile(r"##\[section\](?P<what>Starting|Finishing): (?P<name>.+)")
_GITLAB = re.compile(rb"section_(?P<what>start|end):\d+:(?P<name>[\w.-]+)")
_JENKINS = re.compile(r"\[Pipeline\] \{ \((?P<name>.+)\)")
_HEADING = re.compile(r"(?:={3}|-{3}|#{3}|~{3}|\+{3}) (?P<name>[^=\-\[][^=]{0,80}?)(?: (?:={3}|-{3}|#{3}))?$")
_PASSED = re.compile(
    r"Job succeeded|Finished: SUCCESS|##\[section\]Build succeeded|Build succeeded\.?$|Pipeline succeeded"
)
_FAILED = re.compile(
    r"(?:ERROR: )?Job failed(?:: exit (?:code|status) (?P<a>\d+))?|Finished: (?:FAILURE|ABORTED|UNSTABLE)|ERROR: Job failed"
    r"|ERROR: script returned exit code (?P<b>\d+)|(?:🚨 )?Error: The command exited with status (?P<c>-?\d+)"
    r"|The command \".*\" exited with (?P<d>[1-9]\d*)\.|Done\. Your build exited with (?P<e>[1-9]\d*)"
    r"|Exited with code (?:exit status )?(?P<f>[1-9]\d*)|^job \S.* exit (?P<g>[1-9]\d*)$|^(?:exit|return) (?:code|status)[:=]? ?(?P<h>[1-9]\d*)$"
    r"|Build step .* marked build as failure|Cleaning up project directory.*\bfailed"
)
_GREEN_END = re.compile(
    r"^job \S.* exit 0$|^(?:exit|return) (?:code|status)[:=]? ?0$|The command \".*\" exited with 0\.|Done\. Your build exited with 0|CircleCI received exit code 0"
)
_GHA_CLOSED = re.compile(r"Post job cleanup\.|Cleaning up orphan processes|Complete runner|##\[section\]Finishing: ")
MARKS = frozenset({"ci", "ci_end", "ci_word", "exit", "section", "step"})


def read_steps(store: LineStore, lines: list[int]) -> tuple[list[Step], Verdict]:
    """Cut the log into steps; `lines` are those with a mark of MARKS, in order."""
    builder = _Builder()
    for no in lines:
        raw = store.raw(no)
        line = store.line(no)
        if raw is None or line is None:
            continue
        builder.see(no, raw, line.text, store)
    return builder.finish(store.total)


def is_boundary(text: str, raw: bytes) -> bool:
    """True if a line is the runner's end of a step or start of the next."""
    return (
        text.startswith(
            (
                "##[error]Process completed",
                "##[group]Run ",
                "##[section]",
                "[Pipeline] }",
                "[Pipeline] // ",
                "Post job cleanup",
                "Finished: ",
            )
        )
        or _GHA_EXIT.match(text) is not None
        or _GITLAB.match(raw) is not None
        or _FAILED.match(text) is not None
        or ("====" not in text and len(text) < 100 and _HEADING.match(text) is not None)
    )


class _Builder:
    def __init__(self) -> None:
        self.steps = [Step("", 1)]
        self.verdict = Verdict()
        self.closed = False
        self.marked = False  # a runner that marks the end of each failing step wrote this log
        self._headings: set[str] = set()
        self._group: int | None = None

    def see(self, no: int, raw: bytes, text: str, store: LineStore) -> None:
        current = self.steps[-1]
        if found := _GHA_RUN.match(text):
            self._open(found["name"], no)
            self._group = no
            self.marked = True
        elif text.startswith("##[endgroup]") and self._group is not None:
            self.steps[-1].script = (self._group, no)
            self._group = None
        elif found := _GHA_EXIT.match(text):
            self._fail(current, no, int(found[1]))
            self.marked = True
        elif _GHA_DEAD.match(text):
            self._fail(current, no, None)
        elif found := _AZURE.match(text):
            self.marked = True
            if found["what"] == "Starting":
                self._open(found["name"], no)
                end = _azure_script_end(store, no)
                self.steps[-1].script = (no, end)
            else:
                if current.status == "unknown":
                    current.status = "passed"
                self._open("", no)
                self.closed = True
        elif b"section_" in raw and (gitlab := _GITLAB.search(raw)):
            if gitlab["what"] == b"start":
                self._open(gitlab["name"].decode(), no)
            else:
                self._open("", no)
        elif found := _JENKINS.match(text):
            self._open(found["name"], no)
        elif text.startswith("Post job cleanup."):
            self.closed = True
            self._open("Post job cleanup", no)
        elif text.startswith("Cleaning up orphan processes"):
            self.closed = True
        elif text.startswith("~~~ Running global pre-exit hook"):
            self.closed = self.marked = True
            self._open("pre-exit hook", no)
        elif found := _FAILED.search(text):
            if self.verdict.status != "failed":
                code = next((int(g) for g in found.groups() if g), None)
                self.verdict.status, self.verdict.line, self.verdict.exit_code = "failed", no, code
        elif _PASSED.match(text) or _GREEN_END.match(text):
            self.verdict.status, self.verdict.line = "passed", no
        elif "====" not in text and (found := _HEADING.match(text)) and len(text) < 100:
            self._headings.add(found["name"])
            self._open(found["name"], no)

    def _open(self, name: str, no: int) -> None:
        last = self.steps[-1]
        last.end = no - 1
        if self.marked and last.status == "unknown" and last.name:
            last.status = "passed"
        self.steps.append(Step(name, no))

    def _fail(self, step: Step, no: int, code: int | None) -> None:
        if step.status == "failed":
            return
        step.failed_at, step.exit_code = no, code
        step.status = "passed" if code == 0 else "failed"
        if code != 0 and self.verdict.status != "failed":
            self.verdict.status, self.verdict.exit_code, self.verdict.line = "failed", code, no

    def finish(self, total: int) -> tuple[list[Step], Verdict]:
        self.steps[-1].end = total
        self.verdict.runner = self.marked or any(s.name for s in self.steps if s.name not in self._headings)
        if self.verdict.status == "unknown" and self.marked and self.closed:
            self.verdict.status = "passed"
        steps = [s for s in self.steps if s.end >= s.start]
        return steps or [Step("", 1, total)], self.verdict


def _azure_script_end(store: LineStore, no: int) -> int:
    for at in range(no, no + 40):
        line = store.line(at)
        if line is not None and "Starting Command Output" in line.text:
            return at + 1
    return no
