"""Writes a report's file whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def replace(path: Path, text: str) -> None:
    """Replace a file by a text (write beside it, rename), so that no reader ever meets half of it."""
    tmp = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        tmp.write_text(text, encoding="utf-8", errors="replace")
        tmp.replace(path)
    finally:
        tmp.unlink(missing_ok=True)
