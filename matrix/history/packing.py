"""A run's folder as one packed file, with credentials masked, and back again."""

from __future__ import annotations

import io
import os
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import zstandard

from matrix.errors import UsageError
from matrix.masking import MASK, mask

_TOP = ("run.json", "junit.xml", "report.html", "coverage.json")  # beside the folder `logs`
_TEXT = frozenset({".log", ".json", ".jsonl", ".xml", ".html", ".txt", ".yaml", ".yml", ".csv", ".md", ""})
_CHUNK = 1 << 20
_LONGEST_KEY = 200  # lines of a private key block
_NAMES = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE", re.IGNORECASE)


def pack(folder: Path, target: Path, env: Mapping[str, str]) -> None:
    """Pack the record, the reports, and all that jobs left beside their logs; whole or not at all.

    Credentials are masked by their shape, and the values of variables that are named as secrets by their value. Files
    that are no text (data of coverage, stacks of a core) are packed only where they hold no such value.
    """
    secrets = sorted({v for k, v in env.items() if _NAMES.search(k) and len(v) >= 8}, key=len, reverse=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    tmp = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with (
            tmp.open("wb") as raw,
            zstandard.ZstdCompressor().stream_writer(raw, closefd=False) as packed,
            tarfile.open(fileobj=packed, mode="w|") as tar,
        ):
            for path in _files(folder):
                _add(tar, path, str(path.relative_to(folder)), secrets)
        tmp.replace(target)
    finally:
        tmp.unlink(missing_ok=True)


def unpack(packed: Path, folder: Path) -> None:
    """Unpack into a folder, with tarfile's own filter against paths that lead out of it.

    Raises:
        UsageError: the file is no packed run.

    """
    try:
        with (
            packed.open("rb") as raw,
            zstandard.ZstdDecompressor().stream_reader(raw) as plain,
            tarfile.open(fileobj=plain, mode="r|") as tar,
        ):
            tar.extractall(folder, filter="data")
    except (zstandard.ZstdError, tarfile.TarError) as e:
        raise UsageError(f"{packed.name}: no packed run: {e}") from None


def _files(folder: Path) -> Iterator[Path]:
    yield from (folder / name for name in _TOP if (folder / name).is_file())
    for parent, _, names in os.walk(folder / "logs"):
        yield from (p for name in sorted(names) if (p := Path(parent, name)).is_file() and not p.is_symlink())


def _add(tar: tarfile.TarFile, path: Path, name: str, secrets: list[str]) -> None:
    is_text = path.suffix in _TEXT and not path.name.startswith(".")
    # A file that grows while it is read must not break the archive: its masked text is measured first, on the disk.
    with path.open("rb") as source, _spooled() as kept:
        if is_text:
            for chunk in _chunks(source):
                kept.write(_masked(chunk.decode("utf-8", "surrogateescape"), secrets))
        else:
            raw = source.read()
            if any(s.encode() in raw for s in secrets):
                return
            kept.write(raw)
        info = tarfile.TarInfo(name)
        info.size, info.mtime = kept.tell(), int(path.stat().st_mtime)
        kept.seek(0)
        tar.addfile(info, kept)


def _spooled() -> BinaryIO:
    return tempfile.SpooledTemporaryFile(max_size=16 << 20)  # type: ignore[return-value]


def _masked(text: str, secrets: list[str]) -> bytes:
    for secret in secrets:
        text = text.replace(secret, MASK)
    return mask(text).encode("utf-8", "surrogateescape")


def _chunks(source: io.BufferedReader) -> Iterator[bytes]:
    """Yield whole lines, and never the beginning of a private key without its end."""
    while chunk := source.read(_CHUNK):
        chunk += source.readline(_CHUNK)
        for _ in range(_LONGEST_KEY):
            begin = chunk.rfind(b"-----BEGIN ")
            if begin < 0 or chunk.find(b"-----END ", begin) >= 0:
                break
            line = source.readline(_CHUNK)
            if not line:
                break
            chunk += line
        yield chunk
