"""Writes junit.xml: one test suite a suite of the matrix, one test case a job, in the form that CI systems read.

Schema: the one of Jenkins' xUnit plugin (testsuites > testsuite > testcase > failure | error | skipped, system-out).
"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from matrix.files import replace
from matrix.records import JobRecord, RunRecord, Status
from matrix.report.text import one_line, plain
from matrix.report.view import Failure, seconds, took, view, why

NAME = "junit.xml"


def write(run: RunRecord, folder: Path) -> Path:
    """Write junit.xml of a run into its folder and return its path."""
    path = folder / NAME
    replace(path, render(run, folder))
    return path


def render(run: RunRecord, folder: Path) -> str:
    """Return the document as text."""
    seen = view(run, folder)
    failures = {f.job.name: f for f in seen.failures}
    suites: dict[str, list[JobRecord]] = {}
    for job in run.jobs:
        suites.setdefault(job.suite, []).append(job)
    root = ET.Element("testsuites", {"name": plain(f"matrix {run.id}"), **_counts(run.jobs)})
    root.set("time", _number(seconds(run.started, run.ended)))
    for name, jobs in suites.items():
        suite = ET.SubElement(root, "testsuite", {"name": plain(name), **_counts(jobs)})
        suite.set("skipped", str(sum(_outcome(j) == "skipped" for j in jobs)))
        suite.set("time", _number(sum(took(j) or 0.0 for j in jobs)))
        suite.set("timestamp", run.started.removesuffix("Z"))
        suite.set("hostname", plain(run.host))
        properties = ET.SubElement(suite, "properties")
        for key, value in (("run", run.id), ("commit", run.commit), ("engine", run.engine)):
            if value:
                ET.SubElement(properties, "property", {"name": key, "value": plain(value)})
        for job in jobs:
            _case(suite, job, failures.get(job.name))
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _case(suite: ET.Element, job: JobRecord, failure: Failure | None) -> None:
    case = ET.SubElement(suite, "testcase", {"classname": plain(job.suite), "name": plain(job.name)})
    case.set("time", _number(took(job)))
    outcome = _outcome(job)
    if outcome != "passed":
        attributes = {"message": why(job) or str(job.status)}
        if outcome != "skipped":
            attributes["type"] = failure.evidence[0].cause.category if failure and failure.evidence else str(job.status)
        ET.SubElement(case, outcome, attributes).text = plain(_details(job, failure)) or None
    if job.attempts:
        ET.SubElement(case, "system-out").text = plain(f"log: {job.attempts[-1].log}")


def _details(job: JobRecord, failure: Failure | None) -> str:
    if failure is None:
        return ""
    lines = []
    for found in failure.evidence:
        lines.append(f"{found.cause.category}: {one_line(found.cause.text)}")
        lines.append(f"  at {found.where}")
        lines += [f"  {'>' if row.hit else ' '} {row.number} {row.text}" for row in found.excerpt]
    if job.failing_tests:
        lines += ["failing tests:", *(f"  {one_line(t)}" for t in job.failing_tests)]
    if failure.blocked:
        lines.append("blocked by this: " + ", ".join(j.name for j in failure.blocked))
    lines.append(f"run it again: {failure.rerun}")
    return "\n".join(lines)


def _outcome(job: JobRecord) -> str:
    """Name the element that tells JUnit's readers of a job; an allowed failure does not count as one there."""
    if job.status is Status.PASSED:
        return "passed"
    if job.allowed or job.status in (Status.SKIPPED, Status.BLOCKED, Status.PENDING, Status.RUNNING):
        return "skipped"
    return "error" if job.status in (Status.ERROR, Status.CANCELLED) else "failure"


def _counts(jobs: list[JobRecord]) -> dict[str, str]:
    outcomes = [_outcome(j) for j in jobs]
    return {
        "tests": str(len(jobs)),
        "failures": str(outcomes.count("failure")),
        "errors": str(outcomes.count("error")),
    }


def _number(value: float | None) -> str:
    return f"{value or 0.0:.3f}"
