"""How an attempt ended: from a supervisor's last event to an outcome."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from matrix.engine.base import Outcome, Why

LOG_NOT_WHOLE = "the log is not whole"  # begins the problem of an attempt whose output could not all be written


def ended_unseen(scratch: Path) -> Outcome | None:
    """Return how an attempt ended whose runner was killed before it could say so; None if it did not end by itself."""
    event = read_result(scratch / "result.json")
    return outcome(event, 0.0) if event and event.get("why") in ("exit", "timeout") else None


def outcome(event: dict[str, object], started: float) -> Outcome:
    """Turn a supervisor's last event into an outcome."""
    code, name = event.get("exit_code"), None
    if isinstance(code, int) and code < 0:
        code, name = 128 - code, signal_name(-code)
    why: Why = event["why"]  # type: ignore[assignment]
    ended, began, remark, left = event["ended"], event.get("started", started), event.get("remark"), event.get("left")
    peak, problem, lost = event.get("peak_memory"), event.get("problem"), event.get("log_problem")
    assert isinstance(ended, float)
    assert isinstance(began, float)
    return Outcome(
        why=why,
        exit_code=code if isinstance(code, int) else None,
        signal=name,
        started=began,
        ended=ended,
        remark=remark if isinstance(remark, int) else None,
        left=tuple(left) if isinstance(left, list) else (),
        peak_memory=peak if isinstance(peak, int) else None,
        problem=str(problem) if problem else f"{LOG_NOT_WHOLE}: {lost}" if lost else None,
    )


def signal_name(number: int) -> str:
    """Return the name of a signal; `SIG37` for one without."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def read_result(path: Path) -> dict[str, object] | None:
    """Read what a supervisor wrote as its last word."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
