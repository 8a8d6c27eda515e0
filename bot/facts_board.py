"""From facts about a head commit to its board."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from bot.board import Board, Evidence, Finding, Row, RunRef, Waiting, by_importance, fold_cascades, is_bad
from bot.facts import Artifact, Facts
from bot.logs import JobLog
from bot.record_board import known_facts, quarantined, row_of
from bot.runs import Job, Run
from matrix.records import FINAL, JobRecord, Status, VerdictValue


def _finding(log: JobLog, index: int, job: Job) -> Finding:
    assert log.report is not None
    cause = log.report.causes[index]
    with_line = [c for c in log.report.causes if c.line]
    at = with_line.index(cause) if cause.line else -1
    anchor = log.anchors[at] if 0 <= at < len(log.anchors) else ""
    where = f"{job.name}, log line {cause.line}" if cause.line else job.name
    return Finding(
        category=cause.category,
        evidence=Evidence(cause.text, where, f"{job.url}#{anchor}" if anchor and job.url else job.url or None),
        rule=cause.rule,
        confidence=cause.confidence,
        signature=cause.signature,
        rank=cause.rank,
        fix=cause.fix,
        tests=tuple(cause.tests),
        consequences=tuple(
            Evidence(c.text, f"{job.name}, log line {c.line}", job.url or None) for c in cause.consequences
        ),
        excerpt=log.excerpts[at] if 0 <= at < len(log.excerpts) else "",
    )


def _row(run: Run, job: Job, log: JobLog | None, judged: JobRecord | None) -> Row:
    report = log.report if log else None
    findings = tuple(_finding(log, i, job) for i in range(len(report.causes))) if log and report else ()
    verdict: VerdictValue = "gate" if findings and findings[0].category == "gate_not_met" else "cannot-tell"
    if judged and judged.verdict:
        verdict = judged.verdict.value
    steps = ", ".join(f"{number} {name}" for number, name in job.steps[:3])
    return Row(
        job=job.name,
        suite=run.workflow,
        status=job.status,
        attempt=job.attempt,
        findings=findings,
        verdict=verdict,
        compared=tuple(judged.verdict.compared) if judged and judged.verdict else (),
        facts=known_facts(judged) if judged else (),
        failing_tests=tuple(report.failing_tests) if report else (),
        reason=f"step {steps}" if steps else "",
        url=job.url or None,
        log=log.state if log else "read",
    )


def _rows_of_artifact(artifact: Artifact, job: Job) -> list[Row]:
    """Rows of a matrix's own jobs; where to look is the workflow job's page, since an archive has no pages."""
    rows = [row_of(j, artifact.lines, None) for j in artifact.record.jobs if is_bad(j.status)]
    return [replace(row, url=job.url or None) for row in rows]


def board_of_facts(facts: Facts, *, web: str | None = None) -> Board:
    """Build the board of a pull request's head."""
    rows: list[Row] = []
    waiting: list[Waiting] = []
    counts: Counter[Status] = Counter()
    refs: list[RunRef] = []
    for run in facts.runs:
        jobs = facts.jobs.get(run.id, [])
        refs.append(_ref(run, jobs))
        if not jobs:
            _add_run_without_jobs(run, rows, waiting, counts)
        for job in jobs:
            log = facts.logs.get(job.id)
            inner = _inner(facts, job, log)
            if inner:
                artifact, inner_rows = inner
                rows += inner_rows
                counts.update(j.status for j in artifact.record.jobs)
                continue
            counts[job.status] += 1
            if is_bad(job.status):
                rows.append(_row(run, job, log, facts.judged.get(job.id)))
            elif job.status not in FINAL:
                waiting.append(Waiting(job.name, run.workflow, job.status is Status.RUNNING))
    return Board(
        head=facts.pull.head,
        base=facts.pull.base,
        runs=tuple(refs),
        rows=by_importance(fold_cascades(rows)),
        waiting=tuple(waiting),
        counts=counts,
        history=tuple(facts.past),
        quarantined=tuple(q for a in facts.artifacts for q in quarantined(a.record)),
        notes=tuple(facts.notes),
        web=web,
    )


def _ref(run: Run, jobs: list[Job]) -> RunRef:
    done = sum(job.status in FINAL for job in jobs)
    key = f"{run.path}\n{run.event}"
    return RunRef(str(run.id), run.attempt, done, run.workflow, run.url or None, run.status, key)


def _inner(facts: Facts, job: Job, log: JobLog | None) -> tuple[Artifact, list[Row]] | None:
    """Return the matrix's own jobs in place of the workflow job that ran them: if it failed, its log names the run,
    and the
    record has a failure too (a record without one says nothing about why the job is red).
    """
    if log is None or not is_bad(job.status):
        return None
    for artifact in facts.artifacts:
        if artifact.run == job.run and artifact.record.id in log.matrix_runs:
            rows = _rows_of_artifact(artifact, job)
            if any(not row.allowed for row in rows):
                return artifact, rows
    return None


def _add_run_without_jobs(run: Run, rows: list[Row], waiting: list[Waiting], counts: Counter[Status]) -> None:
    """Make a run that has no job: it waits for approval, is about to start, or its workflow file is broken."""
    if run.status is Status.SKIPPED:
        return
    counts[run.status] += 1
    if is_bad(run.status):
        rows.append(Row(run.workflow, run.event, run.status, run.attempt, url=run.url or None, reason=run.conclusion))
    elif run.status not in FINAL:
        reason = "a maintainer must approve the run" if run.conclusion == "action_required" else ""
        waiting.append(Waiting(run.workflow, run.event, running=False, reason=reason))
