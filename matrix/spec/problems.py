"""What is wrong with a spec: every problem with its line, its path in the document and what to write instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz, process, utils
from rapidfuzz.distance import OSA

from matrix.errors import UsageError

Part = str | int
_PLAIN_KEY = re.compile(r"[\w@=-]+")
# A hostile spec may hold thousands of mistakes; nobody reads more than these.
SHOWN = 50


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One mistake in one place. `line` counts from 1; 0 stands for the file as a whole."""

    line: int
    path: str
    message: str

    def text(self, file: str) -> str:
        """`file:line: path: message`, in one line."""
        where = f"{file}:{self.line}" if self.line else file
        return ": ".join(part for part in (where, self.path, self.message) if part)


class SpecError(UsageError):
    """A spec with mistakes; all of them, so that they are mended in one go."""

    def __init__(self, file: str, problems: Iterable[Problem]) -> None:
        self.file = file
        self.problems = sorted(set(problems))
        lines = [problem.text(file) for problem in self.problems]
        if len(lines) == 1:
            super().__init__(lines[0])
            return
        more = [f"... and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
        head = f"{file}: {len(lines)} mistakes; nothing was run"
        super().__init__("\n  ".join([head, *lines[:SHOWN], *more]))


def show_path(path: Sequence[Part]) -> str:
    """`suites.unit.jobs.tests.needs[0]`; keys with other characters stand in quotes."""
    out = ""
    for part in path:
        if isinstance(part, int):
            out += f"[{part}]"
        else:
            key = part if _PLAIN_KEY.fullmatch(part) else '"' + part.replace('"', '\\"') + '"'
            out += f".{key}" if out else key
    return out


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was probably meant, or None when none is near."""
    words = list(known)
    best = process.extractOne(word.lower(), [w.lower() for w in words], scorer=OSA.distance)
    if best and len(word) > 1 and best[1] <= max(1, len(word) // 4):
        return words[best[2]]
    found = process.extractOne(word, words, scorer=fuzz.ratio, processor=utils.default_process, score_cutoff=60)
    return found[0] if found else None


def did_you_mean(word: str, known: Iterable[str], *, every: bool = True) -> str:
    """Say what to write in place of an unknown word: the nearest known one, else all of them."""
    words = sorted(set(known))
    near = nearest(word, words)
    if near:
        return f"did you mean {near!r}?"
    if not words:
        return "there are none"
    shown = ", ".join(words[:30]) + (", ..." if len(words) > 30 else "")
    return f"known are: {shown}" if every else f"write one of {shown}"
