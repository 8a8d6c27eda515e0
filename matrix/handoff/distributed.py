"""Distributed checkpoints: torch's (`.metadata` beside `__0_0.distcp`, as FSDP writes) and Paddle's (`0.metadata`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from matrix.handoff.archives import atoms, check_pickle, is_pickle, is_zip
from matrix.handoff.problem import Problem, head, size
from matrix.handoff.safetensors import UnsoundError

_FIELDS = ("relative_path", "offset", "length")


def check_shard(file: Path, length: int) -> None:
    """Check how a .distcp file begins; where its parts lie is only known to the metadata.

    Raises:
        UnsoundError: no writer of such files begins like this.

    """
    start = head(file, 16)
    if not any(start):
        raise UnsoundError("begins with zeros: space that was set aside and never written")
    if is_pickle(start):
        check_pickle(file, length)
    elif not is_zip(start) and start[8:9] != b"{":
        raise UnsoundError("neither archives, a pickle nor safetensors")


def check_folder(folder: Path, names: frozenset[str], shown: Callable[[Path], str]) -> Iterator[Problem]:
    """Check that the metadata is whole and that every file it names is there and long enough."""
    shards = sorted(n for n in names if n.endswith(".distcp"))
    metadata = sorted(n for n in names if n.endswith(".metadata"))
    if shards and not metadata:
        yield Problem(
            shown(folder / ".metadata"), f"is not there, and {len(shards)} .distcp files cannot be loaded without it"
        )
    for name in metadata:
        file = folder / name
        length = size(file)
        if isinstance(length, str) or length == 0:
            continue  # named where the files are checked one by one
        try:
            check_pickle(file, length)
            needed = _needed(file)
        except UnsoundError as e:
            yield Problem(shown(file), str(e))
            continue
        for target, least in sorted(needed.items()):
            if Path(target).is_absolute() or ".." in Path(target).parts:
                yield Problem(shown(file), f"names {target[:200]!r}, which lies outside the folder")
                continue
            there = size(folder / target)
            if isinstance(there, str):
                yield Problem(shown(folder / target), f"{there}, though {name} names it")
            elif there < least:
                yield Problem(shown(folder / target), f"cut off: {there} bytes, {name} names parts up to {least}")


def _needed(file: Path) -> dict[str, int]:
    """Files that a metadata pickle names, with the least size that each must have (0 where it does not say)."""
    needed: dict[str, int] = {}
    values = [v for v in atoms(file) if v is not None]
    for i, value in enumerate(values):
        if not isinstance(value, str):
            continue
        if value.endswith(".distcp"):
            needed.setdefault(value, 0)
        elif value == _FIELDS[0]:
            path, offset_key, offset, length_key, length = (*islice(values, i + 1, i + 6), *[None] * 5)[:5]
            if (offset_key, length_key) == _FIELDS[1:] and isinstance(offset, int) and isinstance(length, int):
                needed[str(path)] = max(needed.get(str(path), 0), offset + length)
    return needed
