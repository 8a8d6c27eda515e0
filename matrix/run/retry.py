"""Is a failed attempt tried again, where, and when? A question of its own: no category implies it, the policy says so.

Only what the network, the host or another process did to a job is tried again. Wrong results (losses, bits, tests)
never are, whatever the policy says: a second attempt would turn them green by luck.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matrix.records import Status
from matrix.spec.retry import NEVER, Otherwise, RetryRule, Where
from matrix.triage.model import Cause

_STATUSES = (Status.FAILED, Status.ERROR, Status.TIMEOUT)
_STRICTER: tuple[Where, ...] = ("any", "other-card", "other-host")


@dataclass(frozen=True, slots=True)
class Again:
    """The next attempt of a job: where it is to run, and after how many seconds."""

    where: Where = "any"
    otherwise: Otherwise = "any"
    wait: float = 0.0
    reason: str | None = None


def again(
    policy: Sequence[RetryRule],
    status: Status,
    causes: Sequence[Cause],
    tests: Sequence[str],
    *,
    verdict: str = "cannot-tell",
    attempt: int,
    allowed: int,
) -> Again | None:
    """Say how an attempt is tried again; None where it is not.

    `tests` are those that failed in it; `attempt` counts from 1 in this round, of which `allowed` may be further ones.
    Every cause must be one that is tried again; of several, the strictest place and the longest wait hold.
    """
    if attempt > allowed or status not in _STATUSES or not causes or not may_be_tried_again(causes, tests):
        return None
    found: list[Again] = []
    for cause in causes:
        rule = next((r for r in policy if r.fits(cause.category, verdict, attempt)), None)
        if rule is None or not rule.retry:
            return None
        found.append(Again(rule.where, rule.otherwise, rule.pause(attempt - 1), rule.reason))
    return Again(
        max((a.where for a in found), key=_STRICTER.index),
        "no" if any(a.otherwise == "no" for a in found) else "any",
        max(a.wait for a in found),
        found[0].reason,
    )


def may_be_tried_again(causes: Sequence[Cause], tests: Sequence[str]) -> bool:
    """Whether an attempt was kept from its result; one that has a result, a wrong one, is not tried again."""
    return not tests and all(c.category not in NEVER and not c.tests for c in causes)


def asks_for_verdict(policy: Sequence[RetryRule]) -> bool:
    """Whether a policy wants to know what the history says of a failure."""
    return any(rule.verdicts for rule in policy)
