"""What the signal that ended a job says where its log says nothing."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from matrix.run.causes import cause
from matrix.triage.model import Cause

_MEANS = {
    "SIGSEGV": "segfault",
    "SIGBUS": "bus_error",
    "SIGILL": "illegal_instruction",
    "SIGFPE": "illegal_instruction",
    "SIGABRT": "process_abort",
}
_KILLED = {
    "en": "It was ended by SIGKILL, and nothing here says by whom: see `dmesg` for the kernel's OOM killer, then the "
    "memory limit of its container.",
    "zh": "它被 SIGKILL 终止，此处没有记录由谁发出：请先查看 `dmesg` 中的 OOM killer，再查看容器的内存限制。",
}


def by_signal(causes: Sequence[Cause], job: str, exit_code: int | None, name: str | None) -> list[Cause]:
    """Return the causes, or what the signal means where the log has none for it.

    A signal of the job's own process is known for sure. A shell's 128 + n is only what a child told it, and 137 may as
    well be a program's own code, so that it only adds where to look.
    """
    found = list(causes)
    if any(c.category != "unknown" for c in found):
        return found
    told = _of_shell(exit_code)
    if (name or told) in _MEANS:
        signal_ = name or told
        said = (
            f"{job} was ended by {signal_}"
            if name
            else f"{job} ended with {exit_code}, as a shell does after {signal_}"
        )
        return [cause(_MEANS[signal_ or ""], f"{said}; its log does not say where", job=job)]
    if "SIGKILL" in (name, told):
        return [c.model_copy(update={"fix": _KILLED}) for c in found]
    return found


def _of_shell(exit_code: int | None) -> str | None:
    try:
        return signal.Signals((exit_code or 0) - 128).name
    except ValueError:
        return None
