"""The losses of a job beside its baseline, and how many float32 steps lie between them."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from pathlib import Path

from matrix.baseline.losses import baseline_file, job_losses, read_expected
from matrix.baseline.parse import Loss, lines_of, read_log
from matrix.baseline.record import FormError
from matrix.errors import MatrixError
from matrix.records import JobRecord
from matrix.spec.job import Job
from matrix.spec.load import read

MOST = 5000  # points of a curve


@dataclass(frozen=True, slots=True)
class Curves:
    """Points (step, loss) of a job and of its baseline; `ulps` are the float32 steps between them at common steps."""

    found: list[tuple[float, float]]
    expected: list[tuple[float, float]]
    ulps: list[tuple[float, float]]
    source: str
    baseline: str | None = None
    note: str | None = None

    @property
    def first_difference(self) -> float | None:
        """Return the first step at which the bits differ."""
        return next((step for step, ulps in self.ulps if ulps), None)


def curves(folder: Path, record: JobRecord) -> Curves | None:
    """Return the curves of a job's last attempt; None where its log holds no losses."""
    if not record.attempts:
        return None
    log, root = folder / record.attempts[-1].log, folder.parents[2]
    job = _job(root, record.name)
    note = None
    try:
        if job is not None and job.loss is not None and log.is_file():
            found, source = job_losses(job.loss, log, root / job.cwd)
        elif log.is_file():
            found, source = read_log(lines_of(log)), log
        else:
            return None
    except FormError as e:
        return Curves([], [], [], str(log.name), note=str(e))
    expected: list[Loss] = []
    path = None
    if job is not None and job.loss is not None:
        cards = record.attempts[-1].cards
        path = baseline_file(job.loss, root, cards[0].model if cards else None)
        try:
            expected = read_expected(path)
        except (FormError, OSError) as e:
            note = f"the baseline cannot be read: {e}"
    ours, theirs = _points(found), _points(expected)
    if not ours and not theirs:
        return None
    other = dict(theirs)
    ulps = [(step, float(ulp_distance(value, other[step]))) for step, value in ours if step in other]
    shown = [p.relative_to(root).as_posix() if p and p.is_relative_to(root) else None for p in (Path(source), path)]
    return Curves(_thin(ours), _thin(theirs), _thin(ulps), shown[0] or Path(source).name, shown[1], note)


def ulp_distance(a: float, b: float) -> int:
    """Return how many float32 values lie from a to b; 0 means that the bits are equal (or both are NaN)."""
    if math.isnan(a) or math.isnan(b):
        return 0 if math.isnan(a) and math.isnan(b) else 1 << 31
    return abs(_ordered(a) - _ordered(b))


def _ordered(value: float) -> int:
    try:
        (bits,) = struct.unpack("<i", struct.pack("<f", value))
    except OverflowError:
        (bits,) = struct.unpack("<i", struct.pack("<f", math.copysign(math.inf, value)))
    return int(bits) if bits >= 0 else -(int(bits) & 0x7FFFFFFF)


def _points(losses: list[Loss]) -> list[tuple[float, float]]:
    """Return one point a step of the main loss: the mean over its micro-batches."""
    by_step: dict[int, list[float]] = {}
    for loss in losses:
        if loss.name == "loss" and math.isfinite(loss.value):
            by_step.setdefault(loss.step, []).append(loss.value)
    return [(float(step), math.fsum(v) / len(v)) for step, v in sorted(by_step.items())]


def _thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    stride = -(-len(points) // MOST) or 1
    return points[::stride]


def _job(root: Path, name: str) -> Job | None:
    try:
        return next((j for j in read(root).jobs if j.name == name), None)
    except MatrixError:
        return None
