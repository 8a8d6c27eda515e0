"""Baselines whose name is probably mistyped: no card has such a file, and a file of nearly that name serves no job."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from rapidfuzz.distance import OSA

from matrix.spec.job import Job

_CARD = "{card}"


def mistyped(jobs: Iterable[Job], root: Path) -> list[str]:
    """Say of each job that a mistyped name would leave without a comparison, which is no failure: what was meant.

    A baseline that is not there yet is normal, so one without a neighbour is not spoken of.
    """
    patterns = {job.name: job.loss.file for job in jobs if job.loss is not None}
    said = []
    for name, pattern in patterns.items():
        folder, form = (root / pattern).parent, (root / pattern).name
        if _CARD in str(folder) or not folder.is_dir():
            continue
        files = sorted(f.name for f in folder.iterdir() if f.is_file())
        if any(_fits(form, file) for file in files):
            continue
        others = [(root / p).name for p in patterns.values() if p != pattern and (root / p).parent == folder]
        idle = [file for file in files if not any(_fits(other, file) for other in others)]
        near = [file for file in idle if _near(form, file)]
        if near:
            there = Path(pattern).parent / near[0]
            said.append(f"{name}: its losses are compared with nothing: no card has {pattern}; did you mean {there}?")
    return said


def _fits(form: str, file: str) -> bool:
    return re.fullmatch(re.escape(form).replace(re.escape(_CARD), "[A-Za-z0-9._-]+"), file) is not None


def _near(form: str, file: str) -> bool:
    before, card, after = form.partition(_CARD)
    if not card:
        return OSA.distance(form, file) <= max(1, len(form) // 4)
    lengths = range(max(1, len(before) - 1), len(before) + 2)
    apart = min(OSA.distance(before, file[:n]) for n in lengths)
    return apart <= max(1, len(before) // 4) and file.endswith(after)
