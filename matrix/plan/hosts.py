"""Hosts and their cards: a site's file, `$MATRIX_HOSTS` or /etc/matrix/hosts.yaml, never the repository's.

hosts:
  gpu-3: {cards: 8, model: H20}
  mixed: {cards: [{model: H20, count: 4}, {model: A100, count: 4}]}
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from matrix.errors import UsageError
from matrix.spec.complain import sentence
from matrix.spec.document import parse
from matrix.spec.fields import Line, OneOrMany, Short, Size
from matrix.spec.job import Cards
from matrix.spec.problems import Problem, SpecError, show_path

# The model of cards that are not there: they suit every wish.
PRETENDED = "pretended"
DEFAULT_FILE = Path("/etc/matrix/hosts.yaml")


@dataclass(frozen=True, slots=True)
class Card:
    """A card as planning sees it. `id` is unique on its host: the UUID where it is known, else the index."""

    id: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """A machine that jobs may run on."""

    name: str
    cards: tuple[Card, ...] = ()
    memory: int | None = None  # bytes
    cpu_jobs: int | None = None  # jobs without cards at the same time
    labels: tuple[str, ...] = ()  # of the GitHub Actions runners on it

    def suited(self, model: str | None) -> tuple[Card, ...]:
        """Cards of a model, or all."""
        return tuple(card for card in self.cards if card_suits(card, model))

    def fits(self, want: Cards) -> bool:
        """Whether a job with such a wish could ever run here."""
        return len(self.suited(want.model)) >= want.count


def card_suits(card: Card, model: str | None) -> bool:
    """Whether a card is of a model; drivers add words to names, so `H20` fits `NVIDIA H20-3e` and not `H200`."""
    if model is None or card.model == PRETENDED:
        return True
    if card.model is None:
        return False
    words = card.model.lower().replace("-", " ").split()
    return card.model.lower() == model.lower() or model.lower() in words


class _CardGroup(BaseModel):
    """Cards of one model."""

    model_config = ConfigDict(extra="forbid")
    model: Line | None = Field(None, description="Model of these cards, such as H20.")
    count: int = Field(ge=1, le=1024, description="How many of them.")


def _groups(value: Any) -> Any:
    if isinstance(value, list):
        return value
    return [value if isinstance(value, dict) else {"count": value}] if value else []


class _HostSpec(BaseModel):
    """A machine that jobs may run on."""

    model_config = ConfigDict(extra="forbid")
    cards: Annotated[list[_CardGroup], Short(_groups, {"type": "integer"})] = Field(
        default_factory=list, description="How many cards, or groups of several models."
    )
    model: Line | None = Field(None, description="Model of all of them, where it stands in no group.")
    memory: Size | None = Field(None, description="Main memory that jobs may use.")
    cpu_jobs: int | None = Field(
        None, ge=1, description="Jobs without cards at the same time; as many as it has cores when not given."
    )
    labels: Annotated[list[Line], OneOrMany()] = Field(
        default_factory=list, description="Of the GitHub Actions runners on it, for `matrix plan --engine actions`."
    )

    @model_validator(mode="after")
    def _one_model(self) -> _HostSpec:
        if self.model and any(group.model for group in self.cards):
            raise ValueError("'model' stands both beside 'cards' and in it: keep one")
        return self


class HostsSpec(BaseModel):
    """The hosts of a site."""

    model_config = ConfigDict(extra="forbid")
    hosts: dict[Line, _HostSpec] = Field(min_length=1, description="Name -> host.")


def pretended(count: int, name: str = "localhost") -> Host:
    """Make a host with cards that are not there, for CPU hosts and tests (`--cards N`)."""
    return Host(name, tuple(Card(str(i), PRETENDED) for i in range(count)))


def hosts_file(env: Mapping[str, str] = os.environ) -> Path | None:
    """Find the hosts file of this site, or None where there is none.

    Raises:
        UsageError: $MATRIX_HOSTS names a file that is not there.

    """
    named = env.get("MATRIX_HOSTS")
    if named:
        if not Path(named).is_file():
            raise UsageError(f"$MATRIX_HOSTS names {named}, and there is no such file", "mend it, or unset it")
        return Path(named)
    return DEFAULT_FILE if DEFAULT_FILE.is_file() else None


def read_hosts(path: Path) -> list[Host]:
    """Read a hosts file.

    Raises:
        SpecError: what is wrong in it, with lines.

    """
    document = parse(path.read_bytes())
    problems = list(document.problems)
    if not problems:
        try:
            spec = HostsSpec.model_validate(document.data)
        except ValidationError as e:
            problems = [
                Problem(document.line(error["loc"]), show_path(error["loc"]), sentence(error, HostsSpec))
                for error in e.errors()
            ]
        else:
            return [_host(name, host) for name, host in spec.hosts.items()]
    raise SpecError(str(path), problems)


def _host(name: str, spec: _HostSpec) -> Host:
    models = [group.model or spec.model for group in spec.cards for _ in range(group.count)]
    return Host(
        name,
        tuple(Card(str(i), model) for i, model in enumerate(models)),
        spec.memory,
        spec.cpu_jobs,
        tuple(spec.labels),
    )
