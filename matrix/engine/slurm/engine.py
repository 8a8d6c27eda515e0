"""The engine of a Slurm cluster: every ready job goes to sbatch at once, and Slurm says when and where it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from matrix.engine.base import Held, Launch
from matrix.engine.local import Limits
from matrix.engine.slurm.attempt import SlurmRun
from matrix.engine.slurm.cluster import Cluster, Node
from matrix.engine.slurm.fit import fit
from matrix.engine.slurm.queue import Pace, Queue
from matrix.errors import ToolError, UsageError
from matrix.host.gpus import Card
from matrix.spec.job import Cards


class SlurmEngine:
    """Runs jobs on a Slurm cluster, from a host that can submit and shares the run's folder with the nodes."""

    name = "slurm"
    queue = True
    cards: Sequence[Card] = ()

    def __init__(
        self,
        nodes: Sequence[Node],
        cluster: Cluster | None = None,
        limits: Limits | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.nodes, self.limits = nodes, limits or Limits()
        self._queue = Queue(cluster or Cluster(), pace or Pace())
        self._runs: set[SlurmRun] = set()
        self._watch: asyncio.Task[None] | None = None

    async def held_by_others(self) -> Collection[Held]:
        """Return nothing: Slurm itself knows who holds its cards."""
        return ()

    def reserve(self, uuids: Collection[str], tag: str) -> None:
        """Do nothing: Slurm's scheduler lets nobody starve."""

    def elsewhere(self, want: Cards, nodes: int | None, hosts: Collection[str]) -> bool:
        """Whether the cluster could run a job without these nodes."""
        try:
            fit("", want, nodes, [node for node in self.nodes if node.name not in hosts])
        except UsageError:
            return False
        return True

    async def start(self, launch: Launch, leased: Callable[[], None] = lambda: None) -> SlurmRun:
        """Call `leased` (the record must be on disk first), then submit the job beside everything else.

        Raises:
            ToolError: the cluster could never run it.

        """
        return self._follow(launch, leased, again=False)

    async def adopt(self, launch: Launch) -> SlurmRun:
        """Take up an attempt that another runner submitted, or was about to."""
        return self._follow(launch, lambda: None, again=True)

    def close(self) -> None:
        """Let go; what was submitted goes on, and a resumed run takes it up."""

    def _follow(self, launch: Launch, leased: Callable[[], None], *, again: bool) -> SlurmRun:
        try:
            nodes = [node for node in self.nodes if node.name not in launch.exclude]
            chosen = fit(launch.tag, launch.want, launch.nodes, nodes)
        except UsageError as e:
            raise ToolError(e.message, e.advice) from e
        leased()
        run = SlurmRun(self._queue, launch, chosen, self.limits, again=again)
        self._runs.add(run)
        if self._watch is None or self._watch.done():
            self._watch = asyncio.create_task(self._look())
        return run

    async def _look(self) -> None:
        """Look at files often and at the queue now and then, for as long as anything runs.

        The one never waits for the other: while the controller restarts, squeue takes a minute to say so.
        """
        asked: asyncio.Task[None] | None = None
        while self._runs:
            if asked is None or asked.done():
                asked = asyncio.create_task(self._queue.refresh([run.id for run in self._runs if run.id]))
            for run in self._runs:
                run.look()
            self._runs = {run for run in self._runs if not run.over}
            await asyncio.sleep(self._queue.pace.files)
        if asked is not None:
            asked.cancel()
