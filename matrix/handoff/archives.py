"""Checks weights that are zip archives or pickles, without ever unpickling: a pickle is a program."""

from __future__ import annotations

import pickletools
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, cast

from matrix.handoff.problem import head
from matrix.handoff.safetensors import UnsoundError

_MAX_OPS = 2_000_000  # of a pickle that is looked through
_WALKED = 64 << 20  # bytes; a larger pickle is judged by its two ends
_MAX_LINE = 1 << 16  # bytes of a textual argument in a pickle
_LOCAL_HEADER = b"PK\x03\x04"
_EMPTY_ZIP = b"PK\x05\x06"


def is_zip(start: bytes) -> bool:
    """Tell whether the first bytes of a file are those of a zip archive."""
    return start.startswith((_LOCAL_HEADER, _EMPTY_ZIP))


def is_pickle(start: bytes) -> bool:
    """Tell whether the first bytes of a file are those of a pickle of protocol 2 to 5."""
    return len(start) >= 2 and start[0] == 0x80 and 2 <= start[1] <= 5


def check_torch(path: Path, length: int) -> None:
    """Check a file of torch.save: a zip archive since 1.6, before that a pickle with the storages behind it.

    Raises:
        UnsoundError: it is neither, or it is cut off.

    """
    start = head(path, 16)
    if is_zip(start):
        check_zip(path, length, pickle_inside=True)
    elif not is_pickle(start):
        raise UnsoundError("neither a zip archive nor a pickle" + (" (all zeros)" if not any(start) else ""))


def check_zip(path: Path, length: int, *, pickle_inside: bool = False) -> None:
    """Check that the central directory is there and that every entry it names lies in the file.

    Raises:
        UnsoundError: the archive cannot be read.

    """
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as f:
            entries = archive.infolist()
            for entry in entries:
                f.seek(entry.header_offset)
                local = f.read(30)
                if len(local) < 30 or not local.startswith(_LOCAL_HEADER):
                    raise UnsoundError(
                        f"damaged archive: entry {entry.filename[:200]!r} is not where the directory says"
                    )
                name_size, extra_size = struct.unpack("<HH", local[26:30])
                end = entry.header_offset + 30 + name_size + extra_size + entry.compress_size
                if end > min(archive.start_dir, length):
                    raise UnsoundError(f"damaged archive: entry {entry.filename[:200]!r} runs into the directory")
    except zipfile.BadZipFile as e:
        raise UnsoundError(f"cut off: a zip archive without its central directory ({e})") from None
    except (NotImplementedError, ValueError, OverflowError, struct.error) as e:
        raise UnsoundError(f"a zip archive that cannot be read ({e})") from None
    if pickle_inside and not any(e.filename.rsplit("/", 1)[-1] == "data.pkl" for e in entries):
        raise UnsoundError("a zip archive without data.pkl: not a file of torch.save")


def check_pickle(path: Path, length: int) -> None:
    """Check that a file has the shape of one whole pickle: a protocol, operations that end in STOP, nothing behind.

    Raises:
        UnsoundError: it has not.

    """
    if not is_pickle(head(path, 2)):
        raise UnsoundError("not a pickle")
    with path.open("rb") as f:
        f.seek(-1, 2)
        if f.read(1) != b".":
            raise UnsoundError("cut off: a pickle without its end")
    if length <= _WALKED:
        for _ in atoms(path):
            pass


class _Bounded:
    """A file that gives no more than it has, however much a length in it asks for."""

    def __init__(self, f: BinaryIO) -> None:
        self._f = f
        self._end = f.seek(0, 2)
        f.seek(0)

    def read(self, count: int) -> bytes:
        return self._f.read(min(count, self._end - self._f.tell()))

    def readline(self) -> bytes:
        return self._f.readline(_MAX_LINE)

    def tell(self) -> int:
        return self._f.tell()


def atoms(path: Path) -> Iterator[str | int | None]:
    """Yield the strings and integers of a pickle in the order in which it builds them, and None for all else.

    Nothing is imported or called. Memoised strings are followed.

    Raises:
        UnsoundError: the file is not one whole pickle, or it has more operations than are looked at.

    """
    memo: dict[int, str] = {}
    last = ""
    try:
        with path.open("rb") as f:
            for n, (op, arg, _) in enumerate(pickletools.genops(cast("IO[bytes]", _Bounded(f)))):
                if n > _MAX_OPS:
                    return
                if op.name in ("MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT"):
                    memo[arg if isinstance(arg, int) else len(memo)] = last
                    continue
                if op.name in ("GET", "BINGET", "LONG_BINGET"):
                    last = memo.get(arg if isinstance(arg, int) else -1, "")
                else:
                    last = arg if isinstance(arg, str) and "UNICODE" in op.name else ""
                yield arg if type(arg) is int and ("INT" in op.name or "LONG" in op.name) else last or None
    except (ValueError, UnicodeError, IndexError, OverflowError) as e:
        raise UnsoundError(f"damaged pickle ({str(e)[:120]})") from None
