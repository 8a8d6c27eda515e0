"""Hand-offs: what a job leaves for others, and whether it can be used."""

from __future__ import annotations

from pathlib import Path

from matrix.handoff import checkpoint, files
from matrix.handoff.problem import Problem
from matrix.spec.job import HandOffKind
from matrix.triage.model import Cause
from matrix.triage.witness import witnessed

__all__ = ["Problem", "cause", "check"]


def check(path: Path | str, kind: HandOffKind = "checkpoint", *, since: float | None = None) -> list[Problem]:
    """Return what keeps a hand-off from being used, an empty list if nothing does.

    `since` (a time as of time.time()) refuses what was all written before it: the left-over of an earlier run.
    """
    path = Path(path)
    problems = checkpoint.check(path, since=since) if kind == "checkpoint" else files.check(path)
    if not problems and since is not None and (newest := _newest(path)) is not None and newest < since:
        return [Problem(str(path), "was left by an earlier run: nothing in it is newer than the start of this job")]
    return problems


def cause(name: str, problems: list[Problem], *, root: Path | None = None) -> Cause:
    """Return the cause `handoff_missing` for a producer that left a hand-off in this state.

    Paths below `root` are shown from there, so that the text is the same on another host.
    """
    file = Path(problems[0].file)
    shown = file.relative_to(root) if root and file.is_relative_to(root) else file
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    text = f"hand-off {name!r} cannot be used: {shown}: {problems[0].what}{more}"
    return witnessed(
        "handoff_missing",
        text,
        rule="handoff-check",
        about=f"{name}\0{file.suffix}",
        fix=(
            f"Find out why the job ended without a usable {name}: look at its log where it saves.",
            f"请查看该任务日志中保存 {name} 的部分，确认为何没有产出可用的结果。",
        ),
    )


def _newest(path: Path) -> float | None:
    """Time of the last write to a file, to any file of a folder, or to any match of a glob."""
    roots = [path] if path.exists() else list(path.parent.glob(path.name)) if path.parent.exists() else []
    found = [f for root in roots for f in ([root, *root.rglob("*")] if root.is_dir() else [root])]
    times = [f.stat().st_mtime for f in found if f.is_file()]
    return max(times, default=None)
