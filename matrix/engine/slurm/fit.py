"""Which Slurm resources a job asks for: how many nodes, which GRES. Values only."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from matrix.engine.slurm.cluster import Node
from matrix.errors import UsageError
from matrix.plan import hosts
from matrix.spec.job import Cards

_LEEWAY = 120.0  # seconds beyond the job's own limit before Slurm's strikes: start, stacks, TERM, KILL
ARGUMENTS = "MATRIX_SLURM_ARGS"
# How an agent is started: with the folder of this package and the plan as arguments.
START = "import sys; sys.path.insert(0, sys.argv[1]); from matrix.engine.slurm.agent import main; main()"


@dataclass(frozen=True, slots=True)
class Fit:
    """What one job takes: nodes, and on each of them so many cards of a GRES type (empty: of any)."""

    nodes: int = 1
    cards: int = 0  # a node
    gres: str = ""


def fit(name: str, want: Cards, wanted_nodes: int | None, cluster: Sequence[Node]) -> Fit:
    """Choose the fewest nodes of one kind on which the cards can be had.

    Raises:
        UsageError: the cluster could never run such a job.

    """
    nodes = list({node.name: node for node in cluster}.values())
    if not want.count:
        if (wanted_nodes or 1) > len(nodes):
            raise UsageError(f"{name} asks for {wanted_nodes} nodes; the cluster has {len(nodes)}")
        return Fit(wanted_nodes or 1)
    for gres in _kinds(nodes, want.model):
        each = sorted((_cards(node, gres, want.model) for node in nodes), reverse=True)
        for count in [wanted_nodes] if wanted_nodes else range(1, len(nodes) + 1):
            share, rest = divmod(want.count, count)
            if not rest and count <= len(each) and each[count - 1] >= share:
                return Fit(count, share, gres)
    on = f" on {wanted_nodes} nodes" if wanted_nodes else ""
    of = f" of model {want.model}" if want.model else ""
    have = describe(nodes)
    raise UsageError(f"{name} asks for {want.count} cards{of}{on}; the cluster has {have}", "choose others with --only")


def _kinds(nodes: Sequence[Node], model: str | None) -> list[str]:
    """List the GRES types that suit a wish, those with most cards first; a wish for any card names no type."""
    if model is None:
        return [""]
    counts: dict[str, int] = {}
    for node in nodes:
        for kind, count in node.cards.items():
            if kind and suits(kind, model):
                counts[kind] = counts.get(kind, 0) + count
    return sorted(counts, key=lambda kind: -counts[kind])


def suits(kind: str, model: str) -> bool:
    """Whether a GRES type is of a model; sites write `h20`, `nvidia_h20` or `H20-96G`."""
    return hosts.card_suits(hosts.Card("", kind.replace("_", " ")), model)


def _cards(node: Node, gres: str, model: str | None) -> int:
    return sum(node.cards.values()) if model is None else node.cards.get(gres, 0)


def describe(nodes: Sequence[Node]) -> str:
    """`2 nodes: 4 × H20, 4 × H20`."""
    seen = [" + ".join(f"{n} × {kind or 'card'}" for kind, n in node.cards.items()) or "no cards" for node in nodes]
    shown = ", ".join(seen[:8]) + (", …" if len(seen) > 8 else "")
    return f"{len(nodes)} nodes: {shown}"


def arguments(
    fit: Fit,
    *,
    name: str,
    output: Path,
    timeout: float,
    memory: int | None,
    env: Mapping[str, str],
    exclude: Sequence[str] = (),
) -> list[str]:
    """Return sbatch's arguments. What a site wants beside them stands in $MATRIX_SLURM_ARGS and $SBATCH_*."""
    found = [
        f"--job-name={name}",
        f"--nodes={fit.nodes}",
        "--ntasks-per-node=1",
        f"--time={math.ceil((timeout + _LEEWAY) / 60)}",
        "--no-requeue",  # a further attempt is made by the run, with a log and an entry of its own
        "--chdir=/",
        "--export=ALL",
        f"--output={str(output).replace('%', '%%')}",
        "--open-mode=append",
    ]
    if fit.cards:
        found.append(f"--gres=gpu:{fit.gres}:{fit.cards}" if fit.gres else f"--gres=gpu:{fit.cards}")
    if memory:
        found.append(f"--mem={math.ceil(memory / 2**20)}M")
    if exclude:
        found.append(f"--exclude={','.join(exclude)}")
    try:
        return found + shlex.split(env.get(ARGUMENTS, ""))
    except ValueError as e:
        raise UsageError(f"${ARGUMENTS}: {e}", "write it as on a command line") from None


def script(python: str, root: Path, plan: Path) -> str:
    """Return the batch script: this program's Python, from the same folder, with the job's plan."""
    words = [python, "-c", START, str(root), str(plan)]
    return "#!/bin/sh\nexec " + " ".join(shlex.quote(word) for word in words) + "\n"
