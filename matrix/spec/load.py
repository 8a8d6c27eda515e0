"""Read a matrix file: YAML to concrete jobs, or every mistake with its line."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from matrix.errors import UsageError
from matrix.plan.hosts import Host
from matrix.spec.build import build
from matrix.spec.check import check
from matrix.spec.complain import sentence
from matrix.spec.document import Document, parse
from matrix.spec.expand import Layered, combinations, layer, substitute, weight
from matrix.spec.job import Job
from matrix.spec.model import JobSpec, MatrixSpec
from matrix.spec.problems import Part, Problem, SpecError, show_path
from matrix.spec.retry import RetryRule, read_rules, shipped, unknown_categories
from matrix.spec.wishes import fitting

FILE_NAME = "matrix.yaml"
MAX_JOBS = 5000
MAX_WEIGHT = 1_000_000  # values of all jobs together


@dataclass(frozen=True, slots=True)
class Spec:
    """A matrix that has been read and found right."""

    path: Path
    sha256: str
    jobs: tuple[Job, ...]
    floor: tuple[str, ...] = ()
    pretend_cards: str | None = None  # for hosts without any
    retry: tuple[RetryRule, ...] = ()  # its own rules, then those of the runner

    @property
    def root(self) -> Path:
        """The folder that the matrix stands in: the repository's, as far as jobs care."""
        return self.path.parent


def find(start: Path) -> Path:
    """Find the nearest matrix file from a folder upward.

    Raises:
        UsageError: there is none.

    """
    start = start.resolve()
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    raise UsageError(
        f"no {FILE_NAME} in {start} or above it", "write a first one with `matrix init`, or name it: matrix run PATH"
    )


def read(path: Path | None = None, *, hosts: Sequence[Host] | None = None) -> Spec:
    """Read a matrix file (or the one in a folder, or the nearest) into concrete jobs.

    Raises:
        SpecError: every mistake in it.
        UsageError: it is not there or cannot be read.

    """
    path = find(Path.cwd()) if path is None else path / FILE_NAME if path.is_dir() else path
    try:
        with path.open("rb") as f:
            # One byte beyond the limit of `parse` is enough to refuse.
            raw = f.read((1 << 20) + 1)
    except OSError as e:
        raise UsageError(f"{path}: {(e.strerror or str(e)).lower()}", "name the matrix file: matrix run PATH") from None
    jobs, outer = read_bytes(raw, str(path), hosts=hosts, root=path.parent)
    rules = tuple(outer.retry.rules)
    if outer.retry.file:
        file = path.parent / outer.retry.file
        rules += read_rules(file, str(file), known_categories(path.parent))
    sha256 = hashlib.sha256(raw).hexdigest()
    return Spec(path.resolve(), sha256, tuple(jobs), tuple(outer.floor), outer.pretend_cards, rules + shipped())


def read_bytes(
    raw: bytes,
    file: str = FILE_NAME,
    *,
    hosts: Sequence[Host] | None = None,
    root: Path | None = None,
) -> tuple[list[Job], MatrixSpec]:
    """Read the bytes of a matrix file into its concrete jobs and what stands beside its suites.

    `root`: where what it names is to be found; None: not known, so nothing is said about that.

    Raises:
        SpecError: every mistake in it.

    """
    document = parse(raw)
    if document.problems and document.data is None:
        raise SpecError(file, document.problems)
    reader = _Reader(document)
    jobs = reader.jobs()
    reader.relations(jobs, hosts)
    reader.retry(root)
    if reader.problems or reader.outer is None:
        raise SpecError(file, reader.problems)
    return jobs, reader.outer


class _Reader:
    """Goes through a document once and collects jobs and problems."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: dict[Problem, None] = dict.fromkeys(document.problems)  # a set that keeps the order
        self.outer: MatrixSpec | None = None
        self.layers: dict[tuple[str, int], Layered] = {}
        self.budget = MAX_WEIGHT
        self.broken: set[str] = set()  # hand-offs that jobs with mistakes may produce

    def complain(self, path: tuple[Part, ...], message: str) -> None:
        shown = self._in_file(path)
        if any(shown[:end] in self.document.invalid for end in range(len(shown) + 1)):
            return  # follows from a value that YAML itself could not give
        self.problems[Problem(self.document.line(shown), show_path(shown), message)] = None

    def _in_file(self, path: tuple[Part, ...]) -> tuple[Part, ...]:
        """Cut a path back to what stands in the file; a single item may stand for a list of one."""
        shown: tuple[Part, ...] = ()
        for part in path:
            if (*shown, part) in self.document.lines:
                shown = (*shown, part)
            elif not isinstance(part, int):
                break
        return shown

    def jobs(self) -> list[Job]:
        data = self.document.data
        if not isinstance(data, dict):
            self.complain((), "is empty: write suites with jobs" if data is None else "must be a mapping with 'suites'")
            return []
        suites = data.get("suites")
        self._outer(data)
        out: list[Job] = []
        for suite, body in suites.items() if isinstance(suites, dict) else ():
            if not isinstance(body, dict) or not isinstance(body.get("jobs"), dict):
                continue
            if not body["jobs"]:
                self.complain(("suites", suite, "jobs"), "must not be empty: add at least one job")
            for name, raw in body["jobs"].items():
                out += self._job(data, str(suite), body, str(name), raw)
        return out

    def _outer(self, data: dict[str, Any]) -> None:
        """Check all but the jobs, which are checked one by one after expansion."""
        suites = data.get("suites")
        hollow = dict(data)
        if isinstance(suites, dict):
            hollow["suites"] = {
                name: {**body, "jobs": {}} if isinstance(body, dict) and isinstance(body.get("jobs"), dict) else body
                for name, body in suites.items()
            }
            for name in suites:
                if not name.strip() or len(name) > 200 or any(ord(c) < 32 for c in name):
                    self.complain(("suites", name), "bad name of a suite: write one line of at most 200 characters")
        spec = self._validate(MatrixSpec, hollow, Layered({}, {(): ()}), lenient=True)
        if spec is None and not self.problems:  # defaults with parameters in them: the rest stands without
            spec = MatrixSpec.model_validate(
                {k: v for k, v in hollow.items() if k != "defaults"} | {"suites": {"": {"jobs": {}}}}
            )
        self.outer = spec if isinstance(spec, MatrixSpec) else None

    def _job(self, data: dict[str, Any], suite: str, body: dict[str, Any], name: str, raw: Any) -> list[Job]:
        path = ("suites", suite, "jobs", name)
        if not isinstance(raw, dict):
            self.complain(path, "must be a mapping with 'command' or 'pytest'")
            return []
        if self.budget < 0:
            return []
        layered = layer(
            [(("defaults",), data.get("defaults")), ((*path[:2], "defaults"), body.get("defaults")), (path, raw)], path
        )
        before = len(self.problems)
        out = self._concrete(name, suite, path, layered)
        if len(self.problems) > before or not out:
            self.broken |= {name, *_texts(raw.get("produces"))}
        for job in out:
            self.layers[job.name, job.line] = layered
        return out

    def _concrete(self, name: str, suite: str, path: tuple[Part, ...], layered: Layered) -> list[Job]:
        combos, mistakes = combinations(layered.values)
        self.budget -= weight(layered.values) * max(1, len(combos))
        if self.budget < 0:
            message = "with its defaults and parameters, the matrix is larger than {:,} values: use fewer"
            self.complain(("suites",), message.format(MAX_WEIGHT))
            return []
        for mistake in mistakes:
            self.complain(layered.where(mistake.path), mistake.message)
        out: list[Job] = []
        for combo in combos:
            values, mistakes = substitute(layered.values, combo)
            for mistake in mistakes:
                self.complain(layered.where(mistake.path), mistake.message)
            spec = None if mistakes else self._validate(JobSpec, values, layered)
            if isinstance(spec, JobSpec) and self._named(name, path):
                out += build(name, suite, spec, combo, self.document.line(path))
        return out

    def _named(self, name: str, path: tuple[Part, ...]) -> bool:
        if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
            return True
        self.complain(path, f"bad name of a job {name!r}: use letters, digits, '.', '_' and '-', such as qwen3-sft")
        return False

    def _validate(
        self, model: type[BaseModel], values: dict[str, Any], layered: Layered, *, lenient: bool = False
    ) -> BaseModel | None:
        try:
            return model.model_validate(values)
        except ValidationError as e:
            errors = [error for error in e.errors() if not (lenient and _is_template(error))]
        for error in errors:
            loc = error["loc"]
            where = layered.where(loc[:-1] if error["type"] == "missing" else loc)
            self.complain(where, sentence(error, model))
        # A mistake in defaults is no mistake of the job: look at the rest of it without them.
        wrong = {error["loc"][0] for error in errors if error["loc"]}
        own = layered.origins[()]
        if wrong and len(wrong) < len(values) and all(layered.where((key,))[: len(own)] != own for key in wrong):
            return self._validate(model, {k: v for k, v in values.items() if k not in wrong}, layered, lenient=lenient)
        return None

    def retry(self, root: Path | None) -> None:
        """Check what the retry policy speaks of."""
        if self.outer is None or root is None:
            return
        policy = self.outer.retry
        for at, message in unknown_categories(policy.rules, known_categories(root)):
            self.complain(("retry", "rules", *at), message)
        if policy.file and not (root / policy.file).is_file():
            self.complain(("retry", "file"), f"there is no file {policy.file}: write one with 'rules', or remove this")

    def relations(self, jobs: list[Job], hosts: Sequence[Host] | None) -> None:
        """Check what must hold between jobs."""
        if len(jobs) > MAX_JOBS:
            self.complain(("suites",), f"{len(jobs):,} jobs: at most {MAX_JOBS:,}; use fewer parameter values")
            return
        for i, wish in enumerate(self.outer.floor if self.outer else []):
            try:
                fitting(jobs, wish)
            except UsageError as e:
                if wish not in self.broken:
                    self.complain(("floor", i), e.message)
        for job, inner, message in check(jobs, hosts, self.broken):
            self.complain(self.layers[job.name, job.line].where(inner), message)


def known_categories(root: Path) -> set[str]:
    """Return the categories of failures that there are: those of this package, and the repository's own."""
    shipped_ones = {file.stem for file in (Path(__file__).parents[1] / "triage" / "rules").glob("*.yaml")}
    texts = [file.read_text("utf-8", "replace") for file in (root / ".matrix" / "rules").glob("*.yaml")]
    return shipped_ones | {m[1] for text in texts if (m := re.search(r"(?m)^category:\s*([\w-]+)", text))}


def _texts(value: object) -> set[str]:
    """Every text in a value."""
    if isinstance(value, dict | list):
        return {text for item in (value.values() if isinstance(value, dict) else value) for text in _texts(item)}
    return {value} if isinstance(value, str) else set()


def _is_template(error: ErrorDetails) -> bool:
    """Whether the error is that defaults hold a parameter, whose value is known only in a job."""
    given = error.get("input")
    return "defaults" in error["loc"] and isinstance(given, str) and "${{" in given
