"""The routes of the page. GET only; every answer carries headers that keep strangers' text from doing anything."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from jinja2 import PackageLoader
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from matrix.commands.history import since_time
from matrix.errors import MatrixError, UsageError
from matrix.page import api, metrics
from matrix.page.data import Data, NotThereError
from matrix.page.logs import window
from matrix.page.losses import Curves, curves
from matrix.records import BAD, FINAL, JobRecord
from matrix.report import svg
from matrix.report.html import environment
from matrix.report.view import view

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
_HEADERS = {
    "Content-Security-Policy": _POLICY + "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_KEPT = 50  # curves of jobs that are over
_SPANS = ("7d", "30d", "90d", "365d")


class Page:
    """The answers to each route."""

    def __init__(self, data: Data) -> None:
        self.data = data
        self.kept: dict[tuple[Path, str, int], Curves | None] = {}
        self.templates = environment(PackageLoader("matrix.page"))
        self.templates.globals |= {"day": _day}
        self.templates.filters |= {"sumcounts": lambda counts: sum(counts.values())}

    def show(self, template: str, status: int = 200, **values: object) -> Response:
        """Fill a template."""
        return HTMLResponse(self.templates.get_template(template).render(**values), status)

    def runs(self, _: Request) -> Response:
        """Show the newest runs."""
        listed = self.data.runs()
        return self.show(
            "runs.html.j2", runs=listed.runs, note=listed.note, going=any(r.going for r in listed.runs), here="runs"
        )

    def run(self, request: Request) -> Response:
        """Show a run."""
        run, folder = self.data.run(request.path_params["run"])
        going = self.data.at_work(run, folder)
        return self.show(
            "run.html.j2", run=run, view=view(run, folder),
            timeline=svg.timeline(run, time.time() if going else None), graph=svg.graph(run),
            waits=[w for w in svg.waits(run) if w[1] >= 1][:20], going=going, here="runs",
        )  # fmt: skip

    def job(self, request: Request) -> Response:
        """Show a job of a run."""
        run, job, folder = self.data.job(request.path_params["run"], request.path_params["job"])
        found = self.curves(folder, job)
        losses = ulps = None
        if found is not None:
            marks = [] if found.first_difference is None else [found.first_difference]
            series = [(job.name, found.found), (f"baseline {found.baseline}", found.expected)]
            losses = svg.lines(series, f"Loss of {job.name} by step", marks=marks)
            ulps = svg.lines([("float32 steps from the baseline", found.ulps)], "Difference from the baseline by step")
        failure = next((f for f in view(run, folder).failures if f.job.name == job.name), None)
        return self.show(
            "job.html.j2", run=run, job=job, failure=failure, curves=found, losses=losses, ulps=ulps,
            going=job.status not in FINAL and self.data.at_work(run, folder), here="runs",
        )  # fmt: skip

    def curves(self, folder: Path, job: JobRecord) -> Curves | None:
        """Return the curves of a job; those of a job that is over are kept, since a long log takes a second to read."""
        if job.status not in FINAL:
            return curves(folder, job)
        key = (folder, job.name, len(job.attempts))
        if key not in self.kept:
            if len(self.kept) >= _KEPT:
                del self.kept[next(iter(self.kept))]
            self.kept[key] = curves(folder, job)
        return self.kept[key]

    def log(self, request: Request) -> Response:
        """Show a window of a log, with its causes marked."""
        name, path = request.path_params["run"], request.path_params["path"]
        run, _ = self.data.run(name)
        file = self.data.log(name, path)
        causes = _causes(run.jobs, path)
        text = request.query_params.get("line", "")
        line = int(text) if text.isdecimal() and len(text) < 12 else next((c for c in causes if c), 1)
        return self.show(
            "log.html.j2", run=run, path=path, size=file.stat().st_size, window=window(file, line), line=line,
            causes=causes, here="runs",
        )  # fmt: skip

    def raw(self, request: Request) -> Response:
        """Send a log as it is."""
        file = self.data.log(request.path_params["run"], request.path_params["path"])
        return FileResponse(file, media_type="text/plain; charset=utf-8", headers={"Content-Disposition": "attachment"})

    def history(self, request: Request) -> Response:
        """Show what is remembered over many runs."""
        since = request.query_params.get("since", "30d")
        return self.show(
            "history.html.j2", past=self.data.past(since_time(since)), since=since, spans=_SPANS, here="history"
        )

    def api_runs(self, _: Request) -> Response:
        """Answer /api/runs."""
        return _json(api.runs(self.data))

    def api_run(self, request: Request) -> Response:
        """Answer /api/runs/RUN."""
        return _json(self.data.run(request.path_params["run"])[0])

    def api_job(self, request: Request) -> Response:
        """Answer /api/runs/RUN/jobs/JOB."""
        return _json(self.data.job(request.path_params["run"], request.path_params["job"])[1])

    def api_losses(self, request: Request) -> Response:
        """Answer /api/runs/RUN/jobs/JOB/losses."""
        return _json(api.losses(self.data, request.path_params["run"], request.path_params["job"]))

    def api_history(self, request: Request) -> Response:
        """Answer /api/history."""
        return _json(api.history(self.data.past(since_time(request.query_params.get("since", "30d")))))

    def api_description(self, _: Request) -> Response:
        """Answer /api/openapi.json."""
        return JSONResponse(api.openapi())

    def metrics(self, _: Request) -> Response:
        """Answer /metrics."""
        return Response(
            metrics.text(self.data, self.data.past(since_time("30d"))), media_type="text/plain; version=0.0.4"
        )

    def missing(self, request: Request, error: Exception) -> Response:
        """Say that something is not there, or cannot be read."""
        status = 404
        if isinstance(error, MatrixError):
            status = 400 if isinstance(error, UsageError) else 503
        said = str(error) if isinstance(error, NotThereError | MatrixError) else "there is no such page"
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": said}, status)
        return self.show("error.html.j2", status, message=said, here="")

    def broken(self, request: Request, error: Exception) -> Response:
        """Say that an answer failed; the server writes the traceback to its own standard error."""
        said = f"This page failed: {type(error).__name__}. It is a fault of the program; its terminal shows where."
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": said}, 500, headers=_HEADERS)
        answer = self.show("error.html.j2", 500, message=said, here="")
        answer.headers.update(_HEADERS)  # this answer passes by `_guard`
        return answer


def make_app(data: Data, hosts: Sequence[str] = ("localhost", "127.0.0.1", "[::1]")) -> Starlette:
    """Return the application. `hosts` are the names it may be called by: others are refused (DNS rebinding)."""
    page = Page(data)
    routes = [
        Route("/", page.runs),
        Route("/runs/{run}", page.run),
        Route("/runs/{run}/jobs/{job}", page.job),
        Route("/runs/{run}/log/{path:path}", page.log),
        Route("/runs/{run}/raw/{path:path}", page.raw),
        Route("/history", page.history),
        Route("/api/runs", page.api_runs),
        Route("/api/runs/{run}", page.api_run),
        Route("/api/runs/{run}/jobs/{job}", page.api_job),
        Route("/api/runs/{run}/jobs/{job}/losses", page.api_losses),
        Route("/api/history", page.api_history),
        Route("/api/openapi.json", page.api_description),
        Route("/metrics", page.metrics),
        Route("/healthz", lambda _: PlainTextResponse("ok")),
        Mount("/static", StaticFiles(directory=Path(__file__).parent / "static")),
    ]
    handlers = {NotThereError: page.missing, MatrixError: page.missing, 404: page.missing, 500: page.broken}
    middleware = [
        Middleware(BaseHTTPMiddleware, dispatch=_guard),
        Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts)),
        Middleware(GZipMiddleware),
    ]
    return Starlette(routes=routes, exception_handlers=handlers, middleware=middleware)


async def _guard(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
    response = await answer(request)
    for name, value in _HEADERS.items():
        response.headers.setdefault(name, value)
    return response


def _json(model: BaseModel) -> Response:
    return Response(model.model_dump_json(by_alias=True), media_type="application/json")


def _day(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))


def _causes(jobs: Sequence[JobRecord], path: str) -> dict[int, str]:
    """Return the category by line of the causes that lie in a log."""
    return {
        c.line: c.category
        for j in jobs
        for a in j.attempts
        for c in a.causes
        if c.line is not None and (a.log == path if c.file is None else path.endswith(f"/{c.file}")) and j.status in BAD
    }
