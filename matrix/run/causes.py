"""Causes that the runner itself is the witness of."""

from __future__ import annotations

from matrix.triage.model import Cause
from matrix.triage.witness import witnessed

_FIX: dict[str, tuple[str, str]] = {
    "job_timeout": (
        "See in the stacks where each process waits; if the time was just too short, raise `timeout`.",
        "请查看各进程堆栈确认卡在何处；若只是时间不足，请调大 timeout。",
    ),
    "nothing_ran": (
        "See why nothing ran: a filter, a wrong path or a skip; the job is green only when its tests or steps ran.",
        "请确认为何没有执行任何内容（过滤条件、路径错误或跳过）；只有真正运行后任务才算通过。",
    ),
    "input_missing": (
        "Put what is missing in place on this host, or correct `inputs` in matrix.yaml.",
        "请在该主机上准备缺失的输入，或修正 matrix.yaml 中的 inputs。",
    ),
    "runner_lost": (
        "Run the job again; see the host's log for why its supervisor ended.",
        "请重新运行该任务，并查看主机日志。",
    ),
    "cancelled": ("Run the job again.", "请重新运行该任务。"),
}


def cause(category: str, text: str, *, job: str, line: int | None = None) -> Cause:
    """Return a cause found by the runner. It counts as the same failure in every run of the job."""
    rule = f"runner-{category.replace('_', '-')}"
    return witnessed(category, text, rule=rule, about=job, fix=_FIX.get(category), line=line)
