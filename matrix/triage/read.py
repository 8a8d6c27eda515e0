"""Reads a log of any size in bounded memory: whole lines in chunks, escape codes taken out, line numbers of the original."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, Self, cast

from matrix.errors import UsageError

CHUNK = 4 << 20
# Escape sequences: CSI, OSC (also Buildkite's APC), charset selection, two-byte ones. None of them may swallow a newline.
ESCAPES = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]_P^][^\x07\x1b\n]*(?:\x07|\x1b\\)|[()*+#][0-9A-Za-z]|[@-Z\\-_=>78])"
)


class Chunk(NamedTuple):
    """A piece of a log that ends at a line's end, unless one line is longer than four chunks."""

    line: int  # 1-based number of its first line
    data: bytes  # without escape codes
    size: int  # bytes of the original, decompressed


def open_log(path: str) -> IO[bytes]:
    """Open a plain, .gz or .zst log, or stdin for `-`, by its first bytes rather than its name.

    Raises UsageError if there is no such file or it is no valid archive.
    """
    if path == "-":
        raw: IO[bytes] = io.BufferedReader(cast("io.RawIOBase", sys.stdin.buffer), CHUNK)
    else:
        try:
            raw = Path(path).open("rb", buffering=1 << 16)  # noqa: SIM115 - the caller closes it
        except OSError as e:
            raise UsageError(
                f"{path}: cannot be read: {e.strerror}", "give a log file, a folder of rank logs, or -"
            ) from e
    head = raw.peek(4)[:4] if isinstance(raw, io.BufferedReader) else b""
    if head[:2] == b"\x1f\x8b":
        return cast("IO[bytes]", _Gzip(raw))
    if head == b"\x28\xb5\x2f\xfd":
        import zstandard  # noqa: PLC0415

        return cast("IO[bytes]", zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True, closefd=True))
    return raw


def chunks(stream: IO[bytes]) -> Iterator[Chunk]:
    """Cut a stream into chunks of whole lines. A damaged archive ends where it is damaged."""
    rest, line = b"", 1
    while True:
        try:
            read = stream.read(CHUNK)
        except Exception as e:
            if type(e).__name__ != "ZstdError":  # a damaged archive ends where it is damaged
                raise
            read = b""
        if not read:
            break
        data = rest + read
        cut = data.rfind(b"\n") + 1
        if not cut:
            if len(data) < 4 * CHUNK:
                rest = data
                continue
            cut = len(data)
        data, rest = data[:cut], data[cut:]
        yield Chunk(line, _plain(data), len(data))
        line += data.count(b"\n")
    if rest:
        yield Chunk(line, _plain(rest), len(rest))


class _Gzip:
    """Decompresses gzip members one after the other; of a damaged file it gives what comes before the damage."""

    def __init__(self, raw: IO[bytes]) -> None:
        from isal import isal_zlib  # noqa: PLC0415 - only compressed logs need it

        self._raw, self._zlib = raw, isal_zlib
        self._error = cast("type[Exception]", isal_zlib.error)
        self._member = isal_zlib.decompressobj(wbits=31)
        self._left = b""

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, none at the end."""
        pieces: list[bytes] = []
        got = 0
        while got < size:
            data = self._left or self._raw.read(1 << 18)
            if not data:
                break
            try:
                piece = self._member.decompress(data, size - got)
            except self._error:
                self._left = b""
                break
            self._left = self._member.unconsumed_tail
            if self._member.eof:
                self._left = self._member.unused_data
                self._member = self._zlib.decompressobj(wbits=31)
            pieces.append(piece)
            got += len(piece)
        return b"".join(pieces)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()


def _plain(data: bytes) -> bytes:
    return ESCAPES.sub(b"", data) if b"\x1b" in data else data
