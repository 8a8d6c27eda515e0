"""What may stand in a matrix file. Values only; `load` reads them, `expand` makes concrete jobs of them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from matrix.spec.document import plain
from matrix.spec.fields import (
    Date,
    Duration,
    HandOffName,
    Line,
    Name,
    OneOrMany,
    RelativePath,
    Short,
    Size,
    Text,
    one_or_many,
)
from matrix.spec.globs import check_glob
from matrix.spec.retry import RetrySpec, ShortRetrySpec

_STRING = {"type": "string"}
_MAX_CARDS = 1024


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class CardsSpec(_Model):
    """The accelerators that a job takes."""

    count: int = Field(1, ge=0, le=_MAX_CARDS, description="How many cards; 0 for a job of the CPU.")
    model: Line | None = Field(None, description="Such as H20; any card when not given.")
    exclusive: bool = Field(True, description="false: other such jobs may use the same card at the same time.")


class ContainerSpec(_Model):
    """The image that the command runs in, by docker or podman."""

    image: Line = Field(description="Name of the image, as `docker run` takes it.")
    shm: Size | None = Field(None, description="Size of /dev/shm.")
    mounts: list[Line] = Field(default_factory=list, description="As for `docker run --volume`.")

    @field_validator("mounts")
    @classmethod
    def _mounts(cls, mounts: list[str]) -> list[str]:
        for mount in mounts:
            source, _, target = mount.partition(":")
            if not source or not target.startswith("/"):
                raise ValueError(f"bad mount {mount!r}: write SOURCE:/TARGET or SOURCE:/TARGET:ro")
        return mounts


class InputsSpec(_Model):
    """What must be there before a job starts."""

    paths: list[Line] = Field(default_factory=list, description="Files or folders.")
    hub: list[Line] = Field(default_factory=list, description="Repositories that the local hub cache must hold.")
    disk: Size | None = Field(None, description="Free space in the working folder.")

    @field_validator("hub")
    @classmethod
    def _hub(cls, hub: list[str]) -> list[str]:
        for name in hub:
            if not re.fullmatch(r"(datasets/)?[\w.-]+(/[\w.-]+)?", name):
                raise ValueError(f"bad hub repository {name!r}: write OWNER/NAME or datasets/OWNER/NAME")
        return hub


class HandOffSpec(_Model):
    """Something that a job leaves for others."""

    path: Line = Field(description="File or folder, relative to `cwd`; must be there, newer than the start and sound.")
    name: HandOffName | None = Field(None, description="What `needs` says; the job's own name when not given.")
    kind: Literal["checkpoint", "files"] = Field(
        "checkpoint", description="checkpoint: its tensors are looked at; files: that they are there and not empty."
    )


class LossSpec(_Model):
    """Losses that must come out."""

    file: Line = Field(description="Lines of `step loss`; {card} becomes the model of the card.")
    rtol: float = Field(0.0, ge=0, description="Relative tolerance; 0 with `atol` 0 means equal to the bit.")
    atol: float = Field(0.0, ge=0, description="Absolute tolerance.")
    steps: list[int] = Field(default_factory=list, description="Only these steps; all when empty.")
    record: Line | None = Field(None, description="A file that the job writes; its log when not given.")


class TimeLimitSpec(_Model):
    """A measured time and how far above it a job may be."""

    value: Duration = Field(description="As it was measured.")
    tolerance: float = Field(0.05, ge=0, description="Share above it that is allowed.")


class MemoryLimitSpec(_Model):
    """A measured peak of memory and how far above it a job may be."""

    value: Size = Field(description="As it was measured, of all processes of the job.")
    tolerance: float = Field(0.05, ge=0, description="Share above it that is allowed.")


def _in(key: str) -> Any:
    return lambda value: value if isinstance(value, dict) else {key: value}


class BaselineSpec(_Model):
    """Recorded values that a job is held to."""

    loss: Annotated[LossSpec, Short(_in("file"), _STRING)] | None = Field(None, description="Losses by step.")
    time: Annotated[TimeLimitSpec, Short(_in("value"), _STRING)] | None = Field(
        None, description="How long the job may take."
    )
    memory: Annotated[MemoryLimitSpec, Short(_in("value"), _STRING)] | None = Field(
        None, description="How much main memory it may use."
    )


class ExpectsSpec(_Model):
    """What must have been done for an exit code of 0 to count."""

    tests: int | None = Field(None, ge=1, description="At least so many tests ran.")
    steps: int | None = Field(None, ge=1, description="Training reached this step.")


class AllowFailureSpec(_Model):
    """Why a failure does not fail the run, and until when. After that day it counts again."""

    reason: Line = Field(description="Shown in every report.")
    until: Date = Field(description="The first day on which failures count again.")


class PytestSpec(_Model):
    """Tests to run with pytest."""

    targets: Annotated[list[Line], OneOrMany()] = Field(min_length=1, description="Files, folders or node ids.")
    args: list[Text] = Field(default_factory=list, description="Further arguments of pytest.")
    workers: int | None = Field(None, ge=1, le=256, description="Processes of pytest-xdist.")


_COMPANION = re.compile(r"[^@\s]+@[^@\s]+")


def _command(value: Any) -> Any:
    if isinstance(value, str):
        return _shell(value)
    if isinstance(value, list) and not value:
        raise ValueError("must not be empty: write a command")
    return value


def _shell(line: str) -> list[str]:
    if not line.strip():
        raise ValueError("must not be empty: write a command")
    # A failure on the left of a pipe must not turn green: `pytest | tee log`.
    return ["bash", "-eo", "pipefail", "-c", line.rstrip("\n")]


def _pytest(value: Any) -> Any:
    return {"targets": value} if isinstance(value, str | list) else value


def _inputs(value: Any) -> Any:
    return {"paths": one_or_many(value)} if isinstance(value, str | list) else value


def _container(value: Any) -> Any:
    return {"image": value} if isinstance(value, str) else value


_LIST = {"type": "array", "items": {"type": "string"}}
Many = OneOrMany()
Combination = dict[str, Any]


class Settings(_Model):
    """Settings of jobs; as `defaults` they hold for all jobs of the matrix or the suite that do not say otherwise."""

    cards: Annotated[CardsSpec, Short(_in("count"), {"type": "integer", "minimum": 0})] = Field(
        CardsSpec(count=0), description="Cards that the job leases; none for a job of the CPU."
    )
    nodes: int | None = Field(
        None, ge=1, le=256, description="Nodes of a cluster that the job is spread over; its cards are divided evenly."
    )
    memory: Size | None = Field(None, description="Main memory that the job needs (on each node).")
    timeout: Duration = Field(1800.0, description="The job is ended after this time.")
    expect: Duration | None = Field(None, description="Expected time, until history knows better.")
    env: dict[str, Text] = Field(default_factory=dict, description="Environment; null in a job removes a default.")
    cwd: RelativePath = Field(".", description="Working folder, relative to that of the matrix.")
    container: Annotated[ContainerSpec, Short(_container, _STRING)] | None = Field(
        None, description="Run the command in this image."
    )
    inputs: Annotated[InputsSpec, Short(_inputs, _STRING, _LIST)] = Field(
        InputsSpec(), description="What must be on the host before the job starts."
    )
    baseline: BaselineSpec = Field(BaselineSpec(), description="Recorded losses, time and memory that it is held to.")
    expects: ExpectsSpec = Field(ExpectsSpec(), description="What must have been done for an exit code of 0 to count.")
    retries: int = Field(0, ge=0, le=10, description="Further attempts where the policy allows them.")
    allow_failure: AllowFailureSpec | None = Field(None, description="Failures are shown and do not count for now.")
    paths: Annotated[list[Line], Many] = Field(
        default_factory=list, description="Globs of changed files that this job looks at; without them, all."
    )
    companions: Annotated[list[Line], Many] = Field(
        default_factory=list, alias="with", description="Repositories checked out beside this one, as REPO@REF."
    )
    tags: Annotated[list[Name], Many] = Field(
        default_factory=list, description="For `--only tag:NAME`; markers of pytest's items."
    )

    @field_validator("paths")
    @classmethod
    def _paths(cls, paths: list[str]) -> list[str]:
        for glob in paths:
            check_glob(glob)
        return paths

    @field_validator("companions")
    @classmethod
    def _companions(cls, companions: list[str]) -> list[str]:
        for companion in companions:
            if not _COMPANION.fullmatch(companion):
                raise ValueError(f"bad companion {companion!r}: write REPO@REF, such as OWNER/NAME@main")
        return companions

    @field_validator("env")
    @classmethod
    def _env(cls, env: dict[str, str]) -> dict[str, str]:
        for name in env:
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise ValueError(f"bad name of a variable {name!r}: use letters, digits and '_'")
            if name.startswith("MATRIX_") or name == "CUDA_VISIBLE_DEVICES":
                raise ValueError(f"{name!r} is set by the runner: choose another name")
        return env


class JobSpec(Settings):
    """A job as it is written; with parameters or shards it stands for several."""

    description: Text | None = Field(None, description="For readers; also in `matrix list --json`.")
    command: Annotated[list[Text] | None, Short(_command, _STRING)] = Field(
        None, description="A line for bash (-e, pipefail), or a list of arguments that no shell sees."
    )
    pytest: Annotated[PytestSpec, Short(_pytest, _STRING, _LIST)] | None = Field(
        None, description="Tests to run instead of a command; their results are read."
    )
    parameters: dict[str, Annotated[list[Text], Many]] = Field(
        default_factory=dict, description="Name and values; ${{ name }} stands for the value anywhere in the job."
    )
    exclude: list[dict[str, Text]] = Field(default_factory=list, description="Combinations that are left out.")
    include: list[dict[str, Text]] = Field(default_factory=list, description="Whole combinations that are added.")
    shards: int = Field(1, ge=1, le=256, description="Cut the tests into so many jobs of about equal time.")
    produces: Annotated[
        list[Annotated[HandOffSpec, Short(_in("path"), _STRING)]],
        OneOrMany(),
    ] = Field(default_factory=list, description="Hand-offs for other jobs.")
    needs: Annotated[list[HandOffName], Many] = Field(default_factory=list, description="Hand-offs of other jobs.")
    overrides: dict[RelativePath, dict[str, Any]] = Field(
        default_factory=dict, description="Config file -> {dotted key: value}, applied to a copy in the run's folder."
    )

    @field_validator("overrides")
    @classmethod
    def _overrides(cls, overrides: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for file in overrides:
            if not file.endswith((".yaml", ".yml", ".json")):
                raise ValueError(f"{file!r} is neither YAML nor JSON: name a .yaml, .yml or .json file")
        return {file: plain(changes) for file, changes in overrides.items()}

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.command is None) == (self.pytest is None):
            both = (
                "both 'command' and 'pytest': keep one"
                if self.command
                else "nothing to run: write 'command' or 'pytest'"
            )
            raise ValueError(both)
        if self.shards > 1 and self.pytest is None:
            raise ValueError("'shards' cuts a test suite: write 'pytest' instead of 'command', or remove 'shards'")
        if self.shards > 1 and self.produces:
            raise ValueError("a job in shards cannot produce a hand-off: remove 'shards' or 'produces'")
        if self.expects.tests and self.pytest is None:
            raise ValueError("'expects: tests' needs 'pytest' instead of 'command'")
        if self.nodes and self.cards.count % self.nodes:
            raise ValueError(f"{self.cards.count} cards cannot be divided evenly over {self.nodes} nodes")
        if self.expect and self.expect > self.timeout:
            raise ValueError("'expect' is longer than 'timeout': raise the timeout")
        return self


class SuiteSpec(_Model):
    """Jobs that belong together, such as one CI job of old."""

    description: Text | None = Field(None, description="For readers.")
    defaults: Settings = Field(Settings(), description="Settings of all jobs of the suite that do not say otherwise.")
    jobs: dict[str, JobSpec] = Field(description="Name -> job; a name is unique in the whole matrix.")


class MatrixSpec(_Model):
    """A matrix file."""

    version: int = Field(1, ge=1, le=1, description="Of the form of this file.")
    defaults: Settings = Field(Settings(), description="Settings of all jobs that do not say otherwise.")
    floor: Annotated[list[Line], Many] = Field(
        default_factory=list,
        description="Jobs (names, globs, suites or tag:NAME) that run whatever files changed; without it, all jobs.",
    )
    pretend_cards: Text | None = Field(
        None,
        description="Cards for hosts that have none and no hosts file: N or MODEL:N, as `--cards` has them.",
    )
    retry: ShortRetrySpec = Field(
        RetrySpec(), description="Which failures are tried again and where: rules, or the file with them."
    )
    suites: dict[str, SuiteSpec] = Field(min_length=1, description="Name -> suite.")

    @field_validator("pretend_cards")
    @classmethod
    def _pretend_cards(cls, text: str | None) -> str | None:
        if text is not None and not re.fullmatch(r"([^:\s]+:)?\d{1,4}", text):
            raise ValueError(f"bad cards {text!r}: write a number such as 4, or MODEL:4")
        return text
