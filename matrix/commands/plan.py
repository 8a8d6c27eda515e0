"""`matrix plan`: what would run where, when and why, if every job took the time expected of it."""

from __future__ import annotations

import datetime as dt
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click
from rich.markup import escape
from rich.table import Table

from matrix.baseline.mistyped import mistyped
from matrix.commands.choose import Chosen, Site, choose, job_options, site
from matrix.commands.list import describe_cards, wide_console
from matrix.plan.forecast import Expected, Forecast, expected_times, forecast
from matrix.plan.hosts import Host
from matrix.plan.schedule import Capacity
from matrix.report.text import count, duration
from matrix.run.times import known_times


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan and all that is said about it."""

    chosen: Chosen
    site: Site
    host: Host
    expected: Mapping[str, Expected]
    forecast: Forecast
    impossible: Mapping[str, str]  # job -> why it cannot run here
    notes: tuple[str, ...]


@click.command("plan")
@job_options
@click.option("--host", "host_name", metavar="NAME", help="Plan for this host of the hosts file.")
@click.option(
    "--engine", type=click.Choice(["local", "slurm", "actions"]), default="local", show_default=True,
    help="For whom: this host, a Slurm cluster, or the matrix of a GitHub Actions workflow (JSON).",
)  # fmt: skip
@click.option("--github-output", is_flag=True, help="With --engine actions: add each matrix to $GITHUB_OUTPUT too.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (schema plan/1).")
def command(
    args: tuple[str, ...],
    only: tuple[str, ...],
    tags: tuple[str, ...],
    changed_since: str | None,
    handoffs: tuple[str, ...],
    cards: str | None,
    host_name: str | None,
    engine: str,
    github_output: bool,
    as_json: bool,
) -> None:
    """Show what would run, on which cards, in which order, and why.

    Example: matrix plan --changed-since origin/main --cards 8
    """
    if engine != "local":
        from matrix.commands import plan_elsewhere  # noqa: PLC0415 -- only where it is wanted

        chosen = choose(args, only, tags, changed_since, handoffs)
        if engine == "slurm":
            plan_elsewhere.for_slurm(chosen, as_json=as_json)
        else:
            plan_elsewhere.for_actions(chosen, github_output=github_output)
        return
    here = site(cards)
    # Real cards of a laptop say nothing about where the matrix is meant to run; a named site does.
    hosts = here.hosts if cards or here.source.endswith((".yaml", ".yml")) else None
    chosen = choose(args, only, tags, changed_since, handoffs, hosts=hosts)
    if chosen.spec.pretend_cards and hosts is None and not any(host.cards for host in here.hosts):
        here = site(chosen.spec.pretend_cards)
    plan = make_plan(chosen, here, host_name)
    if as_json:
        click.echo(json.dumps(_document(plan), indent=1, ensure_ascii=False))
    else:
        _print(plan)


def make_plan(chosen: Chosen, here: Site, host_name: str | None = None, today: str | None = None) -> Plan:
    """Plan the chosen jobs on one host."""
    jobs = chosen.jobs
    host = here.host(host_name, jobs)
    impossible = {
        job.name: f"asks for {describe_cards(job)}; {host.name} has {describe_host(host)}"
        for job in jobs
        if not host.fits(job.cards)
    }
    known = known_times(jobs, chosen.spec.root, {card.model for card in host.cards}, os.environ)
    expected = expected_times(jobs, known.past)
    capacity = Capacity(host.cards, host.cpu_jobs or os.cpu_count() or 1, host.memory)
    paper = forecast(jobs, capacity, {name: e.seconds for name, e in expected.items()})
    planned = {p.name for p in paper.planned}
    for job in jobs:
        if job.name not in planned:
            impossible.setdefault(job.name, "needs what a job produces that cannot run here")
    day = today or dt.datetime.now(dt.UTC).date().isoformat()
    notes = [problem for problem in (here.problem, known.problem) if problem]
    notes += mistyped(jobs, chosen.spec.root)
    notes += [
        f"{job.name}: failures counted as allowed until {job.allow_failure.until}, which is past; they count again"
        for job in jobs
        if job.allow_failure and not job.allowed(day)
    ]
    return Plan(chosen, here, host, expected, paper, impossible, tuple(notes))


def describe_host(host: Host) -> str:
    """`8 × H20`, `4 × H20 + 4 × A100` or `no cards`."""
    counts: dict[str, int] = {}
    for card in host.cards:
        counts[card.model or "cards"] = counts.get(card.model or "cards", 0) + 1
    return " + ".join(f"{count} × {model}" for model, count in counts.items()) or "no cards"


def _document(plan: Plan) -> dict[str, Any]:
    spec, paper = plan.chosen.spec, plan.forecast
    reasons = {choice.job.name: choice.reason for choice in plan.chosen.choices}
    return {
        "schema": "plan/1",
        "spec": {"path": str(spec.path), "sha256": spec.sha256},
        "host": {"name": plan.host.name, "cards": len(plan.host.cards), "source": plan.site.source},
        "makespan": round(paper.makespan, 3),
        "bound": round(paper.bound, 3),
        "jobs": [
            {
                "name": p.name,
                "start": round(p.start, 3),
                "end": round(p.end, 3),
                "waits": round(p.start - p.ready, 3),
                "cards": list(p.cards),
                "expected": plan.expected[p.name].seconds,
                "expected_from": plan.expected[p.name].source,
                "expected_from_runs": plan.expected[p.name].runs,
                "selected_because": reasons[p.name],
                "starts_because": p.why,
            }
            for p in paper.planned
        ],
        "impossible": [{"name": name, "reason": reason} for name, reason in plan.impossible.items()],
        "skipped": [
            {"name": choice.job.name, "reason": choice.reason} for choice in plan.chosen.choices if not choice.selected
        ],
        "notes": list(plan.notes),
    }


def _print(plan: Plan) -> None:
    console = wide_console()
    order = {card.id: i for i, card in enumerate(plan.host.cards)}
    reasons = {choice.job.name: choice.reason for choice in plan.chosen.choices}
    console.print(
        f"on [bold]{escape(plan.host.name)}[/]: {escape(describe_host(plan.host))} ({escape(plan.site.source)})"
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    selected = {reasons[p.name] for p in plan.forecast.planned}
    varied = ("selected because",) if len(selected) > 1 else ()  # what is the same for all is said once
    for name in ("start", "takes", "job", "cards", "time from", *varied, "starts because"):
        table.add_column(name, overflow="fold", no_wrap=name in ("start", "takes"))
    for p in plan.forecast.planned:
        cards = ",".join(str(i) for i in sorted(order[card] for card in p.cards)) or "cpu"
        why = [reasons[p.name]] if varied else []
        texts = map(escape, [p.name, cards, _source(plan.expected[p.name]), *why, p.why])
        table.add_row(_clock(p.start), _clock(p.end - p.start), *texts)
    console.print(table)
    if selected and not varied:
        console.print(f"selected because: {escape(selected.pop())}")
    for name, reason in plan.impossible.items():
        console.print(f"[red]cannot run here[/] {escape(name)}: {escape(reason)}")
    skipped = [choice for choice in plan.chosen.choices if not choice.selected]
    for choice in skipped:
        console.print(f"[dim]skipped {escape(choice.job.name)}: {escape(choice.reason)}[/]")
    for note in plan.notes:
        console.print(f"[yellow]note[/] {escape(note)}")
    paper = plan.forecast
    if paper.planned:
        over = ""
        if paper.bound:
            ratio = paper.makespan / paper.bound
            over = f", {ratio:.2f} × the bound of {duration(paper.bound)} below which no order comes"
        guessed = sum(not plan.expected[p.name].known for p in paper.planned)
        if guessed:
            over += f"; {'all' if guessed == len(paper.planned) else guessed} of these times are guesses"
        console.print(f"{count(len(paper.planned), 'job')} in about {duration(paper.makespan)}{over}")


def _source(expected: Expected) -> str:
    return f"{expected.source}, {count(expected.runs, 'run')}" if expected.runs else expected.source


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"
