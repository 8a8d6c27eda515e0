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
    "disk_full": (
        "Free space on the disk of the run's folder (`matrix prune`, old checkpoints), then run the job again.",
        "请清理运行目录所在磁盘（`matrix prune`、旧检查点）后重新运行该任务。",
    ),
    "segfault": (
        "Look at the line of Python that the log shows last, if any; else get the native stack (core dump, `gdb`).",
        "请查看日志中最后出现的 Python 代码行（若有）；否则获取原生堆栈（core dump、`gdb`）。",
    ),
    "bus_error": (
        "Check /dev/shm and the mapped files (size, disk) on that host before looking at the code.",
        "请先检查该主机的 /dev/shm 与被映射文件（大小、磁盘），再查看代码。",
    ),
    "illegal_instruction": (
        "Compare the host's CPU flags with what the binary was built for; or look for a division that traps.",
        "请对比主机 CPU 指令集与二进制的编译目标，或查找触发陷阱的除法。",
    ),
    "process_abort": (
        "Read what the process printed last and get its native stack.",
        "请查看进程最后打印的内容并获取原生堆栈。",
    ),
    "cancelled": ("Run the job again.", "请重新运行该任务。"),
}


TOO_FEW_STEPS = (
    "See why training ended early; or, if it did all that it should, correct `expects` in matrix.yaml.",
    "请确认训练为何提前结束；若已完成全部步骤，请修正 matrix.yaml 中的 expects。",
)


def cause(category: str, text: str, *, job: str, line: int | None = None, fix: tuple[str, str] | None = None) -> Cause:
    """Return a cause found by the runner. It counts as the same failure in every run of the job."""
    rule = f"runner-{category.replace('_', '-')}"
    return witnessed(category, text, rule=rule, about=job, fix=fix or _FIX.get(category), line=line)
