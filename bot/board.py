"""What stands on a pull request's board: plain values, built from a run record or from GitHub's facts, printed by
`comment`.

All text in here is outside text and unescaped. Building and printing are kept apart, so that both are tested with
tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from matrix.records import BAD, FINAL, Status, VerdictValue

NOT_OURS: frozenset[VerdictValue] = frozenset({"base", "infra", "flaky"})


@dataclass(frozen=True, slots=True)
class Evidence:
    """A line that was read, and where it stands."""

    text: str
    where: str = ""  # `logs/qwen-sft/1.log:812`
    url: str | None = None  # of that line, or of the page that holds it


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause in a job's log."""

    category: str
    evidence: Evidence
    rule: str = ""
    confidence: float = 0.0
    signature: str = ""
    rank: int | None = None
    fix: Mapping[str, str] = field(default_factory=dict)  # language -> a sentence
    tests: tuple[str, ...] = ()
    consequences: tuple[Evidence, ...] = ()
    excerpt: str = ""  # the lines around the evidence


@dataclass(frozen=True, slots=True)
class KnownFact:
    """Something that a job reported of itself."""

    key: str
    value: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One job that did not pass, with what follows from it folded in."""

    job: str
    suite: str
    status: Status
    attempt: int = 1
    findings: tuple[Finding, ...] = ()
    verdict: VerdictValue = "cannot-tell"
    compared: tuple[str, ...] = ()
    failing_tests: tuple[str, ...] = ()
    facts: tuple[KnownFact, ...] = ()
    needs: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()
    folded: tuple[Row, ...] = ()  # jobs that were blocked by, or failed because of, this one
    allowed: bool = False
    reason: str = ""
    url: str | None = None
    log: str = "read"  # read | later (still running) | gone

    @property
    def category(self) -> str:
        """Category of the likeliest cause; `unknown` if nothing was found."""
        return self.findings[0].category if self.findings else "unknown"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that has not ended yet."""

    job: str
    suite: str
    running: bool
    place: int | None = None  # in the queue, from 1
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Past:
    """How an earlier attempt ended."""

    run: str
    attempt: int
    failed: tuple[str, ...]
    passed: int
    url: str | None = None


@dataclass(frozen=True, slots=True)
class RunRef:
    """A run that the board speaks of. By `done`, its finished jobs, a staler view of the same attempt is seen."""

    id: str
    attempt: int = 1
    done: int = 0
    label: str = ""
    url: str | None = None
    status: Status = Status.FAILED
    key: str = ""  # what a newer run takes the place of: the workflow and its event


@dataclass(frozen=True, slots=True)
class Board:
    """Everything that one comment says."""

    head: str | None
    base: str | None = None
    runs: tuple[RunRef, ...] = ()
    rows: tuple[Row, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    counts: Mapping[Status, int] = field(default_factory=dict)
    history: tuple[Past, ...] = ()
    quarantined: tuple[tuple[str, str], ...] = ()  # (job, its failures that do not count)
    notes: tuple[str, ...] = ()  # ids of sentences in `words.NOTES`
    commands: bool = True  # False: no bot listens, show the command line's own re-run
    web: str | None = None  # the repository's page, for links to commits

    @property
    def total(self) -> int:
        """Jobs that were meant to run."""
        return sum(n for status, n in self.counts.items() if status is not Status.SKIPPED)

    @property
    def colour(self) -> str:
        """`red`, `pending`, `green`, `grey` (cancelled) or `none` (nothing ran)."""
        red = (Status.FAILED, Status.TIMEOUT, Status.BLOCKED, Status.ERROR)
        if any(not row.allowed and row.status in red for row in all_rows(self.rows)):
            return "red"
        if any(self.counts.get(s, 0) for s in Status if s not in FINAL):
            return "pending"
        if any(not row.allowed and row.status is Status.CANCELLED for row in all_rows(self.rows)):
            return "grey"
        return "green" if self.counts.get(Status.PASSED, 0) else "none"


def all_rows(rows: Iterable[Row]) -> Iterable[Row]:
    """Every row with those that are folded into it."""
    for row in rows:
        yield row
        yield from all_rows(row.folded)


def _roots(row: Row, by_name: Mapping[str, Row]) -> list[str]:
    """Names of the failed jobs that this row follows from, nearest first."""
    if row.status is Status.BLOCKED and row.blocked_by:
        return [name for name in row.blocked_by if name in by_name]
    if row.status is not Status.BLOCKED and row.verdict != "follows":
        return []
    found: list[str] = []
    todo = list(row.needs)
    seen = {row.job}
    while todo:
        name = todo.pop(0)
        if name in seen or name not in by_name:
            continue
        seen.add(name)
        found.append(name)
        todo += by_name[name].needs
    return found


def fold_cascades(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Put each row that only follows from another under its root, so that a chain is one failure."""
    by_name = {row.job: row for row in rows}
    parents: dict[str, str] = {}
    for row in rows:
        if roots := [name for name in _roots(row, by_name) if name != row.job]:
            parents[row.job] = roots[0]

    def root_of(name: str) -> str:
        seen = {name}
        while (parent := parents.get(name)) and parent not in seen:
            seen.add(parent)
            name = parent
        # A ring of jobs that all follow from each other has no root: whoever comes first stands for it.
        return min(seen, key=list(by_name).index) if parents.get(name) in seen else name

    folded: dict[str, list[Row]] = {}
    for row in rows:
        if (root := root_of(row.job)) != row.job:
            folded.setdefault(root, []).append(row)
    return tuple(replace(row, folded=tuple(folded.get(row.job, ()))) for row in rows if root_of(row.job) == row.job)


_ORDER: tuple[VerdictValue, ...] = ("this-change", "cannot-tell", "gate", "follows", "base", "infra", "flaky")


def by_importance(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Say what the reader must act on first: not allowed to fail, perhaps theirs, failed before cancelled, more
    blocked jobs.
    """
    return tuple(
        sorted(
            rows,
            key=lambda r: (
                r.allowed,
                _ORDER.index(r.verdict),
                r.status is Status.CANCELLED,
                r.log != "read",
                -len(r.folded),
                r.category == "unknown",
            ),
        )
    )


def is_bad(status: Status) -> bool:
    """Tell for a job that wants a row."""
    return status in BAD
