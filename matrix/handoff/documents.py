"""Reads the JSON files of a checkpoint, in bounds."""

from __future__ import annotations

import json
from pathlib import Path

from matrix.handoff.safetensors import UnsoundError

_MAX_JSON = 64 << 20  # bytes; a larger JSON file is not parsed


def read_json(file: Path) -> object:
    """Parse a JSON file of a bounded size.

    Raises:
        UnsoundError: it does not parse.

    """
    if file.stat().st_size > _MAX_JSON:
        return None
    try:
        return json.loads(file.read_bytes())
    except UnicodeDecodeError as e:
        raise UnsoundError(f"is not UTF-8 (byte {e.start})") from None
    except json.JSONDecodeError as e:
        raise UnsoundError(f"does not parse as JSON: {e.msg} at line {e.lineno}, column {e.colno}") from None
    except RecursionError:
        raise UnsoundError("does not parse as JSON: nested too deeply") from None
    except ValueError as e:
        raise UnsoundError(f"does not parse as JSON: {e}") from None
