"""The answer of triage (schema triage/1): what the command prints and what run.json stores."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Consequence(_Model):
    """A line that follows from a cause and is no failure of its own."""

    file: str | None = None
    line: int
    category: str
    text: str


class Cause(_Model):
    """One independent failure.

    Lines are 1-based and count newlines only; `line` is None where the runner itself is the witness.
    """

    category: str
    rule: str
    confidence: float = Field(ge=0.0, le=1.0)
    file: str | None = None
    line: int | None = None
    end_line: int | None = None
    text: str
    rank: int | None = None
    tests: list[str] = Field(default_factory=list)
    signature: str
    fix: dict[str, str] = Field(default_factory=dict)  # language -> one sentence, captures filled in
    consequences: list[Consequence] = Field(default_factory=list)


LogStatus = Literal["failed", "passed", "unknown"]


class LogReport(_Model):
    """What one log (or one folder of rank logs) says."""

    path: str
    status: LogStatus
    exit_code: int | None = None
    lines: int
    bytes: int
    failing_tests: list[str] = Field(default_factory=list)
    causes: list[Cause] = Field(default_factory=list)


class TriageReport(_Model):
    """The document that `matrix triage --json` prints."""

    schema_: Literal["triage/1"] = Field("triage/1", alias="schema")
    logs: list[LogReport] = Field(default_factory=list)

    model_config = ConfigDict(extra="forbid", populate_by_name=True, serialize_by_alias=True)
