"""From commands and facts to intended actions and a one-line answer each: pure functions."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot.board import Board, all_rows
from bot.commands import HELP, VERBS, Command, resolve
from bot.comment import compose
from bot.escape import Markdown, code, prose
from bot.facts import Facts
from bot.intents import Cancel, Intent, Rerun
from bot.quarantining import Wish, change_for, open_pull, patch_text
from bot.runs import Job, Run, stored_id
from matrix.errors import UsageError
from matrix.history.feedback import Feedback
from matrix.records import Status
from matrix.triage import titles

FAILED = frozenset({Status.FAILED, Status.TIMEOUT, Status.CANCELLED, Status.ERROR})


@dataclass(frozen=True, slots=True)
class Answer:
    """What one command leads to. `text` is Markdown; `spent` counts re-runs against the budget."""

    ok: bool
    text: Markdown
    intents: tuple[Intent, ...] = ()
    spent: int = 0
    state: str = ""  # hidden, for the bot itself: letters, digits and `_=;.-`
    feedback: Feedback | None = None  # a correction; who said it, when and where is filled in by whom it was said to


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler may look at."""

    facts: Facts
    board: Board
    user: str
    today: str  # 2026-12-01
    url: str = ""  # of the comment with the command
    quarantine: str = ""  # text of the quarantine file on the base branch
    opens_pull: bool = False  # /quarantine opens a pull request
    other: Facts | None = None  # of /compare's commit
    other_ref: str = ""


def answer(command: Command, context: Context) -> Answer:
    """Say what to do for a command whose giver may give it."""
    if command.error:
        return Answer(False, command.error)
    return _HANDLERS[command.verb](command, context)


def _no(text: str) -> Answer:
    return Answer(False, Markdown(text))


def _unknown(unknown: Sequence[tuple[str, tuple[str, ...]]]) -> Answer:
    word, near = unknown[0]
    there = ", ".join(code(name) for name in near) or "none"
    return _no(f"no job {code(word)}; nearest: {there}")


def _rerun(command: Command, context: Context) -> Answer:
    facts = context.facts
    if command.words:
        return _rerun_names(command, context)
    done = [run for run in facts.runs if run.completed]
    wanted = (
        done if command.everything else [r for r in done if any(j.status in FAILED for j in facts.jobs.get(r.id, []))]
    )
    busy = [run for run in facts.runs if not run.completed]
    if not wanted:
        if busy:
            return _no(f"{_names(busy)} still running; a run can be re-run once it has ended")
        return _no("nothing failed at this head" if not command.everything else "no run at this head")
    if too_often := [run for run in wanted if run.attempt > 50]:
        return _no(f"{_names(too_often)}: GitHub re-runs a run at most 50 times; push a commit")
    count = sum(j.status in FAILED or command.everything for r in wanted for j in facts.jobs.get(r.id, []))
    intents = tuple(Rerun(r.id, r.attempt, "all" if command.everything else "failed") for r in wanted)
    later = f"; {_names(busy)} still running" if busy else ""
    return Answer(True, Markdown(f"re-running {count} job{'s' * (count != 1)} of {_names(wanted)}{later}"), intents, 1)


def _names(runs: Sequence[Run]) -> str:
    return ", ".join(code(run.workflow) for run in runs[:5]) + (f" and {len(runs) - 5} more" if len(runs) > 5 else "")


def _rerun_names(command: Command, context: Context) -> Answer:
    facts = context.facts
    resolved = resolve(command.words, facts.names)
    if resolved.unknown:
        return _unknown(resolved.unknown)
    targets: dict[int, tuple[Run, Job]] = {}
    for name in resolved.names:
        for run, job in facts.job_named(name):
            targets[job.id] = (run, job)
    if not targets:
        return _no(f"{code(resolved.names[0])} belongs to no job that GitHub could re-run; use {code('/rerun')}")
    busy = [run for run, _ in targets.values() if not run.completed]
    if busy:
        return _no(f"{_names(busy)} still running; a run can be re-run once it has ended")
    # GitHub takes one re-run of a run at a time: several failed jobs of one run go together.
    by_run: dict[int, list[tuple[Run, Job]]] = {}
    for run, job in targets.values():
        by_run.setdefault(run.id, []).append((run, job))
    intents: list[Intent] = []
    for pairs in by_run.values():
        run, job = pairs[0]
        if len(pairs) == 1:
            intents.append(Rerun(run.id, run.attempt, "job", job.id))
        else:
            all_failed = all(j.status in FAILED for _, j in pairs)
            intents.append(Rerun(run.id, run.attempt, "failed" if all_failed else "all"))
    names = ", ".join(code(name) for name in resolved.names[:8])
    if command.times > 1:
        text = f"re-running {names} up to {command.times} times: the next one starts when this one has ended"
        return Answer(True, Markdown(text), tuple(intents), command.times, _probe_state(targets, command.times))
    return Answer(True, Markdown(f"re-running {names}"), tuple(intents), 1)


def _probe_state(targets: dict[int, tuple[Run, Job]], times: int) -> str:
    """Say what the bot must know when the run ends, to start the next try: run, job's digest, attempt to reach."""
    parts = [f"{run.id}.{run.attempt + times}.{job_digest(job.name)}" for run, job in targets.values()]
    return "probe=" + "_".join(parts)


def job_digest(name: str) -> str:
    """Stands for a job's name in hidden state."""
    return hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:12]


def _explain(command: Command, context: Context) -> Answer:
    board = context.board
    rows = list(all_rows(board.rows))
    if not rows:
        return Answer(True, Markdown("nothing failed at this head"))
    if command.words:
        resolved = resolve(command.words, [row.job for row in rows])
        if resolved.unknown:
            return _unknown(resolved.unknown)
        rows = [row for row in rows if row.job in resolved.names]
    shown = replace(board, rows=tuple(rows), history=(), waiting=(), notes=())
    text = compose(shown, ("en",), 30_000)
    body = "\n".join(text.splitlines()[1:-1])  # without marker and state
    return Answer(True, Markdown(f"{len(rows)} job{'s' * (len(rows) != 1)}\n\n{body}"))


def _compare(command: Command, context: Context) -> Answer:
    if context.other is None:
        return _no(f"no commit {code(command.words[0])}")
    here = {job.name: job.status for jobs in context.facts.jobs.values() for job in jobs}
    there = {job.name: job.status for jobs in context.other.jobs.values() for job in jobs}
    both = [name for name in here if name in there]
    if not both:
        return _no(f"no job ran both here and at {code(context.other_ref)}")
    bad = [n for n in both if here[n] in FAILED]
    alike = [n for n in bad if there[n] in FAILED]
    only = [n for n in bad if there[n] is Status.PASSED]
    parts = [f"{len(both)} jobs ran both here and at {code(context.other_ref)} ({code(context.other.pull.head[:10])})"]
    parts += [f"failed in both: {', '.join(code(n) for n in alike[:10])}"] if alike else []
    parts += [f"failed only here: {', '.join(code(n) for n in only[:10])}"] if only else []
    parts += ["nothing failed here"] if not bad else []
    return Answer(True, Markdown("; ".join(parts)))


def _quarantine(command: Command, context: Context) -> Answer:
    pull = context.facts.pull
    wish = Wish(command.words[0], context.user, command.reason, context.url, context.today)
    try:
        change = change_for(wish, context.quarantine)
    except UsageError as e:
        return _no(prose(e.message))
    intents = (open_pull(wish, change, pull.base_ref),) if context.opens_pull else ()
    return Answer(True, patch_text(change), intents)


def _cancel(command: Command, context: Context) -> Answer:
    del command
    running = [run for run in context.facts.runs if not run.completed]
    if not running:
        return _no("nothing runs at this head")
    return Answer(True, Markdown(f"cancelling {_names(running)}"), tuple(Cancel(run.id) for run in running))


def _wrong(command: Command, context: Context) -> Answer:
    rows = list(all_rows(context.board.rows))
    resolved = resolve(command.words, [row.job for row in rows])
    if resolved.unknown:
        return _unknown(resolved.unknown)
    if (known := titles.known()) and command.category not in known:
        near = resolve([command.category], sorted(known)).unknown
        return _no(f"no category {code(command.category)}; nearest: {', '.join(code(n) for n in near[0][1])}")
    row = next(row for row in rows if row.job == resolved.names[0])
    said = row.findings[0] if row.findings else None
    state = ";".join(
        [
            f"job={job_digest(row.job)}", f"category={command.category}", f"line={command.line or ''}",
            f"said={row.category}", f"rule={re.sub('[^0-9a-z_.-]', '', said.rule) if said else ''}",
            f"verdict={row.verdict}", f"confidence={said.confidence if said else 0:.2f}",
        ]
    )  # fmt: skip
    text = f"noted for {code(row.job)}: {code(command.category)} instead of {code(row.category)}"
    feedback = Feedback(
        id="",
        at=0.0,
        author=context.user,
        url="",
        right=command.category == row.category and command.line is None,
        run_id=_run_of(row.job, context.facts),
        job=row.job[:300],
        rule=said.rule if said else None,
        category=row.category,
        verdict=row.verdict,
        confidence=said.confidence if said else None,
        corrected_category=command.category,
        corrected_line=command.line,
        text=said.evidence.text if said else None,
    )
    return Answer(True, Markdown(text), state=f"wrong;{state}", feedback=feedback)


def _run_of(name: str, facts: Facts) -> str | None:
    """Return the id of the run that a row speaks of: the matrix's own, else the workflow's."""
    inner = [a.record.id for a in facts.artifacts if any(j.name == name for j in a.record.jobs)]
    return inner[0] if inner else next((stored_id(run.id, run.attempt) for run, _ in facts.job_named(name)), None)


def _help(command: Command, context: Context) -> Answer:
    del command, context
    rows = [f"| {code(VERBS[verb]).replace('|', '&#124;')} | {en} | {zh} |" for verb, (en, zh) in HELP.items()]
    table = "\n".join(["| | | |", "|---|---|---|", *rows])
    return Answer(True, Markdown(f"commands stand at the beginning of a line\n\n{table}"))


_HANDLERS = {
    "rerun": _rerun,
    "explain": _explain,
    "compare": _compare,
    "quarantine": _quarantine,
    "cancel": _cancel,
    "wrong": _wrong,
    "help": _help,
}
