"""Which engine a run has, and whether its jobs can run there at all."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

from matrix.engine.base import Engine
from matrix.engine.local import LocalEngine
from matrix.engine.slurm.cluster import Away, Cluster, Node, Refused
from matrix.engine.slurm.engine import SlurmEngine
from matrix.engine.slurm.fit import fit
from matrix.engine.slurm.queue import Pace
from matrix.errors import ToolError, UsageError
from matrix.run.own_cards import find_cards
from matrix.spec.job import Job

NAMES = ("local", "slurm")
_PATIENCE = 60.0  # seconds for a controller that restarts just now


def check(name: str, cards: str | None, jobs: Sequence[Job]) -> None:
    """Refuse jobs that could never run, before anything is written.

    Raises:
        UsageError: a job asks for more than there is.
        ToolError: nobody can say what there is.

    """
    if name != "slurm":
        find_cards(cards, jobs)
        return
    if cards is not None:
        raise UsageError("--cards together with --engine slurm: the cluster knows its cards", "leave one of them out")
    nodes = slurm_nodes()
    for job in jobs:
        fit(job.name, job.cards, job.nodes, nodes)


def make(name: str, cards: str | None, jobs: Sequence[Job]) -> Engine:
    """Make the engine of a run."""
    if name == "slurm":
        return SlurmEngine(slurm_nodes(), pace=_pace())
    return LocalEngine(find_cards(cards, jobs), owns_process=True)


def adopts(name: str, scratch: Path) -> bool:
    """Whether an attempt without a runner may still be under way, or have ended unseen, and is to be taken up."""
    return name == "slurm" and scratch.is_dir()


def slurm_nodes() -> list[Node]:
    """Return the nodes of the cluster.

    Raises:
        ToolError: the controller does not answer.

    """
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return asyncio.run(Cluster().nodes())
        except (Away, Refused) as e:
            if time.monotonic() > until or isinstance(e, Refused):
                raise ToolError(f"Slurm does not answer: {e}", "see that sinfo works here") from None
            time.sleep(1)


def _pace() -> Pace:
    """Return how often the queue is asked: $MATRIX_SLURM_POLL, in seconds."""
    text = os.environ.get("MATRIX_SLURM_POLL")
    if not text:
        return Pace()
    try:
        return Pace(queue=max(0.2, float(text)), files=min(0.5, float(text)))
    except ValueError:
        raise UsageError(f"$MATRIX_SLURM_POLL is {text!r}: write seconds, such as 5") from None
