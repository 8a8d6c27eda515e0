"""One pass over a log: which lines bear which marks and which rules may match there.

Hyperscan reports candidates for all patterns at once; rules are confirmed later by `re` on the cleaned line. The database is
kept on disk by the digest of its patterns, since compiling takes longer than scanning most logs.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import IO, Any

import hyperscan

from matrix.triage.lines import begins_with_time
from matrix.triage.marks import MARKS, WEAK
from matrix.triage.read import chunks
from matrix.triage.ruleset import RuleSet, cache_dir, keep
from matrix.triage.store import LineStore

CAP = 20_000  # lines kept as marked: the first half and the last half of them
_NAMED = re.compile(r"\(\?P<\w+>")
_ANCHORS = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|[\^$]")
_TAIL = re.compile(r"(?<![\\|(])(?:\.|\\S|\\w|\\d|\[(?:\\.|[^\]\\])+\])[+*]\??$")


@dataclass(slots=True)
class Scan:
    """What the pass found."""

    store: LineStore
    lines: int = 0
    size: int = 0
    marks: dict[int, set[str]] = field(default_factory=dict)  # line -> names of its marks
    hits: dict[int, set[int]] = field(default_factory=dict)  # line -> indices of patterns that may match there


class Scanner:
    """A compiled set of rules; reusable for any number of logs."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        self._always: list[int] = []
        expressions = [(m.regex, m.ignore_case, False) for m in MARKS]
        self._owner = list(range(len(MARKS)))
        for index, pattern in enumerate(rules.patterns):
            expressions.append((loosened(pattern.regex), False, pattern.prefilter))
            self._owner.append(len(MARKS) + index)
        self._db = _database(tuple(expressions))

    def scan(self, stream: IO[bytes]) -> Scan:
        """Read a stream to its end."""
        found = Scan(LineStore())
        keep_after = 0
        last_line, ended = 1, True
        for chunk in chunks(stream):
            if chunk.line == 1:
                found.store.iso = begins_with_time(chunk.data[:40_000].split(b"\n")[:60])
            found.size += chunk.size
            events: list[tuple[int, int]] = []
            append = events.append

            def seen(ident: int, _start: int, end: int, _flags: int, _context: Any, append: Any = append) -> None:
                append((end, ident))

            if chunk.data:  # nothing may be left of a chunk of escape codes
                self._db.scan(chunk.data, match_event_handler=seen)
            keep_after = self._collect(found, chunk.line, chunk.data, sorted(set(events)), keep_after)
            last_line, ended = chunk.line + chunk.data.count(b"\n"), chunk.data.endswith(b"\n")
        found.lines = last_line - 1 if ended else last_line
        if found.size == 0:
            found.lines = 0
        found.store.seal(found.lines)
        return found

    def _collect(self, found: Scan, first: int, data: bytes, events: list[tuple[int, int]], keep_after: int) -> int:
        marks, hits = found.marks, found.hits
        line, at, base = first, 0, len(MARKS)
        windows: list[tuple[int, int]] = [(first, keep_after)] if keep_after >= first else []
        reach = keep_after
        for end, ident in events:
            # An expression may end on the newline itself: step back so that the line is the one that holds the match.
            position = max(end - 1, 0)
            line += data.count(b"\n", at, position)
            at = position
            if ident < base:
                mark = MARKS[ident]
                marks.setdefault(line, set()).add(mark.name)
                before, after, strong = mark.before, mark.after, mark.name not in WEAK
            else:
                hits.setdefault(line, set()).add(ident - base)
                before, after, strong = 10, 10, True
            if strong:
                windows.append((line - before, line + after))
                reach = max(reach, line + after)
        if not windows:
            return reach
        if found.store.wants_whole:
            found.store.add(first, data)
            return reach
        _keep_windows(found.store, first, data, windows)
        return reach


def _keep_windows(store: LineStore, first: int, data: bytes, windows: list[tuple[int, int]]) -> None:
    """Keep the given line ranges of one chunk."""
    windows.sort()
    merged: list[list[int]] = []
    for low, high in windows:
        if merged and low <= merged[-1][1] + 1:
            merged[-1][1] = max(merged[-1][1], high)
        else:
            merged.append([low, high])
    line, at = first, 0
    for low, high in merged:
        while line < max(low, first) and at < len(data):
            at = data.find(b"\n", at) + 1 or len(data)
            line += 1
        start, number = at, line
        while line <= high and at < len(data):
            at = data.find(b"\n", at) + 1 or len(data)
            line += 1
        if at > start:
            store.add(number, data[start:at])


def loosened(regex: str) -> str:
    """A pattern for the scanner that matches wherever the original does: no names, anchors, or unbounded tail."""
    text = _NAMED.sub("(?:", regex)
    text = _ANCHORS.sub(lambda m: m[1] or "(?:)", text)
    if "|" not in text:
        text = _TAIL.sub("", text) or text
    return text


@functools.lru_cache(maxsize=8)
def _database(expressions: tuple[tuple[str, bool, bool], ...]) -> Any:
    digest = hashlib.sha256(
        repr((hyperscan.hyperscan_version() if hasattr(hyperscan, "hyperscan_version") else "", expressions)).encode()
    ).hexdigest()
    path = cache_dir() / f"scan-{digest[:32]}.hsdb"
    try:
        database = hyperscan.loadb(path.read_bytes(), mode=hyperscan.HS_MODE_BLOCK)
        database.scratch = hyperscan.Scratch(database)
    except (OSError, hyperscan.error):
        database = _compile(expressions)
        keep(path, hyperscan.dumpb(database))
    return database


def _compile(expressions: tuple[tuple[str, bool, bool], ...]) -> Any:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    flags = [
        hyperscan.HS_FLAG_MULTILINE
        | hyperscan.HS_FLAG_ALLOWEMPTY * 0
        | (hyperscan.HS_FLAG_CASELESS if ignore_case else 0)
        | (hyperscan.HS_FLAG_PREFILTER if prefilter else 0)
        for _, ignore_case, prefilter in expressions
    ]
    database.compile(
        expressions=[e.encode() for e, _, _ in expressions],
        ids=list(range(len(expressions))),
        elements=len(expressions),
        flags=flags,
    )
    return database


def text_hits(rules: RuleSet, indices: Iterable[int], body: str) -> list[int]:
    """Those of the candidates that really match a cleaned line."""
    return [i for i in sorted(indices) if rules.patterns[i].search(body)]
