"""One pass over a log: which lines bear which marks, and which rules may match there.

The scan looks for structural marks and for words, one of which every match of a rule holds; the rules themselves are then asked
about single cleaned lines. A training log holds few such words, so a log without a match costs little more than reading it. The
compiled database is kept on disk by its digest.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from typing import IO, Any

import hyperscan

from matrix.triage import literals
from matrix.triage.lines import begins_with_time
from matrix.triage.marks import MARKS, WEAK
from matrix.triage.read import chunks
from matrix.triage.ruleset import RuleSet, cache_dir, keep
from matrix.triage.store import LineStore, keep_windows

CAP = 60_000  # marked lines of a log that are remembered: the first half and the last half of them
AROUND = 10  # lines kept about a word of a rule, in a log too large to keep whole


@dataclass(slots=True)
class Scan:
    """What the pass found."""

    store: LineStore
    guarded: tuple[
        tuple[int, tuple[str, ...]], ...
    ] = ()  # patterns without a leading word, with the words that they do need
    lines: int = 0
    size: int = 0
    marks: dict[int, set[str]] = field(default_factory=dict)  # line -> names of its marks
    hits: dict[int, set[int]] = field(default_factory=dict)  # line -> indices of patterns whose word it holds
    _asked: dict[int, list[int]] = field(default_factory=dict)

    def candidates(self, no: int, text: str) -> list[int]:
        """Indices of the patterns that may match in a line, by descending priority."""
        found = self._asked.get(no)
        if found is None:
            low = text.lower()
            extra = [i for i, words in self.guarded if not words or any(w in low for w in words)]
            found = self._asked[no] = sorted({*self.hits.get(no, ()), *extra})
        return found

    def forget_middle(self) -> None:
        """Keep memory bounded where nearly every line is marked."""
        for table in (self.marks, self.hits):
            if len(table) > CAP:
                keys = list(table)
                for no in keys[CAP // 2 : -CAP // 2]:
                    del table[no]


class Scanner:
    """A compiled set of rules; reusable for any number of logs."""

    def __init__(self, rules: RuleSet) -> None:
        self._words, self._guarded = _words(rules)
        expressions = [(m.regex, m.ignore_case) for m in MARKS]
        expressions += [("".join(f"\\x{b:02x}" for b in word.encode()), caseless) for word, caseless in self._words]
        self._owners = list(self._words.values())
        self._db = _database(tuple(expressions))

    def scan(self, stream: IO[bytes]) -> Scan:
        """Read a stream to its end."""
        found = Scan(LineStore(), self._guarded)
        reach, last_line, ended = 0, 1, True
        for chunk in chunks(stream):
            if chunk.line == 1:
                found.store.iso = begins_with_time(chunk.data[:40_000].split(b"\n")[:60])
            found.size += chunk.size
            events: set[tuple[int, int]] = set()
            add = events.add

            def seen(ident: int, _start: int, end: int, _flags: int, _context: Any, add: Any = add) -> None:
                add((end, ident))

            if chunk.data:  # nothing may be left of a chunk of escape codes
                self._db.scan(chunk.data, match_event_handler=seen)
            reach = self._collect(found, chunk.line, chunk.data, sorted(events), reach)
            found.forget_middle()
            last_line, ended = chunk.line + chunk.data.count(b"\n"), chunk.data.endswith(b"\n")
        found.lines = 0 if found.size == 0 else last_line - 1 if ended else last_line
        found.store.seal(found.lines)
        return found

    def _collect(self, found: Scan, first: int, data: bytes, events: list[tuple[int, int]], reach: int) -> int:
        """Note the marks and words of one chunk and keep the lines about them; gives the last line that is wanted."""
        marks, hits = found.marks, found.hits
        line, at, base = first, 0, len(MARKS)
        windows: list[tuple[int, int]] = [(first, reach)] if reach >= first else []
        for end, ident in events:
            # An expression may end on the newline itself: step back so that the line is the one that holds the match.
            position = max(end - 1, 0)
            line += data.count(b"\n", at, position)
            at = position
            before = after = AROUND
            if ident < base:
                mark = MARKS[ident]
                marks.setdefault(line, set()).add(mark.name)
                if mark.name in WEAK:
                    continue
                before, after = mark.before, mark.after
            else:
                hits.setdefault(line, set()).update(self._owners[ident - base])
            windows.append((line - before, line + after))
            reach = max(reach, line + after)
        if windows and found.store.wants_whole:
            found.store.add(first, data)
        elif windows:
            keep_windows(found.store, first, data, windows)
        return reach


def _words(rules: RuleSet) -> tuple[dict[tuple[str, bool], frozenset[int]], tuple[tuple[int, tuple[str, ...]], ...]]:
    """Leading words with the patterns that each leads to, and the patterns that have none."""
    words: dict[tuple[str, bool], set[int]] = {}
    guarded: list[tuple[int, tuple[str, ...]]] = []
    for index, (needed, leading) in enumerate(_needed(rules)):
        if not leading:
            guarded.append((index, tuple(w.lower() for w in needed)))
            continue
        for word in needed:
            words.setdefault((word, "(?i" in rules.patterns[index].regex), set()).add(index)
    return {word: frozenset(owners) for word, owners in sorted(words.items())}, tuple(guarded)


def _needed(rules: RuleSet) -> list[tuple[tuple[str, ...], bool]]:
    """For each pattern the words that its matches hold, and whether they lead; kept on disk, since parsing them takes time."""
    import json  # noqa: PLC0415

    regexes = [p.regex for p in rules.patterns]
    digest = hashlib.sha256(repr((literals.TYPICAL, literals.ENOUGH, regexes)).encode()).hexdigest()
    path = cache_dir() / f"words-{digest[:32]}.json"
    try:
        return [(tuple(words), leading) for words, leading in json.loads(path.read_bytes())]
    except (OSError, ValueError):
        needed = [(tuple(sorted(literals.required(r) or ())), literals.leads(r)) for r in regexes]
        keep(path, json.dumps(needed).encode())
        return needed


@functools.lru_cache(maxsize=8)
def _database(expressions: tuple[tuple[str, bool], ...]) -> Any:
    digest = hashlib.sha256(repr(expressions).encode()).hexdigest()
    path = cache_dir() / f"scan-{digest[:32]}.hsdb"
    try:
        database = hyperscan.loadb(path.read_bytes(), mode=hyperscan.HS_MODE_BLOCK)
        database.scratch = hyperscan.Scratch(database)
    except (OSError, hyperscan.error):
        database = _compile(expressions)
        keep(path, hyperscan.dumpb(database))
    return database


def _compile(expressions: tuple[tuple[str, bool], ...]) -> Any:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    caseless = hyperscan.HS_FLAG_CASELESS
    database.compile(
        expressions=[e.encode() for e, _ in expressions],
        ids=list(range(len(expressions))),
        elements=len(expressions),
        flags=[hyperscan.HS_FLAG_MULTILINE | (caseless if ignore_case else 0) for _, ignore_case in expressions],
    )
    return database
