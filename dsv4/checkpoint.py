"""Checkpoints: safetensors and a manifest of digests, written beside and renamed into place."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from dsv4.errors import Dsv4Error, UsageError

Arrays = dict[str, NDArray[Any]]

MANIFEST = "manifest.json"
SCHEMA = "checkpoint/1"
_NAME = re.compile(r"step-(\d{8})")
UNFINISHED, _REMOVED = ".unfinished-", ".removed-"


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint: tensors by group (`model`, `optimizer`) and the plain values saved with them."""

    path: Path
    step: int
    groups: dict[str, Arrays]
    state: dict[str, Any]


# -- writing ---------------------------------------------------------------------------------------------------------


def write(folder: Path, step: int, groups: Mapping[str, Arrays], state: Mapping[str, Any]) -> Path:
    """Write `folder/step-NNNNNNNN` so that it is either whole or not there.

    Everything goes to a folder of another name, is flushed to disk, the manifest last, and is renamed at the end. A
    process killed at any moment leaves at most a folder that begins with `.unfinished-`, which the next write removes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    clean(folder)
    return write_whole(folder, step, {f"{group}.safetensors": arrays for group, arrays in groups.items()}, state)


def write_whole(folder: Path, step: int, contents: Mapping[str, Arrays], state: Mapping[str, Any]) -> Path:
    """Write a checkpoint of files by name. One that cannot be written leaves nothing: its disk may be full."""
    final = folder / f"step-{step:08d}"
    partial = folder / f"{UNFINISHED}{final.name}"
    partial.mkdir()
    try:
        return finish(partial, final, step, write_files(partial, contents), state)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def write_files(folder: Path, contents: Mapping[str, Arrays]) -> dict[str, Any]:
    """Write tensors to files by name and flush them; what the manifest says of each."""
    files = {}
    for name, arrays in contents.items():
        path = folder / name
        try:
            save_file({key: np.array(a, order="C") for key, a in arrays.items()}, path)
        except SafetensorError as e:
            raise Dsv4Error(f"{path} cannot be written: {e}", "free space, then try again") from None
        files[name] = {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        _sync(path)
    return files


def finish(partial: Path, final: Path, step: int, files: Mapping[str, Any], state: Mapping[str, Any]) -> Path:
    """Write the manifest, last of all, and give the folder its name."""
    manifest: dict[str, Any] = {"schema": SCHEMA, "step": step, "files": dict(files), "state": dict(state)}
    manifest["sha256"] = _digest(manifest)
    path = partial / MANIFEST
    path.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    _sync(path)
    _sync(partial)
    _remove(final)  # a checkpoint of the same step, from before a resume
    partial.rename(final)
    _sync(final.parent)
    return final


def keep_last(folder: Path, count: int) -> None:
    """Remove all but the newest `count` checkpoints."""
    for path in list_checkpoints(folder)[: -count or None]:
        _remove(path)


def clean(folder: Path) -> None:
    """Remove what killed writers and removers left."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name.startswith((UNFINISHED, _REMOVED)):
            shutil.rmtree(path)


def _remove(path: Path) -> None:
    """Remove a folder so that a half-removed one does not bear a checkpoint's name."""
    if path.exists():
        doomed = path.with_name(_REMOVED + path.name)
        shutil.rmtree(doomed, ignore_errors=True)
        path.rename(doomed)
        shutil.rmtree(doomed)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sha256(path: Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def _digest(manifest: Mapping[str, Any]) -> str:
    body = {key: value for key, value in manifest.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


class Writer:
    """Writes checkpoints beside the training, one at a time; an error comes back at the next save or at the end.

    A context: it holds the folder's lock, so that no other run writes there, until it is left (or killed).
    """

    def __init__(self, folder: Path, *, keep: int | None = None, background: bool = True, locked: bool = False) -> None:
        """`locked`: another rank of this job holds the folder's lock."""
        self.folder, self._keep, self._background = folder, keep, background
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(folder, os.O_RDONLY)
        try:
            if not locked:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise UsageError(f"{folder}: another run is saving here", "end it first, or name another --save") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.wait()
        finally:
            os.close(self._lock)

    def save(self, step: int, groups: Mapping[str, Arrays], state: Mapping[str, Any]) -> None:
        """Save arrays that nobody changes any more: copies of the live tensors."""
        self.wait()
        self._thread = threading.Thread(target=self._write, args=(step, groups, state), name=f"save-step-{step}")
        self._thread.start()
        if not self._background:
            self.wait()

    def _write(self, step: int, groups: Mapping[str, Arrays], state: Mapping[str, Any]) -> None:
        try:
            write(self.folder, step, groups, state)
            if self._keep:
                keep_last(self.folder, self._keep)
        except Exception as e:  # noqa: BLE001 - carried to the caller's thread
            self._error = e

    def wait(self) -> None:
        """Wait for the save under way. Raises Dsv4Error if it failed."""
        if self._thread:
            self._thread.join()
            self._thread = None
        if self._error:
            error, self._error = self._error, None
            raise Dsv4Error(f"{self.folder}: the checkpoint was not written: {error}", "free space, then resume")


# -- reading ---------------------------------------------------------------------------------------------------------


def list_checkpoints(folder: Path) -> list[Path]:
    """Finished checkpoints of a folder, oldest first."""
    found = [p for p in folder.iterdir() if _NAME.fullmatch(p.name) and p.is_dir()] if folder.is_dir() else []
    return sorted(found)


def latest(path: Path) -> Path | None:
    """Return the checkpoint that `path` is, or the newest below it."""
    if (path / MANIFEST).exists() or _NAME.fullmatch(path.name):
        return path
    found = list_checkpoints(path)
    return found[-1] if found else None


def verify(path: Path) -> dict[str, Any]:
    """Check every file of a checkpoint against its manifest and return the manifest.

    Raises UsageError naming the first file that is missing, cut, altered or not listed.
    """
    manifest = _read_manifest(path)
    for name, facts in manifest["files"].items():
        file = path / name
        if not file.is_file():
            raise _refused(file, "is missing")
        if file.stat().st_size != facts["bytes"]:
            raise _refused(file, f"has {file.stat().st_size} bytes, the manifest says {facts['bytes']}: it was cut")
        if _sha256(file) != facts["sha256"]:
            raise _refused(file, "was altered: its sha256 is not the manifest's")
    for extra in sorted(p.name for p in path.iterdir() if p.name not in (*manifest["files"], MANIFEST)):
        raise _refused(path / extra, "is not part of this checkpoint")
    return manifest


def _read_manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    try:
        manifest = json.loads(file.read_text())
    except OSError as e:
        raise _refused(file, f"cannot be read: {e.strerror}") from None
    except ValueError:
        raise _refused(file, "is cut or altered: not JSON") from None
    if not isinstance(manifest, dict) or manifest.get("schema") != SCHEMA:
        raise _refused(file, f"is not a manifest of schema {SCHEMA}")
    if manifest.get("sha256") != _digest(manifest):
        raise _refused(file, "was altered: its own digest does not fit")
    if not _complete(manifest):
        raise _refused(file, "lacks step, files or state in their form: no checkpoint of this program")
    return manifest


def _complete(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest has its keys; file names stay in their folder."""
    step, files, state = (manifest.get(key) for key in ("step", "files", "state"))
    return (
        isinstance(step, int)
        and isinstance(state, dict)
        and isinstance(files, dict)
        and all(Path(name).name == name for name in files)
        and all(isinstance(facts, dict) and facts.keys() >= {"bytes", "sha256"} for facts in files.values())
    )


def read(path: Path) -> Checkpoint:
    """Verify and load a checkpoint."""
    manifest = verify(path)
    groups: dict[str, Arrays] = {}
    for name in manifest["files"]:
        try:
            groups.setdefault(group_of(name), {}).update(load_file(path / name))
        except (SafetensorError, OSError) as e:
            raise _refused(path / name, f"is not readable: {e}") from None
    return Checkpoint(path, manifest["step"], groups, manifest["state"])


def group_of(file: str) -> str:
    """Group of a file: `model` for model.safetensors and for model-00002-of-00004.safetensors."""
    return re.sub(r"(?:-\d{5}-of-\d{5})?\.safetensors$", "", file)


def _refused(file: Path, why: str) -> UsageError:
    return UsageError(f"{file} {why}", "resume from another checkpoint, such as the one before it")
