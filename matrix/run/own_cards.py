"""The cards of this host: pretended, found by the driver, or named by the site's file."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from matrix.errors import ToolError, UsageError
from matrix.host import gpus
from matrix.host.gpus import Card
from matrix.plan import hosts
from matrix.plan.hosts import card_suits
from matrix.report.text import count
from matrix.spec.job import Job


def find_cards(pretended: str | None, jobs: Sequence[Job]) -> tuple[Card, ...]:
    """Return the cards of this host: pretended, found by the driver, or named by the site.

    Raises:
        UsageError: a job asks for more than there are.
        ToolError: a job asks for cards and the driver does not answer.

    """
    if pretended is not None:
        cards, problem = gpus.pretended(pretended), None
    else:
        found = gpus.discover()
        cards, problem = found.cards or _site_cards(), found.problem
    for job in jobs:
        if (job.nodes or 1) > 1:
            raise UsageError(f"{job.name} asks for {job.nodes} nodes; this is one host", "run it with --engine slurm")
        fitting = [c for c in cards if card_suits(hosts.Card(c.uuid, c.model), job.cards.model)]
        if job.cards.count > len(fitting):
            if problem:
                raise ToolError(f"{job.name} asks for cards, and this host cannot say which it has: {problem}")
            of = f" of model {job.cards.model}" if job.cards.model else ""
            here = "this host has" if pretended is None else f"--cards {pretended} gives"
            some = "some" if pretended is None else "others"
            raise UsageError(
                f"{job.name} asks for {count(job.cards.count, 'card')}{of}; {here} {len(fitting)}",
                f"choose others with --only, or pretend {some}: --cards {whole_need(jobs)}",
            )
    return cards


def whole_need(jobs: Sequence[Job]) -> str:
    """Return what `--cards` needs so that each of these jobs can run, of their model where they all name one.

    Cards of no model suit every wish, and are compared with no baseline: so the model is named wherever one will do.
    """
    most = max((job.cards.count for job in jobs), default=0)
    models = {job.cards.model for job in jobs if job.cards.count and job.cards.model}
    return f"{models.pop()}:{most}" if len(models) == 1 else str(most)


def site_host() -> hosts.Host | None:
    """Return what the site's file says of this host."""
    path = hosts.hosts_file()
    if path is None:
        return None
    name = socket.gethostname()
    return next((h for h in hosts.read_hosts(path) if h.name in (name, name.split(".")[0])), None)


def _site_cards() -> tuple[Card, ...]:
    """Return the cards that the site's file gives to this host, where no NVIDIA driver can tell."""
    host = site_host()
    return tuple(Card(f"{host.name}-{c.id}", i, c.model or "") for i, c in enumerate(host.cards)) if host else ()
