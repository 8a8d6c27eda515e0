"""Takes batches from the queue and has the bot handle them."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable

from github import GithubException
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from bot.events import CommandEvent, Event, JobEvent, PullEvent, RunEvent, read_event
from bot.queue import Batch, Queue
from bot.service import Bot
from matrix.errors import MatrixError

log = logging.getLogger("bot")

MakeBot = Callable[[str, int | None], Bot]  # (repository, installation id) -> its bot


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.deliveries = Counter("bot_deliveries", "Webhook deliveries", ["event", "outcome"], registry=self.registry)
        self.batches = Counter("bot_batches", "Batches handled", ["outcome"], registry=self.registry)
        self.requests = Counter("bot_github_requests", "Requests to GitHub", registry=self.registry)
        self.depth = Gauge("bot_queue_depth", "Deliveries that wait or are being handled", registry=self.registry)
        self.seconds = Histogram("bot_handle_seconds", "Seconds to handle a batch", registry=self.registry)


def events_of(batch: Batch, login: str) -> tuple[str, int | None, list[Event]]:
    """Repository, installation and what is to be done for a batch.

    All deliveries of one commit ask for the same look at GitHub, so the last event about it is enough; commands each
    count.
    """
    repository, installation = "", None
    commands: list[Event] = []
    last: Event | None = None
    for delivery in batch.deliveries:
        payload = json.loads(delivery.payload)
        repository = (payload.get("repository") or {}).get("full_name") or repository
        installation = (payload.get("installation") or {}).get("id") or installation
        event = read_event(delivery.event, payload, login)
        if isinstance(event, CommandEvent):
            commands.append(event)
        elif isinstance(event, RunEvent) or (isinstance(event, (JobEvent, PullEvent)) and last is None):
            last = event
    return repository, installation, commands + ([last] if last else [])


class Worker:
    """One thread that empties the queue."""

    def __init__(
        self,
        queue: Queue,
        make_bot: MakeBot,
        login: str,
        metrics: Metrics,
        idle: float = 0.2,
        listen: float = 1800.0,
    ) -> None:
        self.queue, self.make_bot, self.login, self.metrics, self.idle = queue, make_bot, login, metrics, idle
        self.listen = listen  # seconds between looks for votes
        self._heard: dict[tuple[str, int | None], float] = {}  # repository, installation -> time of the last look
        self._wake, self._stop = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self._run, name="bot-worker", daemon=True)
        self.beat = time.monotonic()

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def stop(self, wait: float = 30.0) -> None:
        """Let the batch in hand end, then stop."""
        self._stop.set()
        self._wake.set()
        self.thread.join(wait)

    def wake(self) -> None:
        """Look into the queue now."""
        self._wake.set()

    @property
    def alive(self) -> bool:
        """True while the thread runs."""
        return self.thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.beat = time.monotonic()
            try:
                batch = self.queue.take()
            except Exception:
                log.exception("queue")
                batch = None
            if batch is None:
                self.hear()
                self._wake.wait(self.idle)
                self._wake.clear()
            else:
                self.handle(batch)

    def hear(self) -> None:
        """Look for votes in one repository that we know of from its deliveries, if its time has come."""
        due = [key for key, last in self._heard.items() if time.monotonic() - last >= self.listen]
        if not due:
            return
        self._heard[due[0]] = time.monotonic()
        try:
            bot = self.make_bot(*due[0])
            bot.listen()
            self.metrics.requests.inc(bot.github.budget.used)
        except (MatrixError, GithubException, OSError, ValueError) as e:
            log.warning("votes in %s: %s", due[0][0], e)
        except Exception:
            log.exception("votes in %s", due[0][0])

    def handle(self, batch: Batch) -> None:
        """Handle one batch; whatever goes wrong, the worker goes on and the batch comes back later."""
        begun = time.monotonic()
        bot: Bot | None = None
        try:
            repository, installation, events = events_of(batch, self.login)
            if events and repository:
                bot = self.make_bot(repository, installation)
                self._heard.setdefault((repository, installation), time.monotonic())
                for event in events:
                    bot.handle(event)
            self.queue.done(batch)
            self.metrics.batches.labels("done").inc()
        except (MatrixError, GithubException, OSError, ValueError) as e:
            self._failed(batch, e)
        except Exception as e:
            log.exception("batch %s", batch.subject)
            self._failed(batch, e)
        finally:
            if bot is not None:
                self.metrics.requests.inc(bot.github.budget.used)
            self.metrics.seconds.observe(time.monotonic() - begun)

    def _failed(self, batch: Batch, error: Exception) -> None:
        again = self.queue.fail(batch, f"{type(error).__name__}: {error}")
        log.warning("%s, try %s: %s%s", batch.subject, batch.tries, error, "" if again else "; given up")
        self.metrics.batches.labels("retry" if again else "dead").inc()
