"""From a validated job specification to the values that the engines take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matrix.spec.document import written
from matrix.spec.expand import concrete_name
from matrix.spec.job import (
    AllowFailure,
    Cards,
    Companion,
    Container,
    Expects,
    HandOff,
    Inputs,
    Job,
    Limit,
    LossBaseline,
)
from matrix.spec.model import BaselineSpec, ContainerSpec, JobSpec, PytestSpec

# Stands by itself, so that the Python of the job needs pytest only, not this package.
SHARD_SCRIPT = Path(__file__).parent.parent / "shard" / "matrix_pytest_shard.py"


def build(base: str, suite: str, spec: JobSpec, combo: Mapping[str, Any], line: int) -> list[Job]:
    """Make the concrete jobs of one combination of parameters: one, or as many as there are shards."""
    shards = [(i, spec.shards) for i in range(1, spec.shards + 1)] if spec.shards > 1 else [None]
    return [_one(base, suite, spec, combo=combo, shard=shard, line=line) for shard in shards]


def _one(
    base: str, suite: str, spec: JobSpec, *, combo: Mapping[str, Any], shard: tuple[int, int] | None, line: int
) -> Job:
    name = concrete_name(base, combo, shard)
    expects = Expects(spec.expects.tests or (1 if spec.pytest else None), spec.expects.steps)
    loss, time, memory = _baselines(spec.baseline)
    return Job(
        name=name,
        suite=suite,
        base=base,
        description=spec.description,
        command=_pytest(spec.pytest, shard) if spec.pytest else tuple(spec.command or ()),
        pytest=spec.pytest is not None,
        cards=Cards(spec.cards.count, spec.cards.model, spec.cards.exclusive),
        nodes=spec.nodes,
        memory=spec.memory,
        timeout=spec.timeout,
        expect=spec.expect / spec.shards if spec.expect else None,
        env=dict(spec.env),
        cwd=spec.cwd,
        container=_container(spec.container, shard),
        inputs=Inputs(tuple(spec.inputs.paths), tuple(spec.inputs.hub), spec.inputs.disk),
        parameters={key: written(value) for key, value in combo.items()},
        overrides=spec.overrides,
        shard=shard,
        produces=tuple(HandOff(h.name or name, h.path, h.kind) for h in spec.produces),
        needs=tuple(dict.fromkeys(spec.needs)),
        loss=loss,
        time=time,
        peak_memory=memory,
        expects=expects,
        retries=spec.retries,
        allow_failure=AllowFailure(spec.allow_failure.reason, spec.allow_failure.until) if spec.allow_failure else None,
        paths=tuple(spec.paths),
        companions=tuple(Companion(*text.rsplit("@", 1)) for text in spec.companions),
        tags=tuple(dict.fromkeys(spec.tags)),
        line=line,
    )


def _container(spec: ContainerSpec | None, shard: tuple[int, int] | None) -> Container | None:
    if spec is None:
        return None
    script = (f"{SHARD_SCRIPT.parent}:{SHARD_SCRIPT.parent}:ro",) if shard else ()
    return Container(spec.image, spec.shm, (*spec.mounts, *script))


def _pytest(spec: PytestSpec, shard: tuple[int, int] | None) -> tuple[str, ...]:
    start = ("python", "-m", "pytest") if shard is None else ("python", str(SHARD_SCRIPT), f"{shard[0]}/{shard[1]}")
    workers = ("-n", str(spec.workers)) if spec.workers else ()
    return (*start, *spec.targets, *workers, *spec.args)


def _baselines(spec: BaselineSpec) -> tuple[LossBaseline | None, Limit | None, Limit | None]:
    loss = spec.loss and LossBaseline(
        spec.loss.file, spec.loss.rtol, spec.loss.atol, tuple(spec.loss.steps), spec.loss.record
    )
    time = spec.time and Limit(spec.time.value, spec.time.tolerance)
    memory = spec.memory and Limit(spec.memory.value, spec.memory.tolerance)
    return loss or None, time or None, memory or None
