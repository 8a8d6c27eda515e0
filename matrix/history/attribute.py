"""Whose failure is it? A pure function of the failure and of what else was seen, with what was compared.

The runner itself knows that another job is the cause (`follows`), or that no code ran (`gate`). Else four stories are
weighed against each other (`stories.py`): the base branch is broken where this change forked from it, an outage, a
test that fails now and then, and this change. One is told when it is far likelier than the others together and when
there is something to point at; else nobody can tell.

Guards: runs of the same author never count as unrelated, nor do changes to the same files (cherry-picks); a generic
signature is no evidence of likeness; linters, compilers and gates are never flaky; a failure that nothing could
classify is never infra by that alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from matrix.history.evidence import DAY, WINDOW, Evidence, Failure, Observation, Trial, gather
from matrix.history.likelihood import likelihood
from matrix.history.stories import HOST_FAULTS, scores
from matrix.history.stretches import HOUR, Stretch, places
from matrix.records import Verdict, VerdictValue

# How likely a story has to be before it is told. To blame a change wrongly costs its author most.
SURE = {"this-change": 0.97, "base": 0.9, "infra": 0.98, "flaky": 0.9}


def attribute(failure: Failure, history: Iterable[Observation]) -> Verdict:
    """Say whose failure it is.

    `history` may hold anything; only what counts is used. The failure itself may be in it.
    """
    if failure.blocked_by:
        compared = [f"job {name} of this run" for name in failure.blocked_by]
        return Verdict(value="follows", compared=compared, likelihood=1.0)
    if failure.category == "gate_not_met":
        return Verdict(value="gate", compared=["no code was run"], likelihood=1.0)
    e = gather(failure, history)
    found, broken, burst = scores(e)
    value, probability = max(found.items(), key=lambda item: item[1])
    told = {
        "this-change": lambda: _of_change(e),
        "base": lambda: _of_base(e, broken),
        "infra": lambda: _of_infra(e, burst),
        "flaky": lambda: _of_flake(e),
    }[value]()
    if told and probability >= SURE[value]:
        given = cast("VerdictValue", value)
        return Verdict(value=given, compared=told, likelihood=likelihood(given, probability))
    on_base = sum(t.on_base for t in e.trials)
    looked = [f"{on_base} runs without a pull request", f"{len(e.trials) - on_base} runs of other pull requests"]
    return Verdict(value="cannot-tell", compared=[*looked, "nothing in them links the failure or clears the change"])


def _of_change(e: Evidence) -> list[str]:
    passes = len(e.passes)
    if not passes:
        return []  # nothing to compare with
    on_base = [(t.place, t) for t in e.trials if t.on_base and t.place is not None]
    for place in places(e):
        before = [(at, t) for at, t in on_base if at <= place]
        if before and max(before, key=lambda found: found[0])[1].hit:
            return []  # the base branch failed alike where this change forked from it, or may have forked
    hits = [t for t in e.trials if t.hit]
    alike = f"{len(hits)} failed alike, at other times" if hits else "none failed alike"
    compared = [f"{passes} {'run' if passes == 1 else 'runs'} of this job elsewhere passed, {alike}"]
    if e.linked:
        return [f"the failure names {', '.join(e.linked[:3])}, which this change touches", *compared]
    again = {t.o.at for t in e.own if t.hit} | {e.failure.seen.at}
    if max(again) - min(again) < 6 * HOUR:
        return []  # within one outage all tries fail alike
    return [f"failed {len(again)} times in this pull request", *compared]


def _of_base(e: Evidence, broken: Stretch) -> list[str]:
    if e.failure.seen.forked:
        return []  # a branch of its own: earlier runs of it are no runs of the base branch
    on_base = [t for t in broken.hits if t.on_base and not t.o.forked]
    if on_base:
        return _names("fails alike on the base branch", on_base)
    return _names("fails alike on the same base", broken.hits)


def _of_infra(e: Evidence, burst: Stretch) -> list[str]:
    own = e.failure.seen.pr
    told = _names("fails alike", [t for t in burst.hits if own is None or t.o.pr != own])
    told += [f"fails alike in this run: job {job}" for job in sorted(e.same_run)[:5]]
    failed = sorted(job for job, bad in e.siblings.items() if bad and job not in e.same_run)
    if not told and len(failed) >= 3:
        told = [f"failed at that time too: job {job} of this run" for job in failed[:5]]
    if not told and e.failure.category in HOST_FAULTS:
        told = [f"{e.failure.category} is a fault of the host by its nature"]
    return told


def _of_flake(e: Evidence) -> list[str]:
    told = [f"passed on the same commit: {_name(o)}" for o in e.same_commit_passes[:3]]
    alike = [t for t in (*e.elsewhere, *e.trials) if t.hit]
    if told and e.linked and not alike:
        told.append(
            f"seen nowhere else, and names {', '.join(e.linked[:3])} of this change: the flake may come with it"
        )
    return [*told, *_names("comes and goes", alike)]


def _names(what: str, trials: Sequence[Trial], most: int = 5) -> list[str]:
    named = [f"{what}: {_name(t.o)}" for t in trials[-most:]]
    return [*named, f"and {len(trials) - most} more"] if len(trials) > most else named


def _name(o: Observation) -> str:
    branch = f"branch {o.branch}" if o.branch else "on no known branch"
    where = f"pull request {o.pr}" if o.pr is not None else branch
    commit = f" at {o.commit[:10]}" if o.commit else ""
    return f"run {o.run}, job {o.job}, {where}{commit}"


__all__ = ["DAY", "WINDOW", "Failure", "Observation", "attribute"]
