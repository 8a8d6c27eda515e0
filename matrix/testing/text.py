"""How a job's failure reads in pytest's output."""

from __future__ import annotations

from pathlib import Path

from matrix.records import JobRecord, RunRecord, Status
from matrix.report.text import one_line, plain
from matrix.report.view import cards, view, why


def message(record: JobRecord) -> str:
    """Return a failure in a line."""
    said = why(record)
    shown = record.status.value if record.status is not Status.FAILED else ""
    return ": ".join(filter(None, [shown, said])) or record.status.value


def failure_text(run: RunRecord, record: JobRecord, folder: Path) -> str:
    """Return cause, evidence, what to do and where to read on."""
    last = record.attempts[-1] if record.attempts else None
    facts = (
        [
            f"attempt {last.n}",
            f"exit {last.exit_code}" if last.exit_code is not None else "",
            last.signal or "",
            cards(last),
        ]
        if last
        else []
    )
    lines = [f"matrix job {record.name}: {record.status}" + (f" ({', '.join(f for f in facts if f)})" if facts else "")]
    if record.reason:
        lines.append(one_line(record.reason))
    for failure in view(run, folder).failures:
        if failure.job.name != record.name:
            continue
        for e in failure.evidence:
            lines += ["", f"{e.cause.category}  {folder / e.where}", f"  {one_line(e.cause.text)}"]
            lines += [f"{'>' if x.hit else ' '} {x.number:>6} | {plain(x.text)}" for x in e.excerpt]
            lines += [f"  {one_line(fix)}" for fix in [e.cause.fix.get("en")] if fix]
        lines += [f"  failing test: {one_line(test)}" for test in record.failing_tests[:20]]
        lines += ["", f"again: {failure.rerun}"]
    if record.blocked_by:
        lines += ["", *(f"{name}: {message(run.job(name))}" for name in record.blocked_by)]
    if record.verdict and record.verdict.value != "cannot-tell":
        lines.append(f"verdict: {record.verdict.value}")
    return "\n".join(lines)
