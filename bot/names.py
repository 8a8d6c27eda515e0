"""Names of jobs as they stand in a command."""

from __future__ import annotations

import re

_BARE = re.compile(r"[\w./:+=@-]+")


def quote_name(name: str) -> str:
    """Return the name as one word of a command: bare if it can be, else in double quotes."""
    if _BARE.fullmatch(name) and not name.startswith("-"):
        return name
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
