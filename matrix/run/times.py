"""How long a job is expected to take: what its last runs took, else what the spec says, else a guess.

The history knows most: of all hosts, by the model of the cards. Where it does not answer soon, the runs of this folder
do.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from matrix.errors import MatrixError, ToolError
from matrix.plan import hosts
from matrix.plan.forecast import SHORTEST, Past
from matrix.plan.hosts import card_suits
from matrix.records import Attempt, Status, load
from matrix.run.folder import RECORD, runs_folder
from matrix.run.patience import PATIENCE, within
from matrix.spec.job import Job

_LAST = 10  # runs of this folder that are looked at
_INSTEAD = "expected times come from the runs of this folder"

Models = Mapping[str, "frozenset[str] | None"]


@dataclass(frozen=True, slots=True)
class Known:
    """What jobs took, and why the history said nothing of it, where that is so."""

    past: Mapping[str, Past]
    problem: str | None = None


def known_times(jobs: Sequence[Job], root: Path, cards: Iterable[str | None], env: Mapping[str, str]) -> Known:
    """Return what jobs took before. `cards`: the models of those on which they are to run, where these are known."""
    models = suited(jobs, list(cards))
    try:
        told, problem = _remembered(root, models, env), None
    except TimeoutError:
        told, problem = {}, f"history: no answer within {PATIENCE:g} s; {_INSTEAD}"
    except (MatrixError, OSError) as e:
        told, problem = {}, f"{e}; {_INSTEAD}"
    rest = {name: wanted for name, wanted in models.items() if name not in told}
    return Known({**told, **(local_times(runs_folder(root), rest) if rest else {})}, problem)


def suited(jobs: Sequence[Job], cards: Sequence[str | None]) -> dict[str, frozenset[str] | None]:
    """Return the models of cards that each job may get: none for a job without cards, None where nobody knows."""
    found: dict[str, frozenset[str] | None] = {}
    for job in jobs:
        fitting = frozenset(m or "" for m in cards if card_suits(hosts.Card("", m), job.cards.model))
        found[job.name] = (fitting or None) if job.cards.count else frozenset()
    return found


def _remembered(root: Path, models: Models, env: Mapping[str, str]) -> dict[str, Past]:
    from matrix.history.durations import durations  # noqa: PLC0415 -- SQLAlchemy, which `--help` does without
    from matrix.history.origin import repository  # noqa: PLC0415
    from matrix.history.remember import default_url  # noqa: PLC0415
    from matrix.history.store import open_for_reading  # noqa: PLC0415

    def ask() -> dict[str, Past]:
        store = open_for_reading(default_url(root / ".matrix", env))
        if store is None:
            return {}
        try:
            with store.begin() as c:
                return durations(c, repository=repository(env) or "", models=models)
        finally:
            store.close()

    return within(PATIENCE, ask)


def local_times(runs: Path, models: Models) -> dict[str, Past]:
    """Return what jobs took in the last runs of this folder."""
    seen: dict[str, list[tuple[str | None, float]]] = {}
    for path in sorted(runs.glob(f"*/{RECORD}"))[-_LAST:]:
        try:
            record = load(path)
        except ToolError:
            continue  # half a run, or one of another version: it only helps to guess
        for job in record.jobs:
            seen.setdefault(job.name, []).extend(
                _took(a) for a in job.attempts if a.status is Status.PASSED and a.ended
            )
    return {name: _past(seen[name], wanted) for name, wanted in models.items() if seen.get(name)}


def _took(attempt: Attempt) -> tuple[str | None, float]:
    used = {card.model for card in attempt.cards}
    seconds = (datetime.fromisoformat(attempt.ended or "") - datetime.fromisoformat(attempt.started)).total_seconds()
    return used.pop() if len(used) == 1 else None, max(seconds, SHORTEST)


def _past(took: Sequence[tuple[str | None, float]], wanted: frozenset[str] | None) -> Past:
    def suits(model: str | None) -> bool:
        return wanted is None or (model in wanted if wanted else model is None)

    times = [seconds for model, seconds in took if suits(model)]
    chosen = times or [seconds for _, seconds in took]
    return Past(statistics.median(chosen), len(chosen), other_cards=not times)
