"""Compare two loss records, micro-batch by micro-batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsv4.align.bits import decimal20, f32_hex, loss_md5, to_float32, ulp_distance
from dsv4.align.record import LOSSES, Key, Record, Row, final_float32


@dataclass(frozen=True, slots=True)
class Difference:
    """First micro-batch where a loss departs. None: that side has no such row, or no such loss."""

    key: Key
    ours: float | None
    theirs: float | None

    def __str__(self) -> str:
        left, right = ("missing" if v is None else decimal20(to_float32(v)) for v in (self.ours, self.theirs))
        return f"step {self.key[0]} micro {self.key[1]}: {left} != {right}"


@dataclass(frozen=True, slots=True)
class LossComparison:
    """One loss over all micro-batches of the reference."""

    name: str
    matches: int
    total: int
    first: Difference | None
    max_ulps: float  # in float32, over the rows that both sides have
    max_relative: float  # in float64


@dataclass(frozen=True, slots=True)
class Comparison:
    """A record against a reference."""

    record: Record
    reference: Record
    rtol: float | None
    losses: tuple[LossComparison, ...]
    extra: tuple[Key, ...]  # rows that only the record has

    @property
    def equal(self) -> bool:
        """Every micro-batch of each side has its match on the other."""
        return not self.extra and all(c.matches == c.total for c in self.losses)


def compare(record: Record, reference: Record, rtol: float | None = None) -> Comparison:
    """Match rows by step and micro-batch; without `rtol` a match is equality of the float32 bits."""
    ours, theirs = record.by_key(), reference.by_key()
    return Comparison(
        record=record,
        reference=reference,
        rtol=rtol,
        losses=tuple(_compare_loss(name, ours, theirs, rtol) for name in LOSSES),
        extra=tuple(sorted(ours.keys() - theirs.keys())),
    )


def _compare_loss(name: str, ours: dict[Key, Row], theirs: dict[Key, Row], rtol: float | None) -> LossComparison:
    matches, total, first = 0, 0, None
    max_ulps = max_relative = 0.0
    for key, row in sorted(theirs.items()):
        b = row.loss(name)
        a = ours[key].loss(name) if key in ours else None
        if a is None and b is None and key in ours:
            continue  # neither run has this loss
        total += 1
        if a is not None and b is not None:
            max_ulps = max(max_ulps, float32_ulps(a, b))
            max_relative = max(max_relative, abs(a - b) / abs(b) if b else abs(a - b))
        if _match(a, b, rtol):
            matches += 1
        elif first is None:
            first = Difference(key, a, b)
    return LossComparison(name, matches, total, first, max_ulps, max_relative)


def _match(a: float | None, b: float | None, rtol: float | None) -> bool:
    if a is None or b is None or not (math.isfinite(a) and math.isfinite(b)):
        return False  # a loss that is not finite proves nothing
    if rtol is None:
        return f32_hex(a) == f32_hex(b)
    return abs(a - b) <= rtol * abs(b)


def float32_ulps(a: float, b: float) -> float:
    """Distance of two losses in float32 ulps."""
    return float(ulp_distance(np.array([a], np.float32), np.array([b], np.float32))[0])


def as_text(c: Comparison) -> str:
    """Write the comparison as the contract prints it, then the identity of both sides."""
    lines = [f"{loss.name}_matches={loss.matches}/{loss.total}" for loss in c.losses]
    lines += [f"first_{loss.name}_diff={loss.first}" for loss in c.losses]
    last = max(c.record.rows, key=lambda row: row.key)
    for name in LOSSES:
        value = final_float32(last, name)
        shown, md5 = (None, None) if value is None else (decimal20(value), loss_md5(value))
        lines.append(f"step{last.step} {name} final_loss={shown} md5={md5}")
    for side, r in (("record", c.record), ("reference", c.reference)):
        lines.append(f"{side}={r.path} sha256={r.sha256} rows={len(r.rows)} origin={r.origin or 'not stated'}")
    if c.rtol is not None:
        lines.append(f"rtol={c.rtol:g}: a match is a relative difference of at most that, not equality of bits")
    if c.extra:
        lines.append(f"extra={len(c.extra)}: the reference has no step {c.extra[0][0]} micro {c.extra[0][1]}")
    return "\n".join(lines)


def facts(c: Comparison) -> Iterator[tuple[str, str | bool]]:
    """Yield what a report shows of the comparison, as keys and values."""
    yield "dsv4_aligned", c.equal
    for loss in c.losses:
        yield f"{loss.name}_matches", f"{loss.matches}/{loss.total}"
    for loss in c.losses:
        yield f"first_{loss.name}_diff", str(loss.first)
    last = max(c.record.rows, key=lambda row: row.key)
    for name in LOSSES:
        value = final_float32(last, name)
        if value is not None:
            yield f"step{last.step}_{name}_final_loss", f"{decimal20(value)} md5={loss_md5(value)}"
    yield "reference_sha256", c.reference.sha256
    yield "reference_origin", c.reference.origin or "not stated"
    yield "record_sha256", c.record.sha256
    if c.rtol is not None:
        yield "rtol", f"{c.rtol:g}"


def as_json(c: Comparison) -> dict[str, Any]:
    """Write the comparison as the document of `--json`."""
    last = max(c.record.rows, key=lambda row: row.key)
    document: dict[str, Any] = {"schema": "align/1", "equal": c.equal, "rtol": c.rtol}
    for loss in c.losses:
        value = final_float32(last, loss.name)
        document[loss.name] = {
            "matches": loss.matches,
            "total": loss.total,
            "first_diff": None if loss.first is None else _difference(loss.first),
            "max_ulps_f32": loss.max_ulps,
            "max_relative": loss.max_relative,
            "final_step": last.step,
            "final_loss": None if value is None else decimal20(value),
            "final_md5": None if value is None else loss_md5(value),
        }
    for side, r in (("record", c.record), ("reference", c.reference)):
        document[side] = {"path": r.path, "sha256": r.sha256, "rows": len(r.rows), "origin": r.origin}
    document["extra_rows"] = len(c.extra)
    return document


def _difference(d: Difference) -> dict[str, Any]:
    ulps = None if d.ours is None or d.theirs is None else float32_ulps(d.ours, d.theirs)
    shown = [None if v is None else decimal20(to_float32(v)) for v in (d.ours, d.theirs)]
    return {"step": d.key[0], "micro": d.key[1], "record": shown[0], "reference": shown[1], "ulps_f32": ulps}
