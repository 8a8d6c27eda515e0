"""The check run of a board: the same verdict as the comment, with annotations on lines that this pull request
changed.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from bot import words
from bot.board import NOT_OURS, Board, all_rows
from bot.comment import compose
from bot.escape import LIMIT, clean
from bot.intents import Annotation, Check
from matrix.triage import titles

NAME = "matrix report"
MAX_ANNOTATIONS = 50  # a request; more are noise
# file:line as Python, pytest, compilers and linters write it
_PLACES = (
    re.compile(r'File "(?P<path>[^"\n]+)", line (?P<line>\d+)'),
    re.compile(r"(?<![\w/.-])(?P<path>[\w./-]+\.\w{1,5}):(?P<line>\d+)(?=[:,)\s]|$)"),
)


def places(text: str, files: Collection[str]) -> list[tuple[str, int]]:
    """Lines of changed files that a text names, the innermost (last) first, each once."""
    found: list[tuple[int, str, int]] = []
    for pattern in _PLACES:
        for hit in pattern.finditer(text):
            path = hit["path"].replace("\\", "/")
            # A path in a log may be absolute: it means the changed file whose whole name ends it.
            named = [f for f in files if path == f or path.endswith("/" + f)]
            if len(named) == 1 and 0 < int(hit["line"]) < 10**7:
                found.append((hit.start(), named[0], int(hit["line"])))
    return list(dict.fromkeys((path, line) for _, path, line in sorted(found, reverse=True)))


def annotate(board: Board, files: Collection[str]) -> tuple[Annotation, ...]:
    """One annotation a cause, where its log names a line of a file of this pull request."""
    made: dict[tuple[str, int, str], Annotation] = {}
    for row in all_rows(board.rows):
        if row.verdict in NOT_OURS:
            continue
        for found in row.findings:
            where = places(f"{found.excerpt}\n{found.evidence.text}", files)
            if not where:
                continue
            path, line = where[0]
            title = clean(f"{row.job}: {titles.title(found.category, 'en')}")[:255]
            message = clean(found.evidence.text)[:4000] or title
            annotation = Annotation(path, line, title, message, "warning" if row.allowed else "failure")
            made.setdefault((path, line, message), annotation)
    return tuple(made.values())[:MAX_ANNOTATIONS]


def check_of(board: Board, files: Collection[str], languages: tuple[str, ...] = ("en",)) -> Check:
    """Say in a check run what the comment says; neutral where only infrastructure, base or flakes failed."""
    must = [row for row in board.rows if not row.allowed]
    unfinished = any(board.counts.get(s, 0) for s in words.UNFINISHED)
    if unfinished:
        conclusion = None
    elif board.colour == "red":
        conclusion = "neutral" if must and all(row.verdict in NOT_OURS for row in must) else "failure"
    else:
        conclusion = {"green": "success", "grey": "cancelled"}.get(board.colour, "neutral")
    return Check(
        head=board.head or "",
        conclusion=conclusion,  # type: ignore[arg-type]
        title=words.verdict_line(board, "en")[:250],
        summary=compose(board, languages, LIMIT),
        annotations=annotate(board, files),
    )
