"""Schema of `matrix/triage/rules/*.yaml`: a file holds one category of failure, its patterns and its page."""

from __future__ import annotations

import re
from enum import StrEnum
from string import Formatter
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator, model_validator

MARKER = "▶ "  # stands before the line of an example that a pattern must claim
PatternId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
CategoryId = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(_[a-z0-9]+)*$")]
Filled = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Role = Literal["cause", "consequence", "either"]


class Where(StrEnum):
    """What a line must be, by the structure of the log, before a pattern may claim it."""

    ANY = "any"  # any line that the job printed (never a step's script text)
    EXCEPTION = "exception"  # the last line of a traceback, `Class: message`, also as pytest's `E   ` line
    TEST = "test"  # what a test's own report says of its failure: pytest's `E   ` line or summary, unittest's exception
    RANK = "rank"  # an exception raised in the program's own code by one process of several: a rank, or one run of a loop of them
    ERROR_LINE = "error_line"  # a line that a tool prints as its error: compiler, pip, git, npm, a linter's finding
    LAUNCHER = "launcher"  # what torchrun, paddle launch, Slurm or the shell says about a process that ended
    SUMMARY = "summary"  # a closing table: pytest's short summary, coverage, a job's list of failures
    EXIT = "exit"  # the runner's or the shell's word about an exit code or a limit


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Text(_Model):
    """The same facts in English and in Chinese."""

    en: Filled = Field(description="English.")
    zh: Filled = Field(description="Chinese.")

    @field_validator("zh")
    @classmethod
    def _is_chinese(cls, value: str) -> str:
        if not re.search(r"[\u4e00-\u9fff]", value):
            raise ValueError("no Chinese in it: write the same facts in Chinese")
        return value


class Steps(_Model):
    """What to do, one step an entry, in both languages."""

    en: tuple[Filled, ...] = Field(min_length=1, description="English.")
    zh: tuple[Filled, ...] = Field(min_length=1, description="Chinese.")

    @model_validator(mode="after")
    def _same_number(self) -> Steps:
        if len(self.en) != len(self.zh):
            raise ValueError(
                f"{len(self.en)} steps in English, {len(self.zh)} in Chinese: write the same steps in both"
            )
        return self


class PatternSpec(_Model):
    """One wording of a failure.

    `regex` is searched in one cleaned line (no ANSI codes, runner timestamp, rank prefix or pytest `E   `), or with
    `block` in the text of a whole traceback or error block; then the claimed line is the one where the group `at`
    starts, or else the match.
    """

    id: PatternId = Field(description="Name of the wording; no two patterns have the same.")
    regex: Filled = Field(description="Searched in the line; named groups become words of `fix`.")
    confidence: float = Field(0.9, gt=0.0, le=1.0, description="How sure the wording alone is.")
    where: Where = Field(Where.ANY, description="What the line must be, by the structure of the log.")
    block: bool = Field(
        False, description="Search in the whole traceback or error block; the group `at` claims its line."
    )
    priority: int = Field(50, ge=0, le=100, description="Between patterns that claim one line, the higher wins.")
    unless: Filled | None = Field(None, description="The line (or block) is not claimed if this is found in it.")
    after: Filled | None = Field(None, description="An earlier line of the same log or rank must match this.")
    prefilter: bool = Field(
        False, description="It uses look-around or back-references: the scanner only narrows, `re` decides."
    )
    role: Role | None = Field(None, description="Where this wording differs from its category.")
    fix: Text | None = Field(None, description="A more exact sentence than the category's.")

    @field_validator("regex", "unless", "after")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                compiled = re.compile(value)
            except re.error as e:
                raise ValueError(f"not a regular expression: {e}") from e
            if compiled.search(""):
                raise ValueError("matches the empty line, so it would match every line")
        return value


class Examples(_Model):
    """Texts a rule must claim (the line marked by MARKER) and texts it must leave alone."""

    match: tuple[Filled, ...] = Field((), description="Texts to claim, the line marked by `▶ `.")
    no_match: tuple[Filled, ...] = Field((), description="Texts to leave alone.")

    @field_validator("match")
    @classmethod
    def _marked(cls, texts: tuple[str, ...]) -> tuple[str, ...]:
        for text in texts:
            if sum(line.startswith(MARKER) for line in text.splitlines()) != 1:
                raise ValueError(f"mark the one line to be claimed with {MARKER!r}: {text.splitlines()[0][:60]!r}")
        return texts


class Rule(_Model):
    """One category of failure: a file of the same name, and a page of the documentation."""

    category: CategoryId = Field(description="Name of the category and of the file.")
    title: Text = Field(description="What failed, in a few words.")
    what: Text = Field(description="What it is.")
    why: Text = Field(description="Why it happens.")
    role: Role = Field("cause", description="What it usually is.")
    follows: tuple[CategoryId, ...] = Field((), description="Categories that this one is usually a consequence of.")
    captures: dict[str, Text] = Field(
        default_factory=dict, description="Words for a capture that the matching pattern lacks."
    )
    structure: Text | None = Field(
        None, description="How the ranking tells it by structure alone; a category without patterns needs it."
    )
    patterns: tuple[PatternSpec, ...] = Field((), description="The wordings that show it.")
    fix: Text = Field(description="What to do; `{name}` stands for what a pattern captured.")
    steps: Steps = Field(description="What to do, one step an entry.")
    false_positives: Text = Field(description="What looks like it and is not.")
    references: tuple[Annotated[str, StringConstraints(pattern=r"^https?://\S+$")], ...] = Field(
        min_length=1, description="Where more is said."
    )
    examples: Examples = Field(Examples(), description="What proves the patterns.")

    @model_validator(mode="after")
    def _is_decidable(self) -> Rule:
        if not self.patterns and self.structure is None:
            raise ValueError("no patterns: write some, or say under `structure` how the ranking finds it")
        if self.patterns and not (self.examples.match and self.examples.no_match):
            raise ValueError("patterns need examples: at least one text to match and one that must not")
        return self

    @model_validator(mode="after")
    def _fix_can_be_filled(self) -> Rule:
        for pattern in self.patterns:
            known = set(re.compile(pattern.regex).groupindex) | set(self.captures)  # `path_2` only helps `path` out
            for text in (pattern.fix or self.fix).en, (pattern.fix or self.fix).zh:
                missing = sorted(fields(text) - known)
                if missing:
                    raise ValueError(
                        f"fix uses {{{missing[0]}}}, which pattern {pattern.id} does not capture: "
                        f"add (?P<{missing[0]}>...) to it, or words for it under captures"
                    )
        return self


def fields(template: str) -> set[str]:
    """Names in braces of a fix sentence."""
    return {name for _, name, _, _ in Formatter().parse(template) if name}
