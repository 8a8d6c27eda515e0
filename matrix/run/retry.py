"""Is a failed attempt tried again? A question of its own: no category implies a retry, this policy does.

Only what the network, the host or another process did to a job is tried again. Wrong results (losses, bits, tests)
never are: a retry would turn them green by luck.
"""

from __future__ import annotations

from collections.abc import Sequence

from matrix.records import Status
from matrix.triage.model import Cause

RETRIED = frozenset(
    {
        "collective_connection_reset",
        "collective_timeout",
        "driver_mismatch",
        "hub_offline",
        "nccl_error",
        "network_failure",
        "port_in_use",
        "rendezvous_timeout",
        "runner_lost",
    }
)


def retried(status: Status, causes: Sequence[Cause], done: int, allowed: int) -> bool:
    """Whether another attempt is made after `done` attempts, when the job asks for `allowed` extra ones."""
    if done > allowed or status not in (Status.FAILED, Status.ERROR):
        return False
    return bool(causes) and all(c.category in RETRIED for c in causes)
