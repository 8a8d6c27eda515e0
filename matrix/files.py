"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def replace(path: Path, text: str, *, durable: bool = False) -> None:
    """Replace a file by a text, so that no reader ever meets half of it: write beside it, rename.

    `durable`: on the disk when this returns, the old name's entry too, so that not even a power cut takes it back.
    A half of a character (from a file name that is not UTF-8) becomes a question mark.
    """
    tmp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with tmp.open("w", encoding="utf-8", errors="replace", newline="\n") as f:
            f.write(text)
            if durable:
                f.flush()
                os.fsync(f.fileno())
        tmp.replace(path)
    finally:
        tmp.unlink(missing_ok=True)
    if durable:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
