"""Checkpoints in several files: the set is complete, and the index agrees with the headers of its shards."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from matrix.handoff.documents import read_json
from matrix.handoff.problem import Problem, size
from matrix.handoff.safetensors import UnsoundError, tensors

_MAX_SHARDS = 100_000
_SHARD = re.compile(r"^(?P<stem>.+)-(?P<n>\d{3,6})-of-(?P<of>\d{3,6})(?P<ext>\.\w+)$")


def check_sets(folder: Path, names: frozenset[str], shown: Callable[[Path], str]) -> Iterator[Problem]:
    """Check that a set `model-00001-of-00003.safetensors` is complete and has its index."""
    sets: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for name in names:
        if m := _SHARD.match(name):
            sets[m["stem"], m["of"], m["ext"]].add(m["n"])
    for (stem, of, ext), there in sorted(sets.items()):
        if int(of) > _MAX_SHARDS:
            continue
        for n in range(1, int(of) + 1):
            number = str(n).zfill(len(of))
            if number not in there:
                yield Problem(shown(folder / f"{stem}-{number}-of-{of}{ext}"), f"is not there: a shard of {int(of)}")
        index = f"{stem}{ext}.index.json"
        if (
            int(of) > 1
            and ext in (".safetensors", ".bin")
            and stem in ("model", "pytorch_model")
            and index not in names
        ):
            yield Problem(shown(folder / index), f"is not there, and {int(of)} shards cannot be loaded without it")


def check_index(file: Path, shown: Callable[[Path], str]) -> Iterator[Problem]:
    """Check an index against the headers of the shards that it names."""
    here = shown(file)
    try:
        parsed = read_json(file)
    except UnsoundError:
        return  # named where the files are checked one by one
    weights = parsed.get("weight_map") if isinstance(parsed, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(v, str) for v in weights.values()):
        yield Problem(here, "has no weight_map of tensor names to files")
        return
    if not weights:
        yield Problem(here, "has an empty weight_map")
    shards: dict[str, set[str]] = defaultdict(set)
    for tensor, shard in weights.items():
        shards[shard].add(tensor)
    for shard, wanted in sorted(shards.items()):
        target = file.parent / shard
        if not shard or Path(shard).is_absolute() or ".." in Path(shard).parts:
            yield Problem(here, f"names {shard[:200]!r}, which lies outside the folder")
            continue
        length = size(target)
        if isinstance(length, str):
            yield Problem(shown(target), f"{length}, though {file.name} names it")
        elif shard.endswith(".safetensors"):
            yield from _compare(here, shard, wanted, target, length)


def _compare(shown: str, shard: str, wanted: set[str], target: Path, length: int) -> Iterator[Problem]:
    try:
        there = set(tensors(target, length))
    except UnsoundError:
        return  # named where the files are checked one by one
    if missing := sorted(wanted - there):
        yield Problem(shown, f"{shard} has no tensor {missing[0][:200]!r}" + _more(missing))
    elif extra := sorted(there - wanted):
        yield Problem(shown, f"does not name tensor {extra[0][:200]!r} of {shard}" + _more(extra))


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
