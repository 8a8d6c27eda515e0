"""What an engine is: something that runs one attempt of a job and says how it ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from matrix.host.gpus import Card
from matrix.spec.job import Cards, Container

# exit: by itself; timeout: at its limit; cancel, kill: the run was ended; lost: its supervisor or its node died;
# refused: the queue never takes such a job.
Why = Literal["exit", "timeout", "cancel", "kill", "lost", "refused"]


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
    # For engines that choose the cards themselves:
    want: Cards = field(default_factory=Cards)
    nodes: int | None = None  # None: as few as can be
    memory: int | None = None  # bytes a node
    exclude: tuple[str, ...] = ()  # nodes that it is not to run on
    # Called once a queue has let it begin: on which nodes, with which cards, and when (seconds since the epoch).
    began: Callable[[Sequence[str], Sequence[Card], float], None] | None = field(default=None, compare=False)


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
    cards: tuple[Card, ...] = ()  # that the engine chose itself
    hosts: tuple[str, ...] = ()  # nodes that it ran on, where there are several
    moved: bool = False  # the host or the queue took its place away: it may run elsewhere
    unfit: tuple[str, ...] = ()  # nodes that did not have what it was promised


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
    def queue(self) -> bool:
        """Whether it has a queue of its own: then every ready job is started at once, and it chooses the cards."""
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

    def elsewhere(self, want: Cards, nodes: int | None, hosts: Collection[str]) -> bool:
        """Whether a job could run on other hosts than these."""
        ...

    async def start(self, launch: Launch, leased: Callable[[], None]) -> Running | None:
        """Lease the cards, call `leased`, and start; None when another runner was quicker to lease one of them.

        Raises:
            ToolError: the engine cannot start jobs at all.

        """
        ...

    async def adopt(self, launch: Launch) -> Running | None:
        """Take up an attempt that a killed runner left; None where none of it can be left."""
        ...

    def close(self) -> None:
        """Let go of what serves jobs; those that run are not ended."""
        ...
