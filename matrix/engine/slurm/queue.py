"""What the queue said last, for all attempts of a run together: one squeue now and then for any number of jobs."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from matrix.engine.slurm.cluster import Away, Cluster, Entry


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds between looks, and how long is waited for what should come."""

    files: float = 0.5  # between looks at what the nodes wrote
    queue: float = 5.0  # between looks at the queue
    settle: float = 15.0  # from the end that Slurm reports to the nodes' word, which NFS may delay
    cancel: float = 30.0  # from our own word to scancel
    submit: float = 900.0  # for a controller that does not answer when a job is submitted


class Queue:
    """The queue as it was seen last."""

    def __init__(self, cluster: Cluster, pace: Pace) -> None:
        self.cluster, self.pace = cluster, pace
        self.asked = 0.0  # monotonic: when the last answer was asked for
        self._tried = 0.0
        self._entries: dict[str, Entry] = {}
        self._kill_wait: float | None = None

    async def refresh(self, ids: Collection[str]) -> None:
        """Ask again if it is time. A controller that does not answer leaves what was known."""
        now = time.monotonic()
        if not ids or now - self._tried < self.pace.queue:
            return
        self._tried = now
        try:
            self._entries = {entry.id: entry for entry in await self.cluster.queue(ids)}
        except Away:
            return
        self.asked = now

    def entry(self, job: str | None) -> Entry | None:
        """Return the line of one job."""
        return self._entries.get(job or "")

    async def kill_wait(self) -> float:
        """Return the seconds between Slurm's TERM and its KILL."""
        if self._kill_wait is None:
            self._kill_wait = await self.cluster.kill_wait()
        return self._kill_wait
