"""What a state of Slurm's means for an attempt. Values only."""

from __future__ import annotations

from dataclasses import dataclass

from matrix.engine.base import Why
from matrix.engine.slurm.cluster import Entry

ENDED = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "REVOKED",
        "TIMEOUT",
    }
)
# Reasons for which a job would stay pending for ever, and what they mean to who wrote the job.
_NEVER = {
    "AccountNotAllowed": "the account may not use this partition or QOS",
    "BadConstraints": "no node is as $MATRIX_SLURM_ARGS asks",
    "DependencyNeverSatisfied": "it depends on a job that ended badly",
    "InvalidAccount": "there is no such account",
    "InvalidQOS": "there is no such QOS",
    "PartitionNodeLimit": "it asks for more nodes than the partition gives",
    "PartitionTimeLimit": "its `timeout` is longer than the partition allows",
    "QOSNotAllowed": "the QOS may not be used here",
}
# A job in one of these after it has ended was put back into the queue.
_BACK = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
_MOVED = {
    "NODE_FAIL": "its node failed",
    "BOOT_FAIL": "its node did not boot",
    "PREEMPTED": "it was preempted by another job",
    "REVOKED": "another cluster took it",
}


@dataclass(frozen=True, slots=True)
class Fate:
    """How Slurm says that a job ended. `moved`: through no fault of the job, so that it may run elsewhere."""

    why: Why
    text: str
    moved: bool = False


def never_starts(entry: Entry) -> bool:
    """Whether a pending job waits for what will not come."""
    return entry.state == "PENDING" and entry.reason in _NEVER


def never(entry: Entry) -> str:
    """Say why a job would wait for ever."""
    return f"Slurm would let the job wait for ever: {_NEVER[entry.reason]} ({entry.reason})"


def put_back(entry: Entry | None) -> Fate | None:
    """Say that a job that had ended was put back into the queue, where it was."""
    if entry is None or entry.state not in _BACK:
        return None
    return Fate("lost", f"Slurm put the job back into its queue while it ran: {entry.state}", moved=True)


def fate(state: str | None, nodes: str = "", said: str = "", reason: str = "", *, began: bool = True) -> Fate:
    """Tell what became of a job that left no word of its own.

    `said`: the last line of its batch script's output; `reason`: Slurm's; `began`: whether its command was started.
    """
    state = (state or "").split("+")[0].split(" ")[0]
    where = f" ({nodes})" if nodes else ""
    if state in _MOVED:
        return Fate("lost", f"Slurm: {_MOVED[state]}{where}: {state}", moved=True)
    if state == "CANCELLED":
        return Fate("cancel", f"Slurm: the job was cancelled from outside of this run{where}: scancel or its like")
    if state in ("TIMEOUT", "DEADLINE"):
        return Fate("timeout", f"Slurm's own limit ended the job{where}: {state}")
    if state == "OUT_OF_MEMORY":
        return Fate("lost", f"Slurm ended the job for its memory{where}: raise `memory`")
    if not state:
        return Fate("lost", "Slurm does not know the job any more, and it left no result", moved=True)
    why = f" ({reason})" if reason and reason != "None" else ""
    more = f": {said}" if said else ""
    if not began:
        more = more or ": is the folder of the run on that node too, at the same place?"
        return Fate("lost", f"Slurm could not start the job's script{where}: {state}{why}{more}", moved=True)
    return Fate("lost", f"the job's script ended{where} without a result, Slurm says {state}{why}{more}")
