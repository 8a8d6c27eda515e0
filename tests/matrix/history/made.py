"""Run records by hand, for tests of the history."""

from datetime import UTC, datetime, timedelta

from matrix.records import Attempt, JobRecord, RunRecord, SpecRef, Status
from matrix.triage.model import Cause

START = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)


def iso(hours):
    return (START + timedelta(hours=hours)).isoformat()


def attempt(hours, n=1, *, failed=None, minutes=1.0, category="worker_exception", line=5, text="boom"):
    causes = []
    if failed:
        causes = [Cause(category=category, rule="r", confidence=0.9, line=line, text=text, signature=failed)]
    return Attempt(
        n=n,
        started=iso(hours),
        ended=iso(hours + minutes / 60),
        exit_code=1 if failed else 0,
        status=Status.FAILED if failed else Status.PASSED,
        log=f"logs/unit/{n}.log",
        causes=causes,
    )


def run(name, hours, attempts, *, job="unit", pr=None, author="ann", base=None, changed=None, commit=None):
    status = attempts[-1].status
    return RunRecord(
        id=name,
        spec=SpecRef(path="matrix.yaml", sha256="ab"),
        engine="local",
        host="h",
        repository="o/r",
        commit=commit or f"c-{name}",
        base=base,
        pr=pr,
        author=author,
        changed_files=changed,
        started=iso(hours),
        ended=iso(hours + 1),
        status=status,
        jobs=[JobRecord(name=job, suite="s", status=status, attempts=attempts)],
    )
