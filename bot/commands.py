"""The grammar of commands in a pull request's comments.

A command is a line that begins with `/verb` where GitHub shows plain text: not in a quote, in code, in a list or in
HTML.
One comment may hold several. Whatever is meant for another bot is left alone; what is nearly one of ours is answered.
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rapidfuzz import fuzz, process

from bot.escape import Markdown, code
from bot.names import quote_name

MAX_COMMANDS = 10  # in one comment
MAX_SEEN = 20  # lines of one comment that are looked at
MAX_LINE = 1000
MAX_TIMES = 20
VERBS = {
    "rerun": "/rerun · /rerun all · /rerun NAME… · /rerun NAME --times 5",
    "explain": "/explain [NAME]",
    "compare": "/compare REF",
    "quarantine": "/quarantine TEST reason…",
    "cancel": "/cancel",
    "wrong": "/wrong NAME category=ID [line=N]",
    "help": "/help",
}
ALIASES = {"re-run": "rerun"}
HELP = {
    "rerun": (
        "re-run failed jobs, all jobs, or jobs by name; --times probes for a flake",
        "重跑失败的、全部的或指定的任务",
    ),
    "explain": ("show the evidence of a failing job", "展示失败任务的证据"),
    "compare": ("compare the failures with those of a branch or commit", "与某分支或提交的失败对比"),
    "quarantine": ("give the change that quarantines a test", "给出隔离某测试的改动"),
    "cancel": ("cancel the runs of this head", "取消当前提交的运行"),
    "wrong": ("correct a diagnosis", "纠正诊断"),
    "help": ("show this", "显示本帮助"),
}


@dataclass(frozen=True, slots=True)
class Command:
    """One command as it was written. `error` says what is wrong with it, and then nothing else counts."""

    verb: str
    words: tuple[str, ...] = ()
    everything: bool = False  # /rerun all
    times: int = 1
    reason: str = ""
    category: str = ""
    line: int | None = None
    error: Markdown | None = None  # may quote what a stranger wrote, so it is Markdown by type


def _mistake(verb: str, text: str) -> Command:
    """Make a command that only says what is wrong with it; whatever `text` quotes has been escaped."""
    return Command(verb, error=Markdown(text))


# What keyboards and editors make of plain quotes, blanks and dashes.
_TYPED: dict[int, str] = {ord("“"): '"', ord("”"): '"', 0xA0: " ", ord("－"): "-", ord("—"): "--"}


def _plain(text: str) -> str:
    """Return the line without invisible characters (our own word joiners are copied with a name) and with plain
    quotes.
    """
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cc", "Cf") or c == "\t")
    return text.translate(_TYPED).strip()


def _inline_tokens(tokens: Sequence[Token]) -> Iterable[Token]:
    """Text of paragraphs that stand by themselves."""
    for before, token in itertools.pairwise(tokens):
        if token.type == "inline" and before.type == "paragraph_open" and before.level == 0:
            yield token


def command_lines(body: str) -> list[str]:
    """Lines that begin with a slash and are shown as plain text at the beginning of a line."""
    parser = MarkdownIt("commonmark")
    lines: list[str] = []
    seen = 0
    for token in _inline_tokens(parser.parse(body.replace("\0", "")[:30_000])):
        rows = token.content.split("\n")
        for n, row in enumerate(rows):
            if not re.match(r"/[A-Za-z]", row):
                continue
            seen += 1
            if seen > MAX_SEEN:  # each costs a parse of its paragraph
                return lines
            if _is_shown_as_text(parser, rows, n):
                lines.append(_plain(row[:MAX_LINE]))
    return lines


def _is_shown_as_text(parser: MarkdownIt, rows: list[str], n: int) -> bool:
    """Tell if row `n` of a paragraph is text there, and not inside inline code, a link or HTML."""
    sentinel = "\ue000"
    marked = "\n".join([*rows[:n], sentinel + rows[n].replace(sentinel, ""), *rows[n + 1 :]])
    children = parser.parseInline(marked)[0].children or []
    depth = 0
    for child in children:
        depth += child.nesting
        if sentinel in child.content:
            return child.type == "text" and child.content.startswith(sentinel) and depth == 0
    return False


_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')


def split(text: str) -> list[str]:
    """Words of a command line; double quotes hold a name with spaces together."""
    return [re.sub(r"\\(.)", r"\1", m[1]) if m[1] is not None else m[2] for m in _WORD.finditer(text)]


def parse(body: str) -> list[Command]:
    """Commands of a comment, in their order."""
    found = [command for line in command_lines(body) if (command := _command(line))]
    unique = list(dict.fromkeys(found))
    if len(unique) > MAX_COMMANDS:
        return [_mistake("help", f"{len(unique)} commands in one comment; at most {MAX_COMMANDS} are read")]
    return unique


def _command(line: str) -> Command | None:
    head, _, rest = line.partition(" ")
    word = head[1:].rstrip(":,.").lower()
    verb = ALIASES.get(word, word)
    if verb not in VERBS:
        near = process.extractOne(word, [*VERBS, *ALIASES], scorer=fuzz.ratio, score_cutoff=82)
        if "/" in word or near is None:
            return None
        return _mistake(verb, f"no such command; did you mean `/{near[0]}`?")
    words = split(rest)
    return _PARSERS[verb](words) if verb in _PARSERS else Command(verb, tuple(words))


def _rerun(words: list[str]) -> Command:
    names: list[str] = []
    times = 1
    todo = list(words)
    while todo:
        word = todo.pop(0)
        option, _, value = word.partition("=")
        if option in ("--times", "-n"):
            value = value or (todo.pop(0) if todo else "")
            if not value.isascii() or not value.isdecimal() or not 1 <= int(value[:9]) <= MAX_TIMES:
                return _mistake("rerun", f"--times wants a number from 1 to {MAX_TIMES}")
            times = int(value)
        elif word.startswith("--"):
            return _mistake("rerun", f"unknown option {code(word[:40])}; there is only --times")
        else:
            names.append(word)
    if names in (["all"], ["everything"]):
        return Command("rerun", everything=True, times=times)
    if names in (["failed"], ["all-failed"]):  # the second is Paddle's CI's word
        names = []
    if times > 1 and not names:
        return _mistake("rerun", "--times wants the name of a job")
    return Command("rerun", tuple(names), times=times)


def _compare(words: list[str]) -> Command:
    if len(words) != 1 or not re.fullmatch(r"[\w][\w./@^~-]{0,200}", words[0]) or ".." in words[0]:
        return _mistake("compare", "write a branch, tag or commit: `/compare main`")
    return Command("compare", (words[0],))


def _quarantine(words: list[str]) -> Command:
    if len(words) < 2:
        return _mistake("quarantine", "write the test and a reason: `/quarantine tests/a.py::test_b flaky since …`")
    return Command("quarantine", (words[0],), reason=" ".join(words[1:])[:300])


def _wrong(words: list[str]) -> Command:
    names = [w for w in words if "=" not in w or not re.match(r"(category|line)=", w)]
    values = dict(w.split("=", 1) for w in words if re.match(r"(category|line)=", w))
    category, line = values.get("category", ""), values.get("line", "")
    if not names or not re.fullmatch(r"[a-z][a-z0-9_]{1,60}", category):
        return _mistake("wrong", "write the job and the right category: `/wrong NAME category=ID line=N`")
    if line and not re.fullmatch(r"[1-9]\d{0,8}", line):
        return _mistake("wrong", "line wants the number of a line in the log, from 1")
    return Command("wrong", tuple(names), category=category, line=int(line) if line else None)


_PARSERS = {"rerun": _rerun, "compare": _compare, "quarantine": _quarantine, "wrong": _wrong}


@dataclass(frozen=True, slots=True)
class Resolved:
    """Names that were understood, and for the others the nearest that there are."""

    names: tuple[str, ...]
    unknown: tuple[tuple[str, tuple[str, ...]], ...] = ()


def resolve(words: Sequence[str], valid: Sequence[str]) -> Resolved:
    """Match words with names of jobs: case does not count, and a name with spaces may stand unquoted."""
    by_plain = {" ".join(_plain(name).lower().split()): name for name in reversed(valid)}
    names: list[str] = []
    unknown: list[tuple[str, tuple[str, ...]]] = []
    at = 0
    while at < len(words):
        for end in range(len(words), at, -1):
            joined = " ".join(" ".join(words[at:end]).lower().split())
            if joined in by_plain:
                names.append(by_plain[joined])
                at = end
                break
        else:
            near = process.extract(words[at], list(valid), scorer=fuzz.WRatio, limit=3, score_cutoff=50)
            unknown.append((words[at], tuple(name for name, _, _ in near) or tuple(valid[:3])))
            at += 1
    return Resolved(tuple(dict.fromkeys(names)), tuple(unknown))


def canonical(command: Command) -> str:
    """Return the command as one could have written it."""
    parts = [f"/{command.verb}", *(["all"] if command.everything else []), *map(quote_name, command.words)]
    if command.times > 1:
        parts.append(f"--times {command.times}")
    return " ".join(parts)
