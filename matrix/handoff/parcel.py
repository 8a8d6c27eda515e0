"""Hand-offs that travel: packed into one file with sizes and digests, unpacked at the same place on another host.

A tar, since artifact services drop hidden files, empty folders and permissions. The list of files in it is written
first, with a digest each, so that what arrives half or changed is refused rather than used.
"""

from __future__ import annotations

import glob
import hashlib
import io
import json
import os
import shutil
import tarfile
from pathlib import Path

from matrix.errors import ToolError
from matrix.handoff.problem import Problem

_LIST = "matrix-parcel.json"


def file_name(name: str) -> str:
    """Return the name of the file that a hand-off is packed into."""
    return f"{name}.tar"


def pack(path: Path, parcel: Path) -> None:
    """Pack a hand-off: a file, a folder, or all that a glob matches, by their paths relative to `path`'s folder.

    Raises:
        ToolError: it cannot be read or written.

    """
    base = _base(path)
    roots = [path] if path.exists() else [Path(p) for p in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207
    files = sorted({f for root in roots for f in ([root] if root.is_file() else root.rglob("*")) if f.is_file()})
    try:
        listed = {str(f.relative_to(base)): {"bytes": f.stat().st_size, "sha256": _digest(f)} for f in files}
        parcel.parent.mkdir(parents=True, exist_ok=True)
        half = parcel.with_name(f".{parcel.name}.half")
        with tarfile.open(half, "w", dereference=True) as tar:
            data = json.dumps({"files": listed}).encode()
            head = tarfile.TarInfo(_LIST)
            head.size = len(data)
            tar.addfile(head, io.BytesIO(data))
            for file in files:
                tar.add(file, str(file.relative_to(base)), recursive=False)
        half.replace(parcel)
    except OSError as e:
        raise ToolError(f"hand-off {path} cannot be packed: {e.strerror or e}") from e


def unpack(parcel: Path, path: Path) -> list[Problem]:
    """Put a packed hand-off where it belongs, in the place of what is there; return what is wrong with it.

    Nothing is replaced by a parcel that is not whole.
    """
    base = _base(path)
    fresh = base / f".{parcel.name}.{os.getpid()}.half"
    try:
        with tarfile.open(parcel) as tar:
            first = tar.next()
            listing = tar.extractfile(first) if first and first.name == _LIST else None
            if listing is None:
                return [Problem(parcel.name, "is no hand-off that this program packed")]
            listed = json.load(listing)["files"]
            fresh.mkdir(parents=True)
            for member in tar:
                if member.name in listed and member.isfile():
                    tar.extract(member, fresh, filter="data")
        problems = [p for name, said in listed.items() if (p := _compare(fresh / name, name, said))]
        if problems:
            return problems
        _replace(path, base, fresh, list(listed))
    except FileNotFoundError:
        return [Problem(parcel.name, "is not there")]
    except (OSError, tarfile.TarError, ValueError, KeyError, TypeError) as e:
        return [Problem(parcel.name, f"cannot be unpacked: {e}")]
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return []


def _replace(path: Path, base: Path, fresh: Path, names: list[str]) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    for name in names:
        target = base / name
        target.parent.mkdir(parents=True, exist_ok=True)
        (fresh / name).replace(target)


def _base(path: Path) -> Path:
    """Return the folder that names in a parcel are relative to: the last one without a wildcard above the path."""
    base = path.parent
    while glob.has_magic(str(base)):
        base = base.parent
    return base


def _compare(file: Path, name: str, said: dict[str, object]) -> Problem | None:
    if not file.is_file():
        return Problem(name, "is not in the parcel, though its list names it")
    if file.stat().st_size != said["bytes"]:
        return Problem(name, f"{file.stat().st_size} bytes where {said['bytes']} were packed")
    return None if _digest(file) == said["sha256"] else Problem(name, "its SHA-256 is not the one that was packed")


def _digest(file: Path) -> str:
    with file.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()
