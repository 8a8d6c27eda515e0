"""Prints a board as the pull-request comment: Markdown, in one or two languages, within GitHub's size."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from bot import words
from bot.board import NOT_OURS, Board, Evidence, Finding, Row, RunRef, all_rows
from bot.escape import (
    LIMIT,
    Markdown,
    cell_code,
    code,
    excerpt,
    fence,
    html_text,
    is_own,
    link,
    prose,
    sentence,
    shorten,
)
from bot.names import quote_name
from bot.state import MARKER, State, state_of
from matrix.records import Status
from matrix.triage import titles


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of each kind of detail is shown. The parts of the comment themselves never go."""

    rows: int = 40
    folded_rows: int = 20
    evidence: int = 240  # characters of a quoted line
    sentence: int = 400
    excerpt: int = 2500  # bytes around a cause
    findings: int = 6  # a job
    follows: int = 6  # consequences of a finding
    tests: int = 60
    name: int = 120
    compared: int = 10
    history: int = 10


# From everything to the least that still names each failure: each step drops what is least important.
LADDER = (
    Limits(),
    Limits(excerpt=1000, follows=3),
    Limits(excerpt=0, follows=2, tests=40, compared=5),
    Limits(rows=30, folded_rows=8, evidence=160, excerpt=0, findings=2, follows=0, tests=20, compared=3, history=5),
    Limits(20, 4, 120, 240, 0, 1, 0, 10, 80, 1, 3),
    Limits(10, 2, 100, 160, 0, 1, 0, 5, 60, 0, 2),
    Limits(5, 1, 60, 100, 0, 1, 0, 2, 40, 0, 1),
)


def _only_markdown(value: object) -> object:
    """Refuse to print text that nobody escaped: a template's mistake must not become a mention."""
    if isinstance(value, (Markdown, int)):
        return value
    raise TypeError(f"a template prints unescaped text: {value!r:.80}")


def _concat(parts: Iterable[str]) -> Markdown:
    """Join a macro's parts; each has passed `_only_markdown` or is the template's own text."""
    return Markdown("".join(parts))


class _Environment(jinja2.Environment):
    concat = staticmethod(_concat)


@functools.lru_cache(maxsize=1)
def _environment() -> jinja2.Environment:
    environment = _Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        finalize=_only_markdown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
        autoescape=False,
    )
    environment.filters |= {"prose": prose, "code": cell_code, "html": html_text, "fence": fence}
    return environment


class _View:
    """What the template asks for, in one language and within limits. Every method returns Markdown."""

    def __init__(self, board: Board, language: str, limits: Limits) -> None:
        self.board = board
        self.language = language
        self.limits = limits

    def word(self, key: str) -> Markdown:
        return words.word(key, self.language)

    def verdict_line(self) -> Markdown:
        return words.verdict_line(self.board, self.language)

    def whose_line(self) -> Markdown:
        return words.whose_line(self.board, self.language)

    def status(self, row: Row) -> Markdown:
        return words.pick(words.STATUS[row.status], self.language)

    def verdict(self, row: Row) -> Markdown:
        return words.pick(words.VERDICT[row.verdict], self.language)

    def note(self, key: str) -> Markdown:
        return words.pick(words.NOTES[key], self.language)

    def title(self, row: Row) -> Markdown:
        """Return the category's title, or what the status says where there is no cause to name."""
        if not row.findings:
            return self.status(row)
        return prose(titles.title(row.category, self.language))

    def finding_title(self, finding: Finding) -> Markdown:
        return prose(titles.title(finding.category, self.language))

    def fix(self, row: Row) -> Markdown:
        """One sentence: what to do about this row."""
        if row.log == "later":
            return self.word("log_later")
        if row.log == "gone":
            return self.word("log_gone")
        if row.findings:
            found = row.findings[0]
            said = (
                found.fix.get(self.language) or titles.first_step(found.category, self.language) or found.fix.get("en")
            )
            if said and found.category != "unknown":
                return sentence(shorten(said, self.limits.sentence))
            return self.word("read_here" if found.evidence.text else "read_end")
        if row.status is Status.CANCELLED:
            return self.word("cancelled_fix")
        if row.status is Status.BLOCKED:
            return self.word("blocked_fix")
        if row.status is Status.ERROR:
            return self.word("error_fix")
        return Markdown(f"{self.word('no_line')} {self.word('read_end')}")

    def name(self, text: str) -> Markdown:
        return cell_code(shorten(text, self.limits.name))

    def names(self, rows: Sequence[Row]) -> Markdown:
        return _join((self.name(row.job) for row in rows[:8]), len(rows) - 8)

    def quoted(self, evidence: Evidence) -> Markdown:
        return cell_code(shorten(evidence.text, self.limits.evidence))

    def where(self, evidence: Evidence, row: Row) -> Markdown:
        """Where the line stands, as a link if there is a page for it."""
        url = evidence.url or row.url
        label = shorten(evidence.where or row.job, self.limits.name)
        return link(html_text(label), url) if url else cell_code(label)

    def nth(self, attempt: int) -> Markdown:
        return words.nth(attempt, self.language)

    def run_name(self, run: RunRef) -> Markdown:
        label = code(shorten(run.label or run.id, self.limits.name))  # unbroken: an id is copied into commands
        return link(label, run.url) if run.url else label

    def job_name(self, row: Row) -> Markdown:
        label = Markdown(f"<b>{html_text(shorten(row.job, self.limits.name))}</b>")
        return link(label, row.url) if row.url else label

    def rerun(self, row: Row) -> Markdown:
        names = [row.job, *(r.job for r in all_rows(row.folded))] if len(row.folded) < 4 else [row.job]
        if self.board.commands:
            return cell_code("/rerun " + " ".join(map(quote_name, names)))
        return self._matrix_rerun(" ".join(map(shlex.quote, names)))

    def rerun_failed(self) -> Markdown:
        return cell_code("/rerun") if self.board.commands else self._matrix_rerun("--failed")

    def _matrix_rerun(self, what: str) -> Markdown:
        run = self.board.runs[0].id if self.board.runs else "last"
        if run.isdecimal():  # a run of GitHub's, of which `matrix` knows nothing
            return Markdown(f"<code>gh run rerun {run} --failed</code>")
        # Word joiners inside a run's id would be copied into the shell.
        known = Markdown(run) if is_own(run) else html_text(shlex.quote(run))
        return Markdown(f"<code>matrix rerun {known} {html_text(what)}</code>")

    def commit(self, sha: str) -> Markdown:
        if not re.fullmatch(r"[0-9a-f]{7,64}", sha):
            return self.name(sha)
        label = code(sha[:10])
        return link(label, f"{self.board.web}/commit/{sha}") if self.board.web else label

    def excerpt(self, finding: Finding) -> Markdown:
        """Return the lines around the evidence; the quoted line alone where there is no room or no log."""
        text = finding.excerpt if self.limits.excerpt else ""
        return fence(excerpt(text or finding.evidence.text, self.limits.excerpt or self.limits.evidence))


def _join(items: Iterable[Markdown], beyond: int) -> Markdown:
    text = ", ".join(items)
    return Markdown(f"{text}, … +{beyond}" if beyond > 0 else text)


def _groups(board: Board) -> dict[str, tuple[Row, ...]]:
    """Rows that want action, rows that are not this change's, rows that may fail."""
    ours = tuple(r for r in board.rows if not r.allowed and r.verdict not in NOT_OURS)
    return {
        "ours": ours,
        "others": tuple(r for r in board.rows if not r.allowed and r.verdict in NOT_OURS),
        "allowed": tuple(r for r in board.rows if r.allowed),
    }


def failing_tests(board: Board) -> list[tuple[str, str]]:
    """(job, test) of every failing test, each once, in the order of the rows."""
    pairs = ((row.job, test) for row in all_rows(board.rows) for test in row.failing_tests)
    return list(dict.fromkeys(pairs))


def render(board: Board, languages: Sequence[str], limits: Limits, state: State | None = None) -> str:
    """Print a board with the given limits; `state` where it is more than the board's own."""
    views = [_View(board, language, limits) for language in languages]
    tests = failing_tests(board)
    shown = [f"{shorten(job, limits.name)}: {shorten(test, 2 * limits.name)}" for job, test in tests[: limits.tests]]
    if len(tests) > len(shown):
        shown.append(f"… +{len(tests) - len(shown)}")
    text = (
        _environment()
        .get_template("comment.md.j2")
        .render(
            board=board,
            limits=limits,
            views=views,
            first=views[0],
            groups=_groups(board),
            rows=list(all_rows(board.rows)),
            tests=shown,
            n_tests=len(tests),
            marker=Markdown(MARKER),
            state=Markdown((state or state_of(board)).encode()),
        )
    )
    return text.strip() + "\n"


def compose(board: Board, languages: Sequence[str] = ("en",), limit: int = LIMIT, state: State | None = None) -> str:
    """Return the comment with as much detail as fits into `limit` UTF-8 bytes."""
    text = ""
    for limits in LADDER:
        text = render(board, languages, limits, state)
        if len(text.encode()) <= limit:
            return text
    if len(languages) > 1:
        return compose(board, languages[:1], limit, state)
    raise AssertionError(f"the least comment has {len(text.encode())} bytes")
