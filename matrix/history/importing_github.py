"""Reads what GitHub's API says of workflow runs, as people save it: pages, several documents in a file, compressed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from matrix.errors import UsageError
from matrix.history.rows import Rows, rows_of
from matrix.records import Attempt, JobRecord, RunRecord, SpecRef, Status

_CONCLUSIONS = {
    "success": Status.PASSED,
    "failure": Status.FAILED,
    "timed_out": Status.TIMEOUT,
    "cancelled": Status.CANCELLED,
    "skipped": Status.SKIPPED,
    "neutral": Status.PASSED,
    "startup_failure": Status.ERROR,
    "action_required": Status.SKIPPED,
    "stale": Status.CANCELLED,
}
_SAVE = (
    "save GET /repos/O/R/actions/runs as runs.json (pages: runs-1.json), .../runs/ID/jobs?filter=all as jobs-ID.json"
)


def from_github(folder: Path) -> Iterator[Rows | UsageError]:
    """Rows of each finished run in a folder of `runs*.json` and `jobs-ID*.json` (`.gz` too), or what is wrong with it.

    Runs that go on, and their jobs, are passed over: import them when they have ended.

    Raises:
        UsageError: no runs there, or a file that is none of the API's answers.

    """
    files = _files(folder, "runs")
    if not files:
        raise UsageError(f"{folder}: no runs.json", _SAVE)
    seen: set[object] = set()
    for path in files:
        for run in _listed(path, "workflow_runs"):
            ident = run.get("id")
            if ident in seen or not _ended(run):
                continue
            seen.add(ident)
            try:
                jobs = [job for part in _files(folder, f"jobs-{ident}") for job in _listed(part, "jobs")]
                if not jobs:
                    yield UsageError(f"{folder}: run {ident}: no jobs-{ident}.json, so it was left out", _SAVE)
                    continue
                yield rows_of(_run(run, jobs))
            except (KeyError, TypeError, ValueError, AttributeError) as e:
                what = f"no {e}" if isinstance(e, KeyError) else str(e)
                yield UsageError(f"{folder}: run {ident}: not as GitHub's API answers: {what}")


def _files(folder: Path, stem: str) -> list[Path]:
    names = [f"{stem}.json", f"{stem}.json.gz", f"{stem}[-_.]*.json", f"{stem}[-_.]*.json.gz"]
    return sorted({path for name in names for path in folder.glob(name)})


def _ended(item: dict[str, Any]) -> bool:
    return item.get("status") in (None, "completed") and item.get("conclusion") is not None


def _listed(path: Path, key: str) -> list[dict[str, Any]]:
    """Return the items of all documents in a file: one, several one after another, a list of pages, or bare items."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
        documents = list(_documents(text))
    except (OSError, EOFError, ValueError) as e:
        raise UsageError(f"{path}: {e}", _SAVE) from None
    items: list[dict[str, Any]] = []
    for document in documents:
        for page in document if isinstance(document, list) else [document]:
            found = (
                page.get(key, [page] if "id" in page or "name" in page else None) if isinstance(page, dict) else None
            )
            if not isinstance(found, list):
                raise UsageError(f"{path}: holds no list {key!r}", _SAVE)
            items += found
    return items


def _documents(text: str) -> Iterator[Any]:
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        document, at = decoder.raw_decode(text, at)
        yield document


def _run(run: dict[str, Any], jobs: Iterable[dict[str, Any]]) -> RunRecord:
    records: dict[str, JobRecord] = {}
    for job in sorted(jobs, key=lambda j: j.get("run_attempt") or 1):
        n, name = job.get("run_attempt") or 1, job["name"]
        if not _ended(job):
            continue
        twin = 2
        while any(a.n == n for a in records[name].attempts) if name in records else False:
            name, twin = f"{job['name']} #{twin}", twin + 1  # two jobs of one name in one attempt
        status = _CONCLUSIONS.get(job["conclusion"], Status.ERROR)
        record = records.setdefault(name, JobRecord(name=name, suite=run.get("name") or ""))
        record.status = status
        if job.get("started_at") and status is not Status.SKIPPED:
            record.attempts.append(Attempt(n=n, started=job["started_at"], ended=job.get("completed_at"),
                                           status=status, log=job.get("html_url") or ""))  # fmt: skip
    pull = (run.get("pull_requests") or [{}])[0]
    repository = (run.get("repository") or {}).get("full_name") or _repository(run)
    author = run.get("actor") or run.get("triggering_actor") or {}
    return RunRecord(
        id=f"github-{run['id']}", spec=SpecRef(path=run.get("path") or "", sha256=""), engine="actions", host="",
        repository=repository, commit=run["head_sha"], branch=run.get("head_branch"),
        base=(pull.get("base") or {}).get("sha"), pr=pull.get("number"), author=author.get("login"),
        started=run.get("run_started_at") or run["created_at"], ended=run.get("updated_at"),
        status=_CONCLUSIONS.get(run["conclusion"], Status.ERROR), jobs=list(records.values()),
    )  # fmt: skip


def _repository(run: dict[str, Any]) -> str | None:
    """Read the repository off the run's address."""
    parts = str(run.get("html_url") or "").split("/")
    return "/".join(parts[3:5]) if len(parts) > 4 else None
