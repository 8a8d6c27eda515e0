"""What people said of diagnoses: kept in the history or in a file of JSON lines, and counted."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from sqlalchemy import Connection, select
from sqlalchemy.dialects import postgresql, sqlite

from matrix.history import schema
from matrix.history.queries import wilson

BRANCH, FILE = "matrix-feedback", "feedback.jsonl"  # where a repository keeps it that has no database


@dataclass(frozen=True, slots=True)
class Feedback:
    """One person's word on one diagnosis. `id` is that of the reaction or of the comment that gave it."""

    id: str
    at: float  # seconds since 1970
    author: str
    url: str
    right: bool
    run_id: str | None = None
    job: str | None = None
    rule: str | None = None  # None with `category`: said of a comment with several diagnoses, so of none of them
    category: str | None = None
    verdict: str | None = None
    confidence: float | None = None
    corrected_category: str | None = None
    corrected_line: int | None = None
    text: str | None = None  # the line that the correction names, else the one that was quoted


def add(c: Connection, items: Iterable[Feedback]) -> int:
    """Store what is not there yet, by id; return how many were new."""
    insert = postgresql.insert if c.dialect.name == "postgresql" else sqlite.insert
    done = 0
    for item in items:
        row = asdict(item) | {"text": item.text.replace("\0", "\N{REPLACEMENT CHARACTER}") if item.text else None}
        done += c.execute(insert(schema.feedback).values(row).on_conflict_do_nothing(index_elements=["id"])).rowcount
    return done


def known(c: Connection, ids: Sequence[str]) -> set[str]:
    """Return those of the ids that are stored."""
    return set(c.execute(select(schema.feedback.c.id).where(schema.feedback.c.id.in_(ids))).scalars())


def given_since(c: Connection, since: float) -> list[Feedback]:
    """Return what was said since a time, oldest first."""
    t = schema.feedback
    rows = c.execute(select(t).where(t.c.at >= since).order_by(t.c.at, t.c.id)).mappings()
    return [Feedback(**row) for row in rows]


def find(c: Connection, ident: str) -> Feedback | None:
    """Return one by its id."""
    row = c.execute(select(schema.feedback).where(schema.feedback.c.id == ident)).mappings().first()
    return Feedback(**row) if row else None


def write_lines(items: Iterable[Feedback]) -> str:
    """Write JSON lines, one an item; what is not known is left out."""
    kept = ({k: v for k, v in asdict(item).items() if v is not None} for item in items)
    return "".join(json.dumps(item, ensure_ascii=False, sort_keys=True) + "\n" for item in kept)


def read_lines(text: str) -> list[Feedback]:
    """Read JSON lines back; a line that is none of ours is passed over, since people can edit a branch."""
    names = {f.name for f in fields(Feedback)}
    found: dict[str, Feedback] = {}
    for line in text.split("\n"):
        try:
            item: Any = json.loads(line)
            read = Feedback(**{k: v for k, v in item.items() if k in names})
            if isinstance(read.id, str) and isinstance(read.at, int | float) and isinstance(read.right, bool):
                found.setdefault(read.id, read)
        except (ValueError, TypeError, AttributeError):
            continue
    return list(found.values())


def newest_word(items: Iterable[Feedback]) -> list[Feedback]:
    """Keep of each person their last word on a diagnosis: who changes their mind, or says it twice, counts once."""
    last: dict[tuple[str, str, str | None, str | None], Feedback] = {}
    for item in sorted(items, key=lambda f: (f.at, f.id)):
        last[item.author, item.url.partition("#")[0], item.rule, item.category] = item
    return list(last.values())


@dataclass(frozen=True, slots=True)
class Precision:
    """How often one category or rule was right, with the 95 % interval (Wilson)."""

    name: str
    right: int
    n: int
    low: float
    high: float


def precision(items: Iterable[Feedback], by: Literal["category", "rule"]) -> list[Precision]:
    """Count by category or rule, those with most votes first. Votes that name no diagnosis are left out."""
    votes: dict[str, list[bool]] = defaultdict(list)
    for item in items:
        if name := getattr(item, by):
            votes[name].append(item.right)
    counted = [Precision(name, sum(v), len(v), *wilson(sum(v), len(v))) for name, v in votes.items()]
    return sorted(counted, key=lambda p: (-p.n, p.name))
