"""`matrix list`: the jobs of a matrix."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Sequence
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from matrix.baseline.mistyped import mistyped
from matrix.commands.choose import choose, job_options, site
from matrix.spec.job import Job
from matrix.spec.units import format_duration


@click.command("list")
@job_options
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (schema list/1).")
def command(
    args: tuple[str, ...],
    only: tuple[str, ...],
    tags: tuple[str, ...],
    changed_since: str | None,
    handoffs: tuple[str, ...],
    cards: str | None,
    as_json: bool,
) -> None:
    """List the jobs of a matrix, with parameters expanded.

    Example: matrix list --only 'qwen*'
    """
    hosts = site(cards).hosts if cards else None
    chosen = choose(args, only, tags, changed_since, handoffs, hosts=hosts)
    if as_json:
        document = {
            "schema": "list/1",
            "spec": {"path": str(chosen.spec.path), "sha256": chosen.spec.sha256},
            "jobs": [{**job_dict(choice.job), "reason": choice.reason} for choice in chosen.choices if choice.selected],
        }
        click.echo(json.dumps(document, indent=1, ensure_ascii=False))
        return
    _print(chosen.jobs)
    for said in mistyped(chosen.jobs, chosen.spec.root):
        click.echo(f"matrix: {said}", err=True)


def job_dict(job: Job) -> dict[str, Any]:
    """Return a job as JSON has it."""
    return dataclasses.asdict(job)


def describe_cards(job: Job) -> str:
    """`8 × H20`, `1 (shared)` or `cpu`."""
    if not job.cards.count:
        return "cpu"
    model = f" × {job.cards.model}" if job.cards.model else ""
    return f"{job.cards.count}{model}" + ("" if job.cards.exclusive else " (shared)")


def wide_console() -> Console:
    """Return a console that wraps at the terminal's width, and late where there is no terminal (CI logs, pipes)."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=160)


def _print(jobs: Sequence[Job]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("job", "cards", "expect", "limit", "needs", "produces", "tags"):
        table.add_column(name, overflow="fold", no_wrap=name in ("cards", "expect", "limit"))
    for suite, members in itertools.groupby(jobs, lambda job: job.suite):
        table.add_row(f"[bold cyan]{escape(suite)}[/]")
        for job in members:
            allowed = " [dim](may fail)[/]" if job.allow_failure else ""
            table.add_row(
                f"  {escape(job.name)}{allowed}",
                describe_cards(job),
                format_duration(job.expect) if job.expect else "",
                format_duration(job.timeout),
                escape(", ".join(job.needs)),
                escape(", ".join(handoff.name for handoff in job.produces)),
                escape(", ".join(job.tags)),
            )
    console = wide_console()
    console.print(table)
    console.print(f"{len(jobs)} job{'' if len(jobs) == 1 else 's'}", style="dim")
