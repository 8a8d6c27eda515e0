"""From pydantic's errors to sentences that say what to write instead."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from matrix.spec.document import plain, written
from matrix.spec.problems import Part, did_you_mean, nearest

# What other systems call it -> what it is called here.
SYNONYMS = {
    "after": "needs", "artifacts": "produces", "baselines": "baseline", "cmd": "command", "companions": "with",
    "cwd": "cwd", "depends": "needs", "depends_on": "needs", "dir": "cwd", "environment": "env", "expected": "expect",
    "gpu": "cards", "gpus": "cards", "image": "container", "matrix": "parameters", "mem": "memory",
    "num_gpus": "cards", "outputs": "produces", "parallelism": "shards", "params": "parameters", "retry": "retries",
    "run": "command", "script": "command", "services": "container", "steps": "command", "strategy": "parameters",
    "test": "pytest", "tests": "pytest", "time_limit": "timeout", "timeout_minutes": "timeout",
    "variables": "env", "workdir": "cwd", "working_directory": "cwd", "working_dir": "cwd", "xfail": "allow_failure",
    "continue_on_error": "allow_failure", "label": "tags", "labels": "tags", "changes": "paths", "until_date": "until",
}  # fmt: skip


def sentence(error: ErrorDetails, root: type[BaseModel]) -> str:
    """One line about one error: what was wrong and what to write instead."""
    kind, given = error["type"], error.get("input")
    context: Mapping[str, Any] = error.get("ctx") or {}
    loc = error["loc"]
    if kind == "value_error":
        return str(context["error"])
    if kind == "extra_forbidden":
        return _unknown_key(str(loc[-1]), keys_at(root, loc[:-1]))
    if kind == "missing":
        return f"'{loc[-1]}' is missing: add it"
    what = _what(given)
    if kind == "string_pattern_mismatch":
        return f"bad name {what}: use letters, digits, '.', '_' and '-', and begin with a letter or digit"
    if kind == "string_type" and given is not None and not isinstance(given, dict | list):
        return f'must be text, not {what}: write "{written(given)}"'
    for start, text in _WANTED.items():
        if kind.startswith(start):
            return text.format(what=what, **context)
    return error["msg"]


# Beginning of pydantic's error type -> what is wanted.
_WANTED = {
    "model": "must be a mapping ('key: value'), not {what}",
    "dict_type": "must be a mapping ('key: value'), not {what}",
    "list_type": "must be a list, not {what}",
    "string_type": "must be text, not {what}",
    "string_too_long": "is longer than {max_length} characters: shorten it",
    "int": "must be a whole number, not {what}",
    "float": "must be a number, not {what}",
    "finite": "must be a number, not {what}",
    "bool": "must be true or false, not {what}",
    "greater_than_equal": "must be at least {ge}, not {what}",
    "less_than_equal": "must be at most {le}, not {what}",
    "literal_error": "must be {expected}, not {what}",
    "too_short": "must not be empty: add at least one",
}


def _what(given: Any) -> str:
    value = plain(given)
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    text = written(given)
    if not isinstance(given, str):
        return text
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _unknown_key(key: str, known: list[str]) -> str:
    word = key.lower().replace("-", "_")
    synonym = SYNONYMS.get(word)
    near = nearest(key, known)
    if synonym in known and not (near and nearest(word, [near]) and near[:3] == word[:3]):
        return f"unknown key {key!r}: write '{synonym}'"
    return f"unknown key {key!r}: {did_you_mean(key, known)}"


def keys_at(root: type[BaseModel], loc: tuple[Part, ...]) -> list[str]:
    """Keys that may stand at a place in the document."""
    here: Any = root
    for part in loc:
        here = _step(here, part)
    model = _model(here)
    return [field.alias or name for name, field in model.model_fields.items()] if model else []


def _step(annotation: Any, part: Part) -> Any:
    model = _model(annotation)
    if model and isinstance(part, str):
        for name, field in model.model_fields.items():
            if part in (name, field.alias):
                return field.annotation
        return None
    inner = _unwrap(annotation)
    arguments = typing.get_args(inner)
    return arguments[-1] if arguments else None


def _model(annotation: Any) -> type[BaseModel] | None:
    inner = _unwrap(annotation)
    return inner if isinstance(inner, type) and issubclass(inner, BaseModel) else None


def _unwrap(annotation: Any) -> Any:
    """Take away Annotated[...] and | None."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _unwrap(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        kept = [a for a in typing.get_args(annotation) if a is not type(None)]
        return _unwrap(kept[0])
    return annotation
