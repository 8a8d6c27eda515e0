"""Globs of changed files: `*`, `?`, `[...]`, `**`, and `!` to take back; relative to the folder of the matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pathspec import PathSpec
from pathspec.patterns.gitignore.base import GitIgnorePatternError


def check_glob(glob: str) -> None:
    """Refuse a glob that would silently match nothing.

    Raises:
        ValueError: what is wrong and what to write.

    """
    body = glob.removeprefix("!")
    advice = "write one such as src/**/*.py"
    if not body.strip("/"):
        raise ValueError(f"bad glob {glob!r}: it matches nothing; {advice}")
    if body.startswith("/") or ".." in body.split("/"):
        raise ValueError(f"bad glob {glob!r}: it is relative to the folder of the matrix and stays inside; {advice}")
    if body.startswith("#"):
        raise ValueError(f"bad glob {glob!r}: '#' starts a comment; {advice}")
    if body.replace("[[]", "").count("[") > body.count("]"):
        raise ValueError(f"bad glob {glob!r}: '[' is not closed; write [abc], or [[] for the character itself")
    if "**" in body and any("**" in part and part != "**" for part in body.split("/")):
        raise ValueError(f"bad glob {glob!r}: '**' stands alone between slashes; {advice}")
    try:
        PathSpec.from_lines("gitignore", [_anchored(glob)])
    except (GitIgnorePatternError, ValueError) as e:
        raise ValueError(f"bad glob {glob!r}: {e}; {advice}") from None


def matching(globs: Sequence[str], files: Iterable[str]) -> list[str]:
    """Those of `files` that the globs mean, the last fitting glob deciding."""
    lines = [_anchored(glob) for glob in globs]
    if globs and all(glob.startswith("!") for glob in globs):
        lines.insert(0, "/**")
    spec = PathSpec.from_lines("gitignore", lines)
    return [file for file in files if spec.match_file(file)]


def _anchored(glob: str) -> str:
    """Anchor a glob at the folder of the matrix, as `paths` of GitHub workflows are."""
    return "!/" + glob[1:] if glob.startswith("!") else "/" + glob
