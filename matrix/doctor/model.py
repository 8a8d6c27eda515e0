"""What a check says, and how checks are run side by side with a time limit each."""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class State(StrEnum):
    """How things stand."""

    OK = "ok"
    ABSENT = "absent"  # not there, and nothing that was looked at needs it
    WARNING = "warning"  # runs work, some part of them worse
    BAD = "bad"  # runs, or a part of them, fail
    UNKNOWN = "unknown"  # the check itself could not be made


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found, and what to do about it."""

    name: str
    state: State
    finding: str
    advice: str | None = None

    def __post_init__(self) -> None:
        """Refuse a finding that leaves the reader alone."""
        if self.state is not State.OK and not self.advice:
            raise ValueError(f"{self.name}: say what to do about {self.finding!r}")


@dataclass(frozen=True, slots=True)
class Place:
    """What checks look at."""

    cwd: Path
    env: Mapping[str, str]
    limit: float  # seconds that a program asked by a check may take

    def ask(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a program and return what it says.

        Raises:
            OSError: it is not there.
            subprocess.TimeoutExpired: it did not end in time.

        """
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=self.limit, check=False, cwd=self.cwd,
            stdin=subprocess.DEVNULL, env={**self.env, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
        )  # fmt: skip


Check = Callable[[Place], Finding]


def examine(
    checks: Sequence[tuple[str, Check]],
    place: Place,
    spare: float = 5.0,
    tell: Callable[[list[str]], None] = lambda _: None,
) -> list[Finding]:
    """Run all checks at once and return what they found, in their order.

    A check that hangs, as one does on a dead network disk or a lost card, costs its time limit and no more: its thread
    is left behind. `spare`: seconds beyond the limit, for checks that keep to it themselves. `tell` hears which
    checks have not answered yet.
    """
    answers: queue.Queue[tuple[str, Finding]] = queue.Queue()
    for name, check in checks:
        threading.Thread(target=lambda n=name, c=check: answers.put((n, _made(n, c, place))), daemon=True).start()
    found: dict[str, Finding] = {}
    until = time.monotonic() + place.limit + spare
    while len(found) < len(checks):
        tell([name for name, _ in checks if name not in found])
        try:
            name, finding = answers.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        found[name] = finding
    late = f"no answer within {place.limit:g} s"
    return [
        found.get(name) or Finding(name, State.UNKNOWN, late, "see what hangs; or give it more time: --limit 60")
        for name, _ in checks
    ]


def _made(name: str, check: Check, place: Place) -> Finding:
    try:
        return check(place)
    except subprocess.TimeoutExpired as e:
        said = f"{e.cmd[0]} did not answer within {place.limit:g} s"
        return Finding(name, State.UNKNOWN, said, "see what hangs; or give it more time: --limit 60")
    except Exception as e:  # noqa: BLE001 -- whatever a check meets is a finding: the others must still be told
        return Finding(
            name, State.UNKNOWN, f"the check failed: {type(e).__name__}: {e}", "look at it by hand, and report this"
        )


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1 where something is bad, 3 where something could not be checked, else 0."""
    states = {f.state for f in findings}
    return 1 if State.BAD in states else 3 if State.UNKNOWN in states else 0
