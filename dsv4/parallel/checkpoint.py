"""One checkpoint from many ranks: each writes the tensors that it answers for, whole, into files of its own.

No tensor is cut, and names are those of the whole model, so a checkpoint of any layout loads into any other.
Ranks meet through the folder alone: a writer must not take part in collectives beside the training.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from dsv4 import checkpoint
from dsv4.checkpoint import Arrays
from dsv4.errors import Dsv4Error, UsageError

PATIENCE = 600.0  # seconds that rank 0 waits for the other ranks' files


class RankCheckpoints(checkpoint.Writer):
    """Writes this rank's part of checkpoints beside the training; rank 0 makes each whole and gives it its name."""

    def __init__(
        self, folder: Path, *, rank: int, world: int, job: str, keep: int | None = None, background: bool = True
    ) -> None:
        super().__init__(folder, keep=keep, background=background, locked=rank > 0)
        self._rank, self._world, self._job = rank, world, job
        self._given_up = threading.Event()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, SystemExit):
            self._given_up.set()  # do not wait for ranks that are gone; an unfinished checkpoint stays unnamed
        super().__exit__(kind, error, trace)

    def _write(self, step: int, groups: Mapping[str, Arrays], state: Mapping[str, Any]) -> None:
        final = self.folder / f"step-{step:08d}"
        partial = self.folder / f"{checkpoint.UNFINISHED}{final.name}-{self._job}"
        try:
            partial.mkdir(parents=True, exist_ok=True)
            contents = {
                f"{group}-{self._rank + 1:05d}-of-{self._world:05d}.safetensors": arrays
                for group, arrays in groups.items()
                if arrays
            }
            files = checkpoint.write_files(partial, contents)
            self._announce(partial, files)
            if self._rank == 0:
                every = self._collect(partial)
                if every is not None:
                    checkpoint.finish(partial, final, step, every, state)
                    if self._keep:
                        checkpoint.keep_last(self.folder, self._keep)
            elif not self._background:
                self._await_name(final)
        except Exception as e:  # noqa: BLE001 - carried to the caller's thread
            self._error = e
            self._take_back(partial)

    def _take_back(self, partial: Path) -> None:
        """Remove this rank's files of a checkpoint that will not be: the disk may be full. Others may still write."""
        for path in partial.glob(f"*-{self._rank + 1:05d}-of-{self._world:05d}.safetensors"):
            with suppress(OSError):
                path.unlink()

    def _announce(self, partial: Path, files: Mapping[str, Any]) -> None:
        note = partial / f"rank{self._rank}.json"
        new = note.with_suffix(".new")
        new.write_text(json.dumps(files))
        new.replace(note)

    def _collect(self, partial: Path) -> dict[str, Any] | None:
        """Files of all ranks, once they are all written; None if the job failed meanwhile."""
        every: dict[str, Any] = {}
        end = time.monotonic() + PATIENCE
        for rank in range(self._world):
            note = partial / f"rank{rank}.json"
            while not note.exists():
                if self._given_up.wait(0.02):
                    return None
                if time.monotonic() > end:
                    raise UsageError(f"rank {rank} wrote nothing within {PATIENCE:.0f} s")
            every |= json.loads(note.read_text())
            note.unlink()
        return every

    def _await_name(self, final: Path) -> None:
        end = time.monotonic() + PATIENCE
        while not (final / checkpoint.MANIFEST).exists() and not self._given_up.wait(0.02):
            if time.monotonic() > end:
                raise Dsv4Error(f"{final}: rank 0 did not finish it")


def reshard(source: Path, folder: Path, count: int) -> Path:
    """Write a checkpoint again with `count` files a group, tensors whole and spread evenly; 1 is the plain form."""
    loaded = checkpoint.read(source)
    contents: dict[str, Arrays] = {}
    for group, arrays in loaded.groups.items():
        for i, shard in enumerate(spread(arrays, count), 1):
            if shard:
                contents[f"{group}.safetensors" if count == 1 else f"{group}-{i:05d}-of-{count:05d}.safetensors"] = (
                    shard
                )
    with checkpoint.Writer(folder):  # holds the folder's lock: what a run is writing there is not removed
        final = folder / f"step-{loaded.step:08d}"
        if final.exists():
            raise UsageError(f"{final} is there already", "name another folder")
        checkpoint.clean(folder)
        return checkpoint.write_whole(folder, loaded.step, contents, loaded.state)


def spread(arrays: Mapping[str, Any], count: int) -> list[Arrays]:
    """Deal tensors to `count` shards, the largest first, each to the shard that has least."""
    shards: list[Arrays] = [{} for _ in range(count)]
    load = [0] * count
    for name in sorted(arrays, key=lambda n: (-arrays[n].nbytes, n)):
        i = load.index(min(load))
        shards[i][name] = arrays[name]
        load[i] += arrays[name].nbytes
    return shards
