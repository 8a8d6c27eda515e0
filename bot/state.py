"""The machine state in a comment's last hidden line: what the board spoke of, so that a staler writer sees that it is
staler.

Only `[0-9a-z=,;:.-]` may stand in it (names never do): nothing that a stranger wrote can end the HTML comment or
pretend to be state.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from bot.board import Board, all_rows

MARKER = "<!-- matrix-report:v1 -->"
_LINE = re.compile(r"<!-- ([0-9a-z=,;:.-]+) -->\s*\Z")
_MAX_JOBS = 300


@dataclass(frozen=True, slots=True)
class State:
    """What a comment last said.

    `runs`: digest of a workflow -> (run id, attempt, finished jobs); `jobs`: digest of a name -> (status, attempt,
    signature).
    """

    head: str = ""
    colour: str = "none"
    settled: str = "none"  # the last colour that was a result: red or green
    runs: Mapping[str, tuple[str, int, int]] = field(default_factory=dict)
    jobs: Mapping[str, tuple[str, int, str]] = field(default_factory=dict)
    said: str = ""  # the one diagnosis, for votes: `category:rule:verdict:confidence`; empty if there are several

    def encode(self) -> str:
        """Return the hidden line."""
        runs = ",".join(f"{k}:{i}:{a}:{d}" for k, (i, a, d) in sorted(self.runs.items()))
        jobs = ",".join(f"{k}:{s}:{a}:{g}" for k, (s, a, g) in sorted(self.jobs.items())[:_MAX_JOBS])
        line = f"v=1;head={self.head};colour={self.colour};settled={self.settled};runs={runs};jobs={jobs}"
        line += f";said={self.said}" if self.said else ""
        assert re.fullmatch(r"[0-9a-z=,;:.-]+", line), line
        return f"<!-- {line} -->"

    def is_ahead_of(self, other: State) -> bool:
        """Tell if this view saw more of some run than the other did, for the same head."""
        return self.head == other.head and any(
            _age(seen) > _age(other.runs.get(key, ("", 0, 0))) for key, seen in self.runs.items()
        )


def _age(run: tuple[str, int, int]) -> tuple[int, str, int, int]:
    """Order of runs of one workflow: ids grow, then attempts, then finished jobs."""
    return (len(run[0]), *run)


def name_digest(name: str) -> str:
    """Twelve hex digits that stand for a job's name."""
    return hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:12]


def _word(text: str) -> str:
    """Return the part of a word that state may hold."""
    return re.sub(r"[^0-9a-z.-]", "", text.lower())[:64]


def state_of(board: Board) -> State:
    """Return the state that a comment with this board carries."""
    return State(
        head=_word(board.head or ""),
        colour=board.colour,
        settled=board.colour if board.colour in ("red", "green") else "none",
        runs={name_digest(r.key): (_word(r.id), r.attempt, r.done) for r in board.runs},
        jobs={
            name_digest(f"{row.suite}\n{row.job}"): (
                _word(row.status),
                row.attempt,
                _word(row.findings[0].signature) if row.findings else "",
            )
            for row in all_rows(board.rows)
        },
        said=_said(board),
    )


def _said(board: Board) -> str:
    """Say what a vote on the comment is about: with one diagnosis it is clear, with several it is not."""
    if len(board.rows) != 1 or not board.rows[0].findings:
        return ""
    row, found = board.rows[0], board.rows[0].findings[0]
    category = _word(found.category.replace("_", "-"))  # an id has no `-`: read back without loss
    return f"{category}:{_word(found.rule)}:{row.verdict}:{found.confidence:.2f}"


def is_report(body: str) -> bool:
    """Tell if a comment's first line is our marker."""
    return body.lstrip("\ufeff").split("\n", 1)[0].strip() == MARKER


def parse_state(body: str) -> State | None:
    """Read the state back; None if the comment carries none that we wrote."""
    found = _LINE.search(body)
    if not is_report(body) or not found:
        return None
    parts = dict(part.partition("=")[::2] for part in found[1].split(";"))
    if parts.get("v") != "1":
        return None
    try:
        runs = {k: (i, int(a), int(d)) for k, i, a, d in (r.split(":") for r in _items(parts.get("runs")))}
        jobs = {k: (s, int(a), g) for k, s, a, g in (j.split(":") for j in _items(parts.get("jobs")))}
    except ValueError:
        return None
    colours = parts.get("colour", "none"), parts.get("settled", "none")
    return State(parts.get("head", ""), *colours, runs, jobs, parts.get("said", ""))


def _items(text: str | None) -> list[str]:
    return text.split(",") if text else []
