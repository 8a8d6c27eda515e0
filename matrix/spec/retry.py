"""The retry policy as data: which failure is tried again, where, and after how long. Values only.

`retry.yaml` beside this file is the policy that comes with the runner; a matrix may ask rules of its own first. What
says that a result is wrong is never tried again: a rule that wants it is refused, for luck would turn it green.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from matrix.errors import UsageError
from matrix.spec.complain import sentence
from matrix.spec.document import parse
from matrix.spec.fields import Duration, Line, OneOrMany, RelativePath, Short, Text
from matrix.spec.problems import Problem, SpecError, nearest, show_path

SHIPPED = Path(__file__).with_name("retry.yaml")
ANY = "*"
# Category -> what it is a result of. A second attempt that comes out otherwise would prove nothing.
NEVER = {
    "baseline_exceeded": "a measurement",
    "bitwise_mismatch": "bits",
    "coverage_under_threshold": "a measurement",
    "gate_not_met": "a check",
    "generated_files_stale": "a check",
    "handoff_missing": "what the job left",
    "lint_failure": "a check",
    "loss_mismatch": "a loss",
    "nan_loss": "a loss",
    "nothing_ran": "what the job ran",
    "sanitizer_error": "a check",
    "security_scan_finding": "a check",
    "snapshot_mismatch": "a test",
    "test_assertion": "a test",
    "test_collection_error": "a test",
    "test_fixture_error": "a test",
    "test_timeout": "a test",
}

Where = Literal["any", "other-card", "other-host"]
Otherwise = Literal["any", "no"]


class RetryRule(BaseModel):
    """What is done about failures of some kind. What is left out fits everything."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    retry: bool = Field(True, description="false: such a failure is not tried again.")
    categories: Annotated[list[Text], OneOrMany()] = Field(
        default_factory=list, description='Categories of the cause; none, or "*", for all that may be tried again.'
    )
    verdicts: Annotated[list[Literal["this-change", "base", "infra", "flaky", "gate", "cannot-tell"]], OneOrMany()] = (
        Field(default_factory=list, description="What the history says of the failure; none for all.")
    )
    attempts: Annotated[list[int], OneOrMany()] = Field(
        default_factory=list, description="After which attempts, counted from 1; none for all."
    )
    where: Where = Field("any", description="Where the next attempt runs.")
    otherwise: Otherwise = Field("any", description='Where there is no other card or host: on what there is, or "no".')
    wait: Duration = Field(0.0, description="Time before the first further attempt; no card is held meanwhile.")
    factor: float = Field(2.0, ge=1, le=100, description="Each further wait is so many times longer.")
    longest: Duration = Field(600.0, description="No wait is longer.")
    reason: Line | None = Field(None, description="Why; shown with the attempt.")

    @field_validator("categories")
    @classmethod
    def _categories(cls, categories: list[str], info: ValidationInfo) -> list[str]:
        for category in categories if info.data.get("retry", True) else ():
            if category in NEVER:
                raise ValueError(
                    f"{category!r} says that {NEVER[category]} came out wrong: such a failure is never tried again, "
                    "a second attempt would only turn it green by luck; remove it, or write retry: false"
                )
        return categories

    @field_validator("attempts")
    @classmethod
    def _attempts(cls, attempts: list[int]) -> list[int]:
        for n in attempts:
            if not 1 <= n <= 100:
                raise ValueError(f"bad attempt {n}: attempts are counted from 1")
        return attempts

    @model_validator(mode="after")
    def _whole(self) -> Self:
        moot = self.model_fields_set & {"where", "otherwise", "wait", "factor", "longest"}
        if not self.retry and moot:
            raise ValueError(f"'retry: false' together with {min(moot)!r}: remove one of them")
        return self

    def fits(self, category: str, verdict: str, attempt: int) -> bool:
        """Whether the rule speaks of such a failure."""
        return (
            (not self.categories or ANY in self.categories or category in self.categories)
            and (not self.verdicts or verdict in self.verdicts)
            and (not self.attempts or attempt in self.attempts)
        )

    def pause(self, retried: int) -> float:
        """Seconds before the next attempt when so many further ones were made."""
        return min(self.wait * self.factor ** min(retried, 50), max(self.longest, self.wait))


class RetryFile(BaseModel):
    """A policy in a file of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    rules: list[RetryRule] = Field(min_length=1, description="The first rule that fits a failure decides.")


class RetrySpec(BaseModel):
    """Rules that are asked before those of the runner."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    rules: list[RetryRule] = Field(default_factory=list, description="The first rule that fits a failure decides.")
    file: RelativePath | None = Field(None, description="A file with further `rules`, asked after the ones here.")


def _short(value: Any) -> Any:
    return {"file": value} if isinstance(value, str) else value


ShortRetrySpec = Annotated[RetrySpec, Short(_short, {"type": "string"})]


def read_rules(path: Path, shown: str, categories: Collection[str]) -> tuple[RetryRule, ...]:
    """Read a policy file.

    Raises:
        SpecError: every mistake in it, with lines.
        UsageError: it is not there or cannot be read.

    """
    try:
        document = parse(path.read_bytes())
    except OSError as e:
        raise UsageError(f"{shown}: {(e.strerror or str(e)).lower()}", "name a file with retry rules") from None
    problems = list(document.problems)
    if not problems:
        try:
            rules = tuple(RetryFile.model_validate(document.data).rules)
        except ValidationError as e:
            problems = [
                Problem(document.line(error["loc"]), show_path(error["loc"]), sentence(error, RetryFile))
                for error in e.errors()
            ]
        else:
            problems = [
                Problem(document.line(("rules", *at)), show_path(("rules", *at)), message)
                for at, message in unknown_categories(rules, categories)
            ]
            if not problems:
                return rules
    raise SpecError(shown, problems)


def unknown_categories(
    rules: Sequence[RetryRule], known: Collection[str]
) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Yield the place in the rules and what is wrong for each category that there is not."""
    for i, rule in enumerate(rules):
        for j, category in enumerate(rule.categories):
            if category != ANY and category not in known:
                near = nearest(category, known)
                advice = f"did you mean {near!r}?" if near else "matrix rules list shows all"
                yield (i, "categories", j), f"unknown category {category!r}: {advice}"


def pauses(rules: Sequence[RetryRule], retries: int) -> float:
    """Return the seconds that so many further attempts may pause at most, all together."""
    return sum(max((rule.pause(n) for rule in rules if rule.retry), default=0.0) for n in range(retries))


@lru_cache(maxsize=1)
def shipped() -> tuple[RetryRule, ...]:
    """Return the rules that come with the runner."""
    return tuple(RetryFile.model_validate(parse(SHIPPED.read_bytes()).data).rules)
