"""Find the first tensor in which two runs differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dsv4.align.bits import Array, ulp_distance
from dsv4.align.events import Event, Side


@dataclass(frozen=True)
class Finding:
    """The first differing tensor, and where in it. `index` is None when a side lacks the tensor or its shape."""

    step: int
    stage: str
    name: str
    index: tuple[int, ...] | None
    a: float | None
    b: float | None
    ulps: float | None  # of the element at `index`; None for integers
    dtype: str
    differing: int
    size: int
    max_ulps: float | None
    max_relative: float
    equal_before: int  # tensors of this step that are equal
    note: str = ""

    def __str__(self) -> str:
        if self.index is None:
            return f"step {self.step} {self.stage} {self.name}: {self.note}"
        distance = "" if self.ulps is None else f" ({self.ulps:g} ulps of {self.dtype})"
        return f"step {self.step} {self.stage} {self.name}{list(self.index)}: {self.a!r} != {self.b!r}{distance}"


@dataclass(frozen=True)
class Bisection:
    """What comparing two runs step by step gave."""

    a: str
    b: str
    steps: int  # compared, the differing one included
    finding: Finding | None
    alone: tuple[str, ...] = ()  # tensors that only one side has, of the last step compared


def bisect(a: Side, b: Side, *, first: int, last: int, rtol: float | None = None) -> Bisection:
    """Walk both runs step by step, and within a step tensor by tensor, to the first difference.

    The order within a step is that of its making: weights, then for each micro-batch activations, losses and
    gradients (last layer first), then clipped gradients, optimizer states and updated weights. Steps that one side
    lacks end the walk. Without `rtol` every bit counts. A tensor that only one side shows (two implementations need
    not show the same ones) is no difference, but told.
    """
    compared = 0
    alone: tuple[str, ...] = ()
    for step in range(first, last + 1):
        ours, theirs = a.events(step), b.events(step)
        if ours is None or theirs is None:
            break
        compared += 1
        alone = _alone(ours, theirs)
        finding = compare_events(step, ours, theirs, rtol)
        if finding:
            return Bisection(a.label, b.label, compared, finding, alone)
    return Bisection(a.label, b.label, compared, None, alone)


def _alone(ours: list[Event], theirs: list[Event]) -> tuple[str, ...]:
    left, right = ({(e.stage, e.name) for e in events} for events in (ours, theirs))
    return tuple(
        f"{side}: {e.stage} {e.name}"
        for side, events, other in (("a", ours, right), ("b", theirs, left))
        for e in events
        if (e.stage, e.name) not in other
    )


def compare_events(step: int, ours: list[Event], theirs: list[Event], rtol: float | None) -> Finding | None:
    """Return the first difference between the tensors of one step that both sides have, in the order of `ours`."""
    others = {(e.stage, e.name): e for e in theirs}
    floors = _floors(theirs) if rtol is not None else {}
    pairs = [(x, others[x.stage, x.name]) for x in ours if (x.stage, x.name) in others]
    for before, (x, y) in enumerate(pairs):
        if x.value.shape != y.value.shape or x.value.dtype != y.value.dtype:
            text = f"{x.value.dtype} {list(x.value.shape)} against {y.value.dtype} {list(y.value.shape)}"
            return _mismatch(step, x, before, text)
        if (where := _differing(x.value, y.value, rtol, floors.get(x.stage, 0.0))).any():
            return _finding(step, x, y, where, before)
    return None


def _floors(events: list[Event]) -> dict[str, float]:
    """Find what counts as zero among gradients and what is made of them: 1e-12 of the largest.

    Some gradients are zero but for rounding, so a bound relative to themselves means nothing.
    """
    floors: dict[str, float] = {}
    for e in events:
        if e.value.size and ("gradient" in e.stage or e.stage == "optimizer"):
            floors[e.stage] = max(floors.get(e.stage, 0.0), 1e-12 * float(np.nanmax(np.abs(e.value))))
    return floors


def _differing(a: Array, b: Array, rtol: float | None, floor: float = 0.0) -> Array:
    same = a == b
    if a.dtype.kind == "f":
        same |= np.isnan(a) & np.isnan(b)  # NaN in the same place is no difference
    if rtol is None or a.dtype.kind != "f":
        return np.asarray(~same)
    # Relative to the largest value of the tensor, as the project's other bounds are.
    with np.errstate(invalid="ignore"):  # infinities that are equal are settled above
        near = np.abs(a - b) <= rtol * np.nanmax(np.abs(b), initial=0.0) + floor
    return np.asarray(~same & ~near)


def _finding(step: int, x: Event, y: Event, where: Array, before: int) -> Finding:
    a, b = x.value, y.value
    index = tuple(int(i) for i in np.argwhere(where)[0]) if a.ndim else ()
    floats = a.dtype.kind == "f"
    ulps = ulp_distance(np.atleast_1d(a), np.atleast_1d(b)).reshape(a.shape) if floats else None
    largest = float(np.max(np.abs(b.astype(np.float64)), initial=0.0))
    difference = float(np.max(np.abs(a.astype(np.float64) - b.astype(np.float64)), initial=0.0))
    return Finding(
        step=step,
        stage=x.stage,
        name=x.name,
        index=index,
        a=a[index].item(),
        b=b[index].item(),
        ulps=None if ulps is None else float(ulps[index]),
        dtype=str(a.dtype),
        differing=int(where.sum()),
        size=int(a.size),
        max_ulps=None if ulps is None else float(ulps.max()),
        max_relative=difference / largest if largest else difference,
        equal_before=before,
    )


def _mismatch(step: int, e: Event, before: int, note: str) -> Finding:
    return Finding(step, e.stage, e.name, None, None, None, None, str(e.value.dtype), 0, int(e.value.size), None, 0.0,
                   before, note)  # fmt: skip


def as_text(result: Bisection) -> str:
    """Write the finding and what surrounds it."""
    f = result.finding
    lines = [f"a={result.a}", f"b={result.b}", f"steps_compared={result.steps}"]
    if result.alone:
        lines.append(f"only on one side: {len(result.alone)} tensors, the first is {result.alone[0]}")
    if f is None:
        return "\n".join([*lines, "first_difference=None"])
    lines.append(f"first_difference={f}")
    if f.index is not None:
        ulps = "" if f.max_ulps is None else f", at most {f.max_ulps:g} ulps"
        lines.append(
            f"in this tensor: {f.differing} of {f.size} elements differ{ulps}, largest relative {f.max_relative:.3g}"
        )
    lines.append(f"before it in step {f.step}: {f.equal_before} tensors equal; steps before it: equal in every tensor")
    return "\n".join(lines)


def as_json(result: Bisection) -> dict[str, Any]:
    """Write the document of `--json`."""
    f = result.finding
    found = None
    if f is not None:
        found = {name: getattr(f, name) for name in Finding.__dataclass_fields__}
        found["index"] = None if f.index is None else list(f.index)
    return {
        "schema": "bisect/1",
        "a": result.a,
        "b": result.b,
        "steps_compared": result.steps,
        "first_difference": found,
    }
