"""Loads the rules: built-in ones and a repository's own (`.matrix/rules/*.yaml`), with one digest over all of them.

Reading and checking 75 YAML files takes most of a second, so the checked result is kept as JSON under the user's cache
folder, by digest of the files' bytes: a changed rule is a new digest.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrix.errors import UsageError

if TYPE_CHECKING:
    from matrix.triage.rule_model import Rule

BUILTIN = Path(__file__).parent / "rules"
FORMAT = "3"  # of the cached document; part of the digest
LANGUAGES = ("en", "zh")
MAX_CAPTURE = 120  # a capture is log text: longer ones are cut in a sentence


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern with what the ranking needs to know of its category. Compiles when it is first searched."""

    id: str
    category: str
    regex: str
    confidence: float
    where: str  # a value of rule_model.Where
    block: bool
    priority: int
    unless: str | None
    after: str | None
    prefilter: bool
    role: str  # cause | consequence | either
    fix: tuple[str, str]  # templates in the order of LANGUAGES

    def search(self, text: str) -> re.Match[str] | None:
        """Match in one cleaned line (or a block's text), or None; `after` is the caller's to check."""
        found = _compiled(self.regex).search(text)
        if found and self.unless and _compiled(self.unless).search(text):
            return None
        return found

    def is_after(self, earlier_line: str) -> bool:
        """Tell whether `earlier_line` is what this pattern wants to see before its own line."""
        return self.after is not None and _compiled(self.after).search(earlier_line) is not None


@dataclass(frozen=True, slots=True)
class Category:
    """What ranking and reports need of a category; the page is in its file."""

    id: str
    title: Mapping[str, str]
    role: str
    follows: frozenset[str]
    captures: Mapping[str, Mapping[str, str]]  # capture name -> language -> words when a pattern lacks it
    steps: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All patterns, by descending priority and then by id, and the categories."""

    digest: str
    patterns: tuple[Pattern, ...]
    categories: Mapping[str, Category]

    def follows(self, category: str) -> frozenset[str]:
        """Categories that a category is usually a consequence of."""
        found = self.categories.get(category)
        return found.follows if found else frozenset()

    def without(self, category: str) -> RuleSet:
        """The same rules with one category's taken out of use; the scan, which has one database, still looks for them."""
        digest = hashlib.sha256(f"{self.digest}-{category}".encode()).hexdigest()
        return RuleSet(digest, self.patterns, {k: v for k, v in self.categories.items() if k != category})

    def in_use(self, pattern: Pattern) -> bool:
        """False for a pattern whose category was taken out."""
        return pattern.category in self.categories

    def fix(self, pattern: Pattern, captures: Mapping[str, str | None]) -> dict[str, str]:
        """Return the one-sentence fix in each language, with the captures of a match filled in."""
        defaults = self.categories[pattern.category].captures
        values: dict[str, str] = {}
        for (
            name,
            value,
        ) in captures.items():  # a regex may not name a group twice, so `path_2` is another place for `path`
            if value:
                values.setdefault(re.sub(r"_\d+$", "", name), value)
        return {
            language: fill(template, values, {name: words[language] for name, words in defaults.items()})
            for language, template in zip(LANGUAGES, pattern.fix, strict=True)
        }


def fill(template: str, captures: Mapping[str, str | None], defaults: Mapping[str, str]) -> str:
    """Put captures into a sentence: never evaluates, cuts long ones, uses the default words for an absent one."""

    def word(found: re.Match[str]) -> str:
        value = captures.get(found[1])
        if not value:
            return defaults.get(found[1], "?")
        value = " ".join(value.split())
        return value if len(value) <= MAX_CAPTURE else value[: MAX_CAPTURE - 1] + "…"

    return re.sub(r"\{(\w+)\}", word, template)


@functools.lru_cache(maxsize=4096)
def _compiled(regex: str) -> re.Pattern[str]:
    return re.compile(regex)


def rule_files(user_dirs: Iterable[Path] = ()) -> list[Path]:
    """Built-in rule files, then those of each folder that exists; sorted by name within a folder."""
    return [p for d in (BUILTIN, *user_dirs) if d.is_dir() for p in sorted(d.glob("*.yaml"))]


def user_rules(start: Path) -> Path:
    """`.matrix/rules` beside the nearest `matrix.yaml` from `start` upward, or of `start` itself."""
    for folder in (start, *start.parents):
        if (folder / "matrix.yaml").is_file() or (folder / ".matrix" / "rules").is_dir():
            return folder / ".matrix" / "rules"
    return start / ".matrix" / "rules"


def cache_dir() -> Path:
    """Where databases and checked rules are kept between runs; safe to delete."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "matrix"


def digest_of(files: Iterable[Path]) -> str:
    """SHA-256 over the names and bytes of rule files."""
    total = hashlib.sha256(FORMAT.encode())
    for path in files:
        data = path.read_bytes()
        total.update(f"{path.name}:{len(data)}:".encode() + data)
    return total.hexdigest()


def load_rules(user_dirs: Iterable[Path] = ()) -> RuleSet:
    """Load all rules, from the cache if these very files were checked before.

    Raises UsageError naming file and line for a rule that breaks the schema or is defined twice.
    """
    files = rule_files(user_dirs)
    digest = digest_of(files)
    cached = cache_dir() / f"rules-{digest[:32]}.json"
    try:
        document = json.loads(cached.read_bytes())
    except (OSError, ValueError):
        from matrix.triage.rule_file import read_rules  # noqa: PLC0415 - brings YAML, which a cached start does not need

        document = _document(read_rules(files))
        keep(cached, json.dumps(document, ensure_ascii=False).encode())
    return _from_document(digest, document)


def check_own(root: Path) -> int:
    """Check the rules that a repository has of its own; return how many files they are.

    Raises:
        UsageError: every mistake in them, with file and line.

    """
    folder = user_rules(root)
    files = sorted(folder.glob("*.yaml")) if folder.is_dir() else []
    if not files:
        return 0
    try:
        load_rules([folder])
    except UsageError as first:
        from matrix.triage.rule_file import mistakes  # noqa: PLC0415 - brings YAML

        raise mistakes(files, first) from None
    return len(files)


def keep(path: Path, data: bytes) -> None:
    """Write a cache file whole or not at all; a read-only home only costs time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as handle:
            handle.write(data)
        Path(handle.name).replace(path)
    except OSError:
        return


def _document(rules: list[Rule]) -> dict[str, Any]:
    categories: dict[str, Any] = {}
    patterns: list[dict[str, Any]] = []
    for rule in rules:
        categories.setdefault(
            rule.category,
            {
                "title": rule.title.model_dump(),
                "role": rule.role,
                "follows": list(rule.follows),
                "captures": {},
                "steps": {"en": list(rule.steps.en), "zh": list(rule.steps.zh)},
            },
        )["captures"].update({name: text.model_dump() for name, text in rule.captures.items()})
        for spec in rule.patterns:
            fix = spec.fix or rule.fix
            fields = spec.model_dump(mode="json", exclude={"fix", "role"})
            patterns.append(
                {**fields, "category": rule.category, "role": spec.role or rule.role, "fix": [fix.en, fix.zh]}
            )
    patterns.sort(key=lambda p: (-p["priority"], p["id"]))
    return {"categories": categories, "patterns": patterns}


def _from_document(digest: str, document: Mapping[str, Any]) -> RuleSet:
    categories = {
        name: Category(
            name,
            c["title"],
            c["role"],
            frozenset(c["follows"]),
            c["captures"],
            {language: tuple(steps) for language, steps in c["steps"].items()},
        )
        for name, c in document["categories"].items()
    }
    patterns = tuple(Pattern(**{**p, "fix": (p["fix"][0], p["fix"][1])}) for p in document["patterns"])
    return RuleSet(digest, patterns, categories)
