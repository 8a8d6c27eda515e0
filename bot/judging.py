"""Whose failure is it, by the history: verdicts for jobs of any workflow, and their results remembered."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from bot.facts import Artifact, Facts
from bot.runs import Job, Pull, Run, stored_id
from matrix.errors import ToolError
from matrix.history.remember import judge
from matrix.history.rows import rows_of
from matrix.history.store import open_store
from matrix.records import BAD, FINAL, Attempt, JobRecord, RunRecord, SpecRef

log = logging.getLogger("bot")


def judge_facts(facts: Facts, repository: str, url: str) -> None:
    """Fill in verdicts from the history, and remember the runs that are over. A database that is away changes nothing.

    What a record of `matrix run` has judged itself stands.
    """
    try:
        for run in facts.runs:
            jobs = [
                j for j in facts.jobs.get(run.id, []) if j.status in FINAL and j.attempt == run.attempt and j.started
            ]
            if not jobs or not run.started:
                continue
            record = _record(facts, run, jobs, repository)
            _judge(record, url, {job.name: "\n".join(_excerpts(facts, job)) for job in jobs})
            named = {job.name: job for job in record.jobs}
            facts.judged |= {job.id: named[job.name] for job in jobs if job.name in named}
            if run.completed:
                _remember(record, url)
        for artifact in facts.artifacts:
            _judge_artifact(artifact, facts, repository, url)
    except ToolError as e:
        log.warning("no verdicts from the history: %s", e.message)


def _judge(record: RunRecord, url: str, evidence: dict[str, str]) -> None:
    if warning := judge(record, None, url=url, commands=evidence):
        raise ToolError(warning)


def _excerpts(facts: Facts, job: Job) -> Iterable[str]:
    read = facts.logs.get(job.id)
    return read.excerpts if read else ()


def _record(facts: Facts, run: Run, jobs: list[Job], repository: str) -> RunRecord:
    """Make a record of one attempt of a workflow's run: each attempt is kept by itself."""
    records: dict[str, JobRecord] = {}
    for job in jobs:
        read = facts.logs.get(job.id)
        report = read.report if read and job.status in BAD else None
        attempt = Attempt(
            n=1,
            started=job.started,
            status=job.status,
            log=job.url,
            causes=report.causes if report else [],
        )
        records[job.name] = JobRecord(name=job.name, suite=run.workflow, status=job.status, attempts=[attempt])
    return RunRecord(
        id=stored_id(run.id, run.attempt),
        spec=SpecRef(path=run.path, sha256=""),
        engine="actions",
        host="",
        started=run.started,
        status=run.status,
        jobs=list(records.values()),
        **_origin(facts.pull, facts.files, repository, run.head, run.branch),
    )


def _origin(pull: Pull, files: list[str], repository: str, head: str, branch: str) -> dict[str, object]:
    """Return where a run comes from, as GitHub says."""
    return {
        "repository": repository,
        "commit": head,
        "branch": branch,
        "base": pull.base if pull.number else None,
        "pr": pull.number or None,
        "author": pull.author or None,
        "changed_files": files if pull.number else None,
    }


def _judge_artifact(artifact: Artifact, facts: Facts, repository: str, url: str) -> None:
    """Judge what a record of `matrix run` left open. Where it comes from is GitHub's word, not the archive's."""
    record = artifact.record
    own = {job.name: job.verdict for job in record.jobs}
    copy = record.model_copy(update=_origin(facts.pull, facts.files, repository, facts.pull.head, ""))
    evidence = {
        job.name: artifact.lines(job.attempts[-1].log, max(1, line - 80), line + 1)
        for job in record.jobs
        if job.attempts and job.attempts[-1].causes and (line := job.attempts[-1].causes[0].line)
    }
    _judge(copy, url, evidence)  # jobs are shared with the record
    for job in record.jobs:
        if (before := own[job.name]) and before.value != "cannot-tell":
            job.verdict = before


def _remember(record: RunRecord, url: str) -> None:
    store = open_store(url)
    try:
        store.write(rows_of(record))
    finally:
        store.close()
