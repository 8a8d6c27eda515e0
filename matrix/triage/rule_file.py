"""Reads rule files: YAML to checked rules, each error with file and line."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from matrix.errors import UsageError
from matrix.triage.rule_model import Rule
from matrix.triage.ruleset import BUILTIN

MAX_BYTES = 256 * 1024  # a page, not a database
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_rules(files: Iterable[Path], *, refuse_shapes: bool = True) -> list[Rule]:
    """Read all files and check what holds between them: unique pattern ids, known categories in `follows`.

    A user's pattern of a shape that could hang a scan is refused too, unless the caller looks at shapes itself.
    """
    rules: list[tuple[Path, Rule]] = [(path, read_rule(path)) for path in files]
    owners: dict[str, Path] = {}
    known = {rule.category for _, rule in rules}
    for path, rule in rules:
        for pattern in rule.patterns:
            if pattern.id in owners:
                raise UsageError(
                    f"{place(path, pattern.id)}: pattern {pattern.id} is also in {owners[pattern.id].name}",
                    "give each pattern its own id, since reports name it",
                )
            owners[pattern.id] = path
        for category in rule.follows:
            if category not in known:
                raise UsageError(
                    f"{place(path, category)}: follows an unknown category {category}", "see `matrix rules list`"
                )
        if refuse_shapes and not is_builtin(path):
            from matrix.triage.rule_check import check_shape  # noqa: PLC0415 - only where a user's rules are

            for problem in check_shape(rule):
                raise UsageError(f"{place(path, problem.word)}: {problem.reason}", "see `matrix rules check`")
    return [rule for _, rule in rules]


def read_rule(path: Path) -> Rule:
    """Read one file. Raises UsageError with file:line, what is wrong and what to write instead."""
    try:
        data = path.read_bytes()
    except OSError as e:
        raise UsageError(f"{path}: cannot be read: {e.strerror}") from e
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path}: {len(data)} bytes, a rule file may have {MAX_BYTES}")
    try:
        text = data.decode("utf-8")
        document = yaml.load(text, _Loader)  # noqa: S506 - a safe loader, the C one where libyaml is there
    except UnicodeDecodeError as e:
        raise UsageError(f"{path}:{data[: e.start].count(10) + 1}: not UTF-8", "save the file as UTF-8") from e
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        raise UsageError(f"{path}:{line}: not YAML: {getattr(e, 'problem', None) or e}") from e
    if not isinstance(document, dict):
        raise UsageError(
            f"{path}:1: a rule file is a mapping that starts with `category:`", "start one with `matrix rules new`"
        )
    try:
        rule = Rule.model_validate(document)
    except ValidationError as e:
        found = [_said(path, text, error["loc"], error["msg"]) for error in e.errors()]
        raise UsageError("\n  ".join(found), _advice(e.errors()[0]["type"])) from e
    if rule.category != path.stem:
        raise UsageError(
            f"{path}:{_line(text, ['category'])}: category {rule.category} in a file named {path.stem}",
            f"name the file {rule.category}.yaml",
        )
    return rule


def _said(path: Path, text: str, where: tuple[int | str, ...], message: str) -> str:
    name = ".".join(map(str, where)) or "the rule"
    return f"{path}:{_line(text, list(where))}: {name}: {message.removeprefix('Value error, ')}"


def mistakes(files: Iterable[Path], first: UsageError) -> UsageError:
    """Join the mistakes of all files that cannot be read; `first` where each can and they do not fit together."""
    found, advice = list[str](), first.advice
    for path in files:
        try:
            read_rule(path)
        except UsageError as e:
            found.append(e.message)
            advice = e.advice or advice
    return UsageError("\n  ".join(found), advice) if found else first


def is_builtin(path: Path) -> bool:
    """Tell a rule file of this package from a user's."""
    return path.resolve().parent == BUILTIN.resolve()


def _advice(kind: str) -> str | None:
    return {
        "extra_forbidden": "no such field; `matrix rules new NAME` prints a file with all of them",
        "missing": "the field is required; `matrix rules new NAME` prints a file with all of them",
    }.get(kind)


def _line(text: str, loc: list[Any]) -> int:
    """1-based line of the deepest part of `loc` that is written in the file."""
    node = yaml.compose(text, _Loader)
    line = node.start_mark.line if node else 0
    for part in loc:
        if isinstance(node, yaml.MappingNode):
            pairs = {key.value: (key, value) for key, value in node.value}
            if part not in pairs:
                break
            line, node = pairs[part][0].start_mark.line, pairs[part][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            line = node.start_mark.line
        else:
            break
    return int(line) + 1


def place(path: Path, word: str) -> str:
    """Return file:line of the first line that holds `word`."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return f"{path}:{next((n for n, line in enumerate(lines, 1) if word in line), 1)}"
