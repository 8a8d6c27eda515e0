"""Reads archives that a stranger made: never to the disk, never past a bound, never a name that leads elsewhere."""

from __future__ import annotations

import io
import lzma
import stat
import struct
import zipfile
import zlib
from dataclasses import dataclass

from matrix.errors import ToolError

MAX_MEMBERS = 5_000
MAX_RATIO = 200  # logs compress to a twentieth; what is smaller than this is a bomb
# What zipfile and the decompressors below it raise for bytes that are no archive.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, RuntimeError, EOFError, OSError, NotImplementedError,
    ValueError, IndexError,
)  # fmt: skip
_SMALL = 1 << 20  # below this size a high ratio is no danger


class HostileArchiveError(ToolError):
    """The archive is refused as a whole."""


@dataclass(frozen=True, slots=True)
class SafeZip:
    """Members of a checked archive. What is read from it in all stays under `limit` bytes."""

    archive: zipfile.ZipFile
    names: tuple[str, ...]

    @classmethod
    def open(cls, data: bytes, limit: int) -> SafeZip:
        """Check every member before anything is unpacked.

        Raises:
            HostileArchiveError: not an archive, a path that leaves it, a link, a bomb, encrypted, or too many members.

        """
        try:
            archive = zipfile.ZipFile(io.BytesIO(data))
        except _DAMAGE as e:
            raise HostileArchiveError(f"not a readable archive: {e}") from None
        members = archive.infolist()
        if len(members) > MAX_MEMBERS:
            raise HostileArchiveError(f"{len(members)} members, at most {MAX_MEMBERS} are read")
        total = 0
        for member in members:
            _check(member)
            total += member.file_size
        if total > limit:
            raise HostileArchiveError(f"{total} bytes when unpacked, at most {limit} are read")
        names = tuple(m.filename for m in members if not m.is_dir())
        if len(set(names)) != len(names):
            raise HostileArchiveError("two members of the same name")
        return cls(archive, names)

    def read(self, name: str, limit: int) -> bytes:
        """At most `limit` bytes of one member, whatever size it claims to have.

        Raises:
            HostileArchiveError: its content does not fit its header.

        """
        try:
            with self.archive.open(name) as f:
                return f.read(limit)
        except _DAMAGE as e:
            raise HostileArchiveError(f"{name[:80]!r} cannot be read: {e}") from None


def _check(member: zipfile.ZipInfo) -> None:
    name = member.filename
    shown = repr(name[:80])
    parts = name.replace("\\", "/").split("/")
    if name.startswith(("/", "\\")) or ".." in parts or (parts[0].endswith(":") and len(parts[0]) == 2) or "\0" in name:
        raise HostileArchiveError(f"{shown} leads out of the archive")
    mode = member.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise HostileArchiveError(f"{shown} is a link or a special file")
    if member.flag_bits & 0x1:
        raise HostileArchiveError(f"{shown} is encrypted")
    if member.file_size > _SMALL and member.file_size > MAX_RATIO * max(1, member.compress_size):
        raise HostileArchiveError(f"{shown} unpacks to {member.file_size} bytes from {member.compress_size}")
