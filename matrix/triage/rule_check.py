"""Refuses a rule that is wrong, slow or over-broad, with the reason: built-in rules and users' alike.

Pure functions over rules and texts; only `slow_patterns` starts a process, since a runaway regular expression cannot be
stopped from inside.
"""

from __future__ import annotations

import multiprocessing
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path
from time import process_time

from matrix.triage.rule_model import MARKER, PatternSpec, Rule

# `re` gives out no tree of its own; these two modules have kept their shape since Python 2 (renamed in 3.11).
import re._constants as sre  # type: ignore[import-not-found]  # isort: skip
import re._parser as sre_parser  # type: ignore[import-not-found]  # isort: skip

HOSTILE_LENGTH = 16 * 1024  # characters; the scanner cuts longer lines before it confirms a match
SLOW_SECONDS = 0.25  # for one hostile line; a sound pattern needs some milliseconds
MAX_REPEAT = 4096  # upper bound of a counted repetition


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a rule is refused: the word to look for in its file, and the reason."""

    word: str
    reason: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A pattern that matches a line (0-based) of a text."""

    line: int
    category: str
    pattern: PatternSpec


@lru_cache(maxsize=4096)
def _regex(text: str) -> re.Pattern[str]:
    return re.compile(text)


def clean(line: str) -> str:
    """Take an example's marker and pytest's `E   ` off a line."""
    return re.sub(r"^E {2,}", "", line.removeprefix(MARKER))


def claims(rules: Iterable[Rule], text: str) -> Iterator[Claim]:
    """Every pattern of `rules` that matches in `text`, without a look at the structure around it."""
    lines = [clean(line) for line in text.splitlines()]
    block = "\n".join(lines)
    for rule in rules:
        for pattern in rule.patterns:
            if pattern.block:
                found = _regex(pattern.regex).search(block)
                if found and not (pattern.unless and _regex(pattern.unless).search(block)):
                    start = (
                        found.start("at") if "at" in found.re.groupindex and found["at"] is not None else found.start()
                    )
                    yield Claim(block.count("\n", 0, start), rule.category, pattern)
                continue
            for number, line in enumerate(lines):
                if (
                    _regex(pattern.regex).search(line)
                    and not (pattern.unless and _regex(pattern.unless).search(line))
                    and not (pattern.after and not any(_regex(pattern.after).search(e) for e in lines[:number]))
                ):
                    yield Claim(number, rule.category, pattern)


def check_examples(rule: Rule, others: Sequence[Rule]) -> list[Problem]:
    """See that each marked line is claimed by this rule and by no other of the same or a higher priority."""
    problems: list[Problem] = []
    proven: set[str] = set()
    for text in rule.examples.match:
        marked = next(n for n, line in enumerate(text.splitlines()) if line.startswith(MARKER))
        word = text.splitlines()[marked].removeprefix(MARKER).strip()
        own = [c for c in claims([rule], text) if c.line == marked]
        if not own:
            problems.append(Problem(word, f"example is not matched by any pattern of {rule.category}"))
            continue
        best = max(c.pattern.priority for c in own)
        proven |= {c.pattern.id for c in own}
        problems += [
            Problem(
                word,
                f"example is also claimed by {c.pattern.id} of {c.category} (priority {c.pattern.priority} >= {best})",
            )
            for c in claims(others, text)
            if c.line == marked and c.category != rule.category and c.pattern.priority >= best
        ]
    for text in rule.examples.no_match:
        problems += [
            Problem(text.splitlines()[0].strip(), f"no_match example is matched by {c.pattern.id}")
            for c in claims([rule], text)
        ]
    problems += [Problem(p.id, f"no example shows pattern {p.id}") for p in rule.patterns if p.id not in proven]
    return problems


def check_green(rule: Rule, green: Iterable[tuple[str, str]]) -> list[Problem]:
    """No pattern may match in (name, text) of a job that passed, save an exception, which may have been handled."""
    loud = rule.model_copy(update={"patterns": tuple(p for p in rule.patterns if p.where != "exception")})
    problems = []
    for name, text in green:
        for claim in claims([loud], text):
            line = text.splitlines()[claim.line].strip()[:80]
            reason = f"pattern {claim.pattern.id} hits the green log {name}:{claim.line + 1}: {line!r}"
            problems.append(Problem(claim.pattern.id, reason))
    return problems


def check_shape(rule: Rule) -> list[Problem]:
    """Refuse nested quantifiers, huge repeats, and patterns with nothing literal to look for."""
    problems = []
    for pattern in rule.patterns:
        tree = sre_parser.parse(pattern.regex)
        if _nested(tree):
            problems.append(
                Problem(pattern.id, f"{pattern.id}: a repeat inside a repeat can take exponential time; write it flat")
            )
        if _largest(tree) > MAX_REPEAT:
            problems.append(
                Problem(pattern.id, f"{pattern.id}: repeats more than {MAX_REPEAT} times; use a smaller bound")
            )
        if _literal(tree) < 3 and not pattern.regex.startswith("^"):
            reason = "no match must hold a fixed word of 3 letters, so it is too broad; add one, or anchor it with ^"
            problems.append(Problem(pattern.id, f"{pattern.id}: {reason}"))
    return problems


def hyperscan_refuses(patterns: Sequence[PatternSpec]) -> list[Problem]:
    """Say which patterns hyperscan cannot take as they stand; nothing where hyperscan is not installed."""
    try:
        import hyperscan  # noqa: PLC0415 - not on every platform
    except ImportError:
        return []

    def compiles(some: Sequence[PatternSpec]) -> str:
        flags = [hyperscan.HS_FLAG_MULTILINE | (hyperscan.HS_FLAG_PREFILTER if p.prefilter else 0) for p in some]
        try:
            hyperscan.Database().compile(
                expressions=[p.regex.encode() for p in some], ids=[*range(len(some))], elements=len(some), flags=flags
            )
        except hyperscan.error as e:
            return str(e) or type(e).__name__
        return ""

    if not patterns or not compiles(patterns):  # all at once costs hardly more than one
        return []
    hint = {False: "; write it without look-around, or set `prefilter: true`", True: ""}
    return [
        Problem(p.id, f"{p.id}: hyperscan refuses it ({reason}){hint[p.prefilter]}")
        for p in patterns
        if (reason := compiles([p]))
    ]


def _children(op: object, argument: object) -> list[sre_parser.SubPattern]:
    if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
        return [argument[2]]  # type: ignore[index]
    if op is sre.SUBPATTERN:
        return [argument[3]]  # type: ignore[index]
    if op is sre.BRANCH:
        return list(argument[1])  # type: ignore[index]
    if op in (sre.ASSERT, sre.ASSERT_NOT):
        return [argument[1]]  # type: ignore[index]
    if op is sre.ATOMIC_GROUP:
        return [argument]
    return []


def _repeats(op: object) -> bool:
    return op in (sre.MAX_REPEAT, sre.MIN_REPEAT)


def _nested(tree: sre_parser.SubPattern, inside: bool = False) -> bool:
    for op, argument in tree:
        wide = _repeats(op) and argument[1] > 64
        if wide and inside:
            return True
        if any(_nested(child, inside or wide) for child in _children(op, argument)):
            return True
    return False


def _largest(tree: sre_parser.SubPattern) -> int:
    bounds = [0]
    for op, argument in tree:
        if _repeats(op) and argument[1] is not sre.MAXREPEAT:
            bounds.append(int(argument[1]))
        bounds += [_largest(child) for child in _children(op, argument)]
    return max(bounds)


def _literal(tree: sre_parser.SubPattern) -> int:
    """Length of the longest run of fixed characters that every match holds."""
    best = run = 0
    for op, argument in tree:
        if op is sre.LITERAL:
            run += 1 if argument < 0x2E80 else 2  # a Chinese character weighs as much as two letters
            best = max(best, run)
            continue
        run = 0
        if op is sre.BRANCH:
            best = max(best, min(_literal(branch) for branch in argument[1]))
        elif op is sre.SUBPATTERN or (_repeats(op) and argument[0] > 0):
            best = max(best, *(_literal(child) for child in _children(op, argument)))
    return best


def hostile_lines(pattern: PatternSpec) -> list[str]:
    """Long lines that make a careless pattern try again and again: repeated runs, and its own words over and over."""
    words = re.findall(r"[A-Za-z][A-Za-z ]{2,}", re.sub(r"\\[a-zA-Z]", " ", pattern.regex))
    words = sorted(set(words), key=len)[-8:]
    seeds = ["a", " ", "0", "a.", "/a", "a b ", "'a', ", "- ", "error: ", *words, " ".join(words)]
    return [(seed * (HOSTILE_LENGTH // len(seed) + 1))[:HOSTILE_LENGTH] + "\x00" for seed in seeds if seed]


def slow_patterns(rules: Sequence[Rule], seconds: float = SLOW_SECONDS) -> list[tuple[PatternSpec, float]]:
    """Find patterns that need more than `seconds` of processor time for one hostile line (inf: was stopped)."""
    queue = [p for rule in rules for p in rule.patterns]
    slow: list[tuple[PatternSpec, float]] = []
    context = multiprocessing.get_context("fork")
    while queue:
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_time_all, args=(queue, theirs), daemon=True)
        child.start()
        theirs.close()
        done = 0
        while done < len(queue):
            if not ours.poll(seconds * 8 + 5):  # wall time, also on a busy host
                slow.append((queue[done], float("inf")))
                break
            try:
                took = ours.recv()
            except EOFError:
                break
            if took > seconds:
                slow.append((queue[done], took))
            done += 1
        child.kill()
        child.join()
        queue = queue[done + 1 :]
    return slow


def too_slow(pattern: PatternSpec, took: float) -> Problem:
    """Say why a slow pattern is refused."""
    spent = "had to be stopped" if took == float("inf") else f"needs {took:.2f} s"
    return Problem(
        pattern.id, f"{pattern.id}: {spent} on one hostile line of {HOSTILE_LENGTH} characters; bound its repeats"
    )


def check_file(rule: Rule, others: Sequence[Rule]) -> list[Problem]:
    """Do all checks of one rule but the one of time."""
    shape = [*check_shape(rule), *hyperscan_refuses(rule.patterns)]
    return [*shape, *check_examples(rule, others), *check_green(rule, green_logs())]


def _time_all(patterns: Sequence[PatternSpec], answers: Connection) -> None:
    for pattern in patterns:
        worst = 0.0
        for regex in filter(None, (pattern.regex, pattern.unless, pattern.after)):
            compiled = re.compile(regex)
            for line in hostile_lines(pattern):
                start = process_time()
                compiled.search(line)
                worst = max(worst, process_time() - start)
        answers.send(worst)


def green_logs() -> list[tuple[str, str]]:
    """Read the logs of jobs that passed, full of words that scare: (name, text). No rule may hit a line of them."""
    return [(p.name, p.read_text(encoding="utf-8")) for p in sorted((Path(__file__).parent / "green").glob("*.log"))]
