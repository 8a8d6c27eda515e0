"""The webhook server: checks the signature, keeps the delivery, answers at once; a worker does the rest."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import re
from collections.abc import AsyncIterator

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from bot.events import read_event, subject
from bot.queue import Delivery, SqliteQueue
from bot.worker import MakeBot, Metrics, Worker

log = logging.getLogger("bot")
BODY_LIMIT = 26_214_400  # bytes; GitHub sends at most 25 MiB
_ID = re.compile(r"[0-9A-Za-z-]{1,64}")


def signature(secret: str, body: bytes) -> str:
    """Compute the value of GitHub's header `X-Hub-Signature-256`."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def is_signed(secret: str, body: bytes, header: str | None) -> bool:
    """Compare in constant time. The older SHA-1 header is not accepted."""
    return hmac.compare_digest(signature(secret, body).encode(), (header or "").encode("utf-8", "replace"))


class Server:
    """The routes, with what they share."""

    def __init__(self, queue: SqliteQueue, make_bot: MakeBot, login: str, secret: str, listen: float) -> None:
        self.queue, self.login, self.secret = queue, login, secret
        self.metrics = Metrics()
        self.worker = Worker(queue, make_bot, login, self.metrics, listen=listen)

    async def webhook(self, request: Request) -> Response:
        """Take a delivery: 202 if it is queued, 200 if there is nothing to do for it, 4xx if it is refused."""
        try:
            body = await _body(request)
        except ClientDisconnect:
            return PlainTextResponse("gone", 400)
        outcome, status = await self._take(request, body)
        name = request.headers.get("x-github-event", "")
        known = status < 400 and re.fullmatch("[a-z_]{1,40}", name)  # a stranger must not make up labels
        self.metrics.deliveries.labels(name if known else "other", outcome).inc()
        return JSONResponse({"outcome": outcome}, status)

    async def _take(self, request: Request, body: bytes | None) -> tuple[str, int]:
        name = request.headers.get("x-github-event", "")
        ident = request.headers.get("x-github-delivery", "")
        if body is None:
            return "too-large", 413
        if not is_signed(self.secret, body, request.headers.get("x-hub-signature-256")):
            return "bad-signature", 401
        if not _ID.fullmatch(ident) or not name:
            return "no-delivery-id", 400
        try:
            payload = json.loads(body)
        except ValueError:
            return "not-json", 400
        if read_event(name, payload, self.login) is None:
            return "ignored", 200
        delivery = Delivery(ident, name, subject(name, payload), body.decode("utf-8", "replace"))
        if not await run_in_threadpool(self.queue.put, delivery):
            return "duplicate", 200
        self.worker.wake()
        return "queued", 202

    async def healthz(self, _: Request) -> Response:
        """Say if the worker runs and the queue can be read."""
        try:
            depth = await run_in_threadpool(self.queue.depth)
        except Exception as e:  # noqa: BLE001 - whatever it is, the answer is "not well"
            return JSONResponse({"ok": False, "error": type(e).__name__}, 503)
        return JSONResponse({"ok": self.worker.alive, "queue": depth}, 200 if self.worker.alive else 503)

    async def show_metrics(self, _: Request) -> Response:
        """Show counters in Prometheus' text format."""
        self.metrics.depth.set(await run_in_threadpool(self.queue.depth))
        return Response(generate_latest(self.metrics.registry), media_type=CONTENT_TYPE_LATEST)


def make_app(queue: SqliteQueue, make_bot: MakeBot, login: str, secret: str, *, listen: float = 1800.0) -> Starlette:
    """Make the ASGI application. Its worker lives as long as the application does.

    `listen`: seconds between looks for votes on the reports of a repository.
    """
    server = Server(queue, make_bot, login, secret, listen)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        server.worker.start()
        yield
        await run_in_threadpool(server.worker.stop)

    return Starlette(
        routes=[
            Route("/webhook", server.webhook, methods=["POST"]),
            Route("/healthz", server.healthz),
            Route("/metrics", server.show_metrics),
        ],
        lifespan=lifespan,
    )


async def _body(request: Request) -> bytes | None:
    """Read the body; None if it is longer than GitHub ever sends."""
    got = bytearray()
    async for chunk in request.stream():
        got += chunk
        if len(got) > BODY_LIMIT:
            return None
    return bytes(got)
