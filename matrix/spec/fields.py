"""Kinds of value in a matrix file: durations, sizes, dates, text, and the short forms of the larger ones."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, StringConstraints, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from matrix.spec.document import WrittenBool, WrittenFloat, WrittenInt, written
from matrix.spec.units import DURATION_ADVICE, SIZE_ADVICE, parse_duration, parse_size

DURATION_PATTERN = r"^\s*(\d+(\.\d+)?(ms|[smhd]))+\s*$"
SIZE_PATTERN = r"^\s*\d+(\.\d+)?\s*([kKmMgGtTpP]([iI]?[bB])?|[bB])\s*$"
DATE_PATTERN = r"^\d{4}-\d{2}-\d{2}$"
_NUMBERS = (WrittenInt, WrittenFloat, WrittenBool, int, float)


class Short:
    """Lets a value be written in a short form: `convert` makes the long form, `schemas` describe it to editors."""

    def __init__(self, convert: Callable[[Any], Any], *schemas: dict[str, Any]) -> None:
        self.convert = convert
        self.schemas = schemas

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Convert first, then validate as the long form."""
        return core_schema.no_info_before_validator_function(self.convert, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Any of the short forms, or the long one."""
        return {"anyOf": [*self.schemas, handler(schema)]}


def _duration(value: Any) -> Any:
    if isinstance(value, str):
        return parse_duration(value)
    raise ValueError(f"bad duration {written(value)!r}: {DURATION_ADVICE}")


def _size(value: Any) -> Any:
    if isinstance(value, str):
        return parse_size(value)
    raise ValueError(f"bad size {written(value)!r}: {SIZE_ADVICE}")


def _date(value: Any) -> Any:
    advice = "write a day that is in the calendar, as YYYY-MM-DD, such as 2027-03-31"
    if not isinstance(value, str) or not re.fullmatch(DATE_PATTERN, value):
        raise ValueError(f"bad date {written(value)!r}: {advice}")
    try:
        dt.date.fromisoformat(value)
    except ValueError:
        raise ValueError(f"bad date {value!r}: {advice}") from None
    return value


def _text(value: Any) -> Any:
    return written(value) if isinstance(value, _NUMBERS) else value


def one_or_many(value: Any) -> Any:
    """Let a single item stand for a list of one."""
    return value if isinstance(value, list) or value is None else [value]


def _no_control(value: str) -> str:
    if any((ord(c) < 32 and c not in "\n\t") or ord(c) == 127 for c in value):
        raise ValueError("holds a control character: remove it")
    return value


def _one_line(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty: write some text")
    if "\n" in _no_control(value):
        raise ValueError("must be one line")
    return value.strip()


def _relative(value: str) -> str:
    value = _one_line(value)
    if value.startswith("/") or ".." in value.split("/"):
        raise ValueError(f"{value!r} leaves the repository: write a path relative to the folder of the matrix")
    return value


class OneOrMany(Short):
    """Lets a single item stand for a list of one."""

    def __init__(self) -> None:
        super().__init__(one_or_many)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Allow an item, or the list."""
        whole = handler(schema)
        return {"anyOf": [handler.resolve_ref_schema(whole)["items"], whole]}


Duration = Annotated[float, BeforeValidator(_duration), WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN})]
Size = Annotated[int, BeforeValidator(_size), WithJsonSchema({"type": "string", "pattern": SIZE_PATTERN})]
Date = Annotated[str, BeforeValidator(_date), WithJsonSchema({"type": "string", "format": "date"})]
# Text that may look like a number in the file: 1.10 stays 1.10.
Text = Annotated[str, BeforeValidator(_text), WithJsonSchema({"type": ["string", "number", "boolean"]})]
Line = Annotated[str, BeforeValidator(lambda v: _one_line(v) if isinstance(v, str) else v)]
RelativePath = Annotated[str, BeforeValidator(lambda v: _relative(v) if isinstance(v, str) else v)]
Name = Annotated[Text, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
# Concrete jobs carry the values of their parameters: qwen-pt@tp=2.
HandOffName = Annotated[Text, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._@=-]*$", max_length=200)]
