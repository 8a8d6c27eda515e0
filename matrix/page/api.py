"""The interface for programs: typed answers, described by OpenAPI 3.1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from matrix.page.data import Data, NotThereError, Past
from matrix.page.losses import curves
from matrix.records import JobRecord, RunRecord


class RunRow(BaseModel):
    """A run in the list; `here` tells whether its folder can be read, `going` whether it goes on."""

    id: str
    status: str
    started: str
    headline: str
    commit: str | None
    branch: str | None
    pr: int | None
    here: bool
    going: bool


class Runs(BaseModel):
    """The newest runs; `note` says why some may be missing."""

    runs: list[RunRow]
    note: str | None


class Losses(BaseModel):
    """Points (step, loss) of a job and of its baseline, and the float32 steps between them."""

    found: list[tuple[float, float]]
    expected: list[tuple[float, float]]
    ulps: list[tuple[float, float]]
    source: str
    baseline: str | None
    note: str | None


class FlakyTest(BaseModel):
    """A test that both passed and failed on one commit; `low` and `high` bound its rate at 95 %."""

    test: str
    failed: int
    ran: int
    commits_both: int
    low: float
    high: float


class DayCounts(BaseModel):
    """Failures of a day (UTC) by name."""

    day: str
    counts: dict[str, int]


class CardRow(BaseModel):
    """How a card did; hours of use, last use in seconds since 1970."""

    uuid: str
    model: str
    host: str
    attempts: int
    failed: int
    low: float
    high: float
    hours: float
    last: float


class TrendRow(BaseModel):
    """Median seconds of a job's passed attempts, the older half and the newer."""

    job: str
    runs: int
    before: float
    now: float


class HoursRow(BaseModel):
    """Card-hours of a pull request (null: of branches) by outcome; `waited`: needed and not yet, or never, had."""

    pr: int | None
    useful: float
    failed: float
    hangs: float
    retries: float
    waited: float


class AccuracyRow(BaseModel):
    """How often readers called diagnoses of a category right."""

    category: str
    right: int
    answers: int
    low: float
    high: float


class History(BaseModel):
    """What is remembered since a time."""

    results: int
    runs: int
    flaky: list[FlakyTest]
    categories: list[DayCounts]
    verdicts: list[DayCounts]
    cards: list[CardRow]
    trends: list[TrendRow]
    hours: list[HoursRow]
    accuracy: list[AccuracyRow]


class Error(BaseModel):
    """Why there is no answer."""

    error: str


def runs(data: Data) -> Runs:
    """List the newest runs."""
    return Runs.model_validate(asdict(data.runs()))


def losses(data: Data, run: str, job: str) -> Losses:
    """Return the loss curves of a job.

    Raises:
        NotThereError: no such job, or one without losses.

    """
    _, record, folder = data.job(run, job)
    found = curves(folder, record)
    if found is None:
        raise NotThereError(f"no losses of {job!r} in run {run}")
    return Losses.model_validate(asdict(found))


def history(past: Past | None) -> History:
    """Return what is remembered; empty lists where nothing is."""
    empty: dict[str, Any] = {k: [] for k in History.model_fields} | {"results": 0, "runs": 0}
    return History.model_validate(asdict(past) if past else empty)


# path, what it answers, its model, the names in the path, whether it takes `since`
PATHS: tuple[tuple[str, str, type[BaseModel], bool], ...] = (
    ("/api/runs", "The newest runs", Runs, False),
    ("/api/runs/{run}", "The record of a run", RunRecord, False),
    ("/api/runs/{run}/jobs/{job}", "The record of a job", JobRecord, False),
    ("/api/runs/{run}/jobs/{job}/losses", "Loss curves of a job", Losses, False),
    ("/api/history", "What is remembered over many runs", History, True),
)


def openapi() -> dict[str, Any]:
    """Return the description of the interface."""
    models = [(m, "serialization") for m in dict.fromkeys([*(p[2] for p in PATHS), Error])]
    mapping, top = models_json_schema(models, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    problem = {"content": {"application/json": {"schema": mapping[Error, "serialization"]}}}
    paths: dict[str, Any] = {}
    for path, summary, model, since in PATHS:
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        parameters: list[dict[str, Any]] = [
            {"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in names
        ]
        if since:
            about = "a duration (30d) or a date (2026-12-01)"
            parameters.append({"name": "since", "in": "query", "description": about, "schema": {"type": "string"}})
        answer = {"content": {"application/json": {"schema": mapping[model, "serialization"]}}}
        responses = {"200": {"description": summary} | answer}
        if names:
            responses["404"] = {"description": "There is none"} | problem
        if since:
            responses["400"] = {"description": "A parameter is wrong"} | problem
        responses["503"] = {"description": "The history cannot be read"} | problem
        name = "_".join(part.strip("{}") for part in path.split("/")[2:])
        get = {"summary": summary, "operationId": name, "parameters": parameters, "responses": responses}
        paths[path] = {"get": get}
    return {
        "openapi": "3.1.0",
        "info": {"title": "matrix", "version": version("dsv4-ci")},
        "paths": paths,
        "components": {"schemas": top.get("$defs", {})},
    }


Answer = Callable[[], BaseModel]
