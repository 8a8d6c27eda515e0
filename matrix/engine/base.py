"""What an engine is: something that runs one attempt of a job and says how it ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from matrix.host.gpus import Card
from matrix.spec.job import Container

# exit: by itself; timeout: at its limit; cancel, kill: the run was ended; lost: its supervisor died.
Why = Literal["exit", "timeout", "cancel", "kill", "lost"]


@dataclass(frozen=True, slots=True)
class Launch:
    """One attempt of a job, ready to start."""

    tag: str  # unique on earth: run, job and attempt
    argv: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]  # whole, but for what the engine itself sets (cards, tag)
    log: Path
    scratch: Path  # folder for what the engine and the job write beside the log
    timeout: float  # seconds
    cards: tuple[Card, ...] = ()
    shared: bool = False  # others may use the same cards at the same time
    container: Container | None = None
    facts: Mapping[str, object] | None = None  # said of the holder of the cards: run, job, until


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended. Times are seconds since the epoch."""

    why: Why
    exit_code: int | None  # 128 + n for signal n, as a shell has it
    signal: str | None
    started: float
    ended: float
    remark: int | None = None  # line of the log where the runner says why it ended the job
    left: tuple[int, ...] = ()  # processes that not even KILL ended
    peak_memory: int | None = None  # bytes
    problem: str | None = None  # what went wrong with the tool itself


@dataclass(frozen=True, slots=True)
class Held:
    """A card that another runner has leased."""

    uuid: str
    until: float | None = None  # when it expects to give it back, seconds since the epoch
    shared: bool = False


class Running(Protocol):
    """An attempt under way."""

    async def wait(self) -> Outcome:
        """Return when no process of the job is left (or not even KILL helps)."""
        ...

    def cancel(self) -> None:
        """Ask for its end: TERM, a while, KILL."""
        ...

    def kill(self) -> None:
        """Ask for its end at once."""
        ...


class Engine(Protocol):
    """Runs attempts on some machine."""

    @property
    def name(self) -> str:
        """Name of the engine, as records have it."""
        ...

    @property
    def cards(self) -> Sequence[Card]:
        """The cards that it may lease."""
        ...

    async def held_by_others(self) -> Collection[Held]:
        """Return the cards that other runners have leased at this moment."""
        ...

    def reserve(self, uuids: Collection[str], tag: str) -> None:
        """Ask other runners to leave cards to a job that waits long; none lets go again."""
        ...

    async def start(self, launch: Launch, leased: Callable[[], None]) -> Running | None:
        """Lease the cards, call `leased`, and start; None when another runner was quicker to lease one of them.

        Raises:
            ToolError: the engine cannot start jobs at all.

        """
        ...
