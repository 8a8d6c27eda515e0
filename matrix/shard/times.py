"""Times of single tests, kept from run to run so that shards come out equal."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

# The new time counts so much; machines vary, and a test that has become slow shows within a few runs.
_WEIGHT = 0.5


def pin(store: Path, folder: Path) -> None:
    """Before a run: copy the known times into the run's folder, so that all shards and re-runs of them see the same."""
    folder.mkdir(parents=True, exist_ok=True)
    if store.is_file() and not (folder / "times.json").exists():
        shutil.copyfile(store, folder / "times.json")


def keep(folder: Path, store: Path) -> int:
    """After a run: merge what the shards measured into the known times; returns how many tests were measured."""
    times = _read(store)
    measured = {test: seconds for shard in _shards(folder) for test, seconds in shard.get("seconds", {}).items()}
    for test, seconds in measured.items():
        old = times.get(test)
        times[test] = round(seconds if old is None else old + _WEIGHT * (seconds - old), 4)
    if measured:
        store.parent.mkdir(parents=True, exist_ok=True)
        tmp = store.with_name(f".{store.name}.{os.getpid()}.tmp")
        tmp.write_text(json.dumps(times, indent=0, sort_keys=True), encoding="utf-8")
        tmp.replace(store)
    return len(measured)


def disagreement(folder: Path) -> str | None:
    """Say so when the shards of a run collected different tests, for then some may have been run by none."""
    shards = _shards(folder)
    if len({shard.get("digest") for shard in shards}) <= 1:
        return None
    counts = ", ".join(f"shard {s.get('shard')} collected {s.get('collected')}" for s in shards)
    return f"the shards collected different tests, so some may have been run by none: {counts}"


def _shards(folder: Path) -> list[dict[str, Any]]:
    return [shard for path in sorted(folder.glob("shard-*of*.json")) if (shard := _read(path))]


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
