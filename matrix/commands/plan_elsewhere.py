"""`matrix plan --engine slurm|actions`: what each job asks of a cluster, or the matrices of a workflow."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from matrix.commands.choose import Chosen
from matrix.engine.actions import Matrix, matrices
from matrix.engine.slurm.fit import arguments, fit
from matrix.errors import UsageError
from matrix.plan.forecast import expected_times
from matrix.plan.graph import needed_jobs, tails
from matrix.plan.hosts import hosts_file, read_hosts
from matrix.run.engines import slurm_nodes
from matrix.run.times import known_times

_MOST = 1 << 20  # bytes that GitHub takes as the outputs of one job


def for_slurm(chosen: Chosen, *, as_json: bool) -> None:
    """Print what every job asks of the cluster."""
    nodes = slurm_nodes()
    found: list[dict[str, Any]] = []
    for job in chosen.jobs:
        takes = fit(job.name, job.cards, job.nodes, nodes)
        words = arguments(takes, name=job.name, output=Path(), timeout=job.timeout, memory=job.memory, env=os.environ)
        shown = [w for w in words if w.startswith(("--nodes", "--gres", "--time", "--mem"))]
        needs = list(job.needs)
        found.append({"name": job.name, "nodes": takes.nodes, "cards": takes.cards, "gres": takes.gres or None,
                      "needs": needs, "sbatch": shown})  # fmt: skip
    if as_json:
        click.echo(json.dumps({"schema": "slurm-plan/1", "jobs": found}, indent=1))
        return
    for row in found:
        after = f"  after {', '.join(row['needs'])}" if row["needs"] else ""
        click.echo(f"{row['name']}  {' '.join(row['sbatch'])}{after}")


def for_actions(chosen: Chosen, *, github_output: bool) -> None:
    """Print the matrices, and add them to the outputs of the workflow's job."""
    file = hosts_file()
    hosts = read_hosts(file) if file else []
    known = known_times(chosen.jobs, chosen.spec.root, {c.model for host in hosts for c in host.cards}, os.environ)
    if known.problem:
        click.echo(f"matrix: {known.problem}", err=True)
    expected = {name: e.seconds for name, e in expected_times(chosen.jobs, known.past).items()}
    found = matrices(chosen.jobs, hosts, given=chosen.handoffs, policy=chosen.spec.retry, expected=expected)
    skipped = [{"name": c.job.name, "reason": c.reason} for c in chosen.choices if not c.selected]
    document: dict[str, Any] = {
        "schema": "actions-plan/1",
        "spec": {"path": chosen.spec.path.name, "sha256": chosen.spec.sha256},
        "matrices": [{"id": m.id, "wave": m.wave, "matrix": m.document} for m in found],
        "skipped": skipped,
        # Seconds that no number of runners can beat: the longest chain of hand-offs.
        "bound": round(max(tails(needed_jobs(chosen.jobs), expected).values(), default=0.0), 3),
    }
    if github_output:
        _outputs(found)
    click.echo(json.dumps(document, indent=1, ensure_ascii=False))


def _outputs(found: list[Matrix]) -> None:
    """Write one output a matrix.

    Raises:
        UsageError: not in a workflow, or more than GitHub takes.

    """
    path = os.environ.get("GITHUB_OUTPUT")
    if not path:
        raise UsageError("--github-output, and $GITHUB_OUTPUT is not set", "leave it out outside of a workflow")
    lines = [f"{m.id}={json.dumps(m.document, separators=(',', ':'))}" for m in found]
    text = "".join(f"{line}\n" for line in lines)
    if 2 * len(text) > _MOST:  # GitHub counts UTF-16
        raise UsageError("the matrices are longer than outputs may be", "choose fewer jobs with --only or --tag")
    with Path(path).open("a", encoding="utf-8") as f:
        f.write(text)
