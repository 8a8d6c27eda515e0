"""A concrete job: what remains of the spec once parameters are expanded and shards are cut. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

HandOffKind = Literal["checkpoint", "files"]


@dataclass(frozen=True, slots=True)
class Cards:
    """What a job asks of the host's accelerators. `count` 0 means a CPU job."""

    count: int = 0
    model: str | None = None  # such as "H20"; None takes any
    exclusive: bool = True


@dataclass(frozen=True, slots=True)
class Container:
    """Image that the command runs in, by docker or podman."""

    image: str
    shm: int | None = None  # bytes
    mounts: tuple[str, ...] = ()  # as for --volume


@dataclass(frozen=True, slots=True)
class HandOff:
    """Something a job leaves for others. `path` is relative to the job's working folder unless absolute."""

    name: str
    path: str
    kind: HandOffKind = "checkpoint"


@dataclass(frozen=True, slots=True)
class Inputs:
    """What must be there before the job starts."""

    paths: tuple[str, ...] = ()
    hub: tuple[str, ...] = ()  # repositories that the local hub cache must hold
    disk: int | None = None  # free bytes in the working folder


@dataclass(frozen=True, slots=True)
class LossBaseline:
    """Losses to compare with. `file` may hold `{card}`, which becomes the card model (`cpu` without cards)."""

    file: str
    rtol: float = 0.0
    atol: float = 0.0
    steps: tuple[int, ...] = ()  # empty: all steps of the baseline
    record: str | None = None  # a file the job writes; None reads the job's log


@dataclass(frozen=True, slots=True)
class Limit:
    """A measured quantity and how far above its baseline it may be. `value` is in seconds or bytes."""

    value: float
    tolerance: float = 0.05


@dataclass(frozen=True, slots=True)
class Expects:
    """What a job must have done for its exit 0 to count."""

    tests: int | None = None  # at least this many tests ran
    steps: int | None = None  # training reached this step


@dataclass(frozen=True, slots=True)
class AllowFailure:
    """Why a failure of this job does not fail the run, and until when (ISO date)."""

    reason: str
    until: str


@dataclass(frozen=True, slots=True)
class Companion:
    """A repository checked out beside this one: part of the run's identity."""

    repo: str  # owner/name, a URL or a local path
    ref: str


@dataclass(frozen=True, slots=True)
class Job:
    """One process tree to run. Names are unique in a matrix; `needs` and `produces` speak of hand-off names."""

    name: str
    suite: str
    command: tuple[str, ...]  # argv; a shell line of the spec is ("bash", "-c", line)
    pytest: bool = False  # the runner adds --junitxml and reads the result
    cards: Cards = Cards()
    nodes: int | None = None  # hosts that it is spread over, evenly; None: as few as can be
    memory: int | None = None  # bytes
    timeout: float = 1800.0  # seconds
    expect: float | None = None  # seconds, until history knows better
    env: dict[str, str] = field(default_factory=dict)
    cwd: str = "."  # relative to the folder of matrix.yaml
    container: Container | None = None
    inputs: Inputs = Inputs()
    base: str = ""  # its name in the spec, without parameters and shard
    parameters: dict[str, str] = field(default_factory=dict)
    overrides: dict[str, dict[str, object]] = field(
        default_factory=dict
    )  # config file -> {dotted key: value}, applied to a copy
    shard: tuple[int, int] | None = None  # (index from 1, of)
    produces: tuple[HandOff, ...] = ()
    needs: tuple[str, ...] = ()
    loss: LossBaseline | None = None
    time: Limit | None = None
    peak_memory: Limit | None = None
    expects: Expects = Expects()
    retries: int = 0
    allow_failure: AllowFailure | None = None
    paths: tuple[str, ...] = ()
    companions: tuple[Companion, ...] = ()
    tags: tuple[str, ...] = ()
    line: int = 0  # where the job stands in matrix.yaml
    description: str | None = None

    @property
    def whole(self) -> str:
        """Its name without the shard: what all shards of one suite have in common."""
        return self.name.rsplit("@shard=", 1)[0] if self.shard else self.name

    def allowed(self, today: str) -> bool:
        """Whether a failure does not count on this day (ISO date): allowed, and the day is not past."""
        return self.allow_failure is not None and today <= self.allow_failure.until
