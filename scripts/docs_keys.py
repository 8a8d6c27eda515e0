"""Reference pages of configuration files, from the models that read them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

Schema = Mapping[str, Any]


def page(title: str, intro: str, schema: Schema, root: str) -> str:
    """Return the page of a file: a table for the whole (`root`), then one for each part that has keys of its own."""
    out = [f"# {title}", "", intro, ""]
    parts = schema.get("$defs", {})
    plain = _with_values(schema, {name: part for name, part in parts.items() if "enum" in part})
    for name, part in {root: plain, **plain.get("$defs", {})}.items():
        if part.get("properties"):
            out += [*_part(_title(name), part, parts), ""]
    return "\n".join(out)


def _with_values(node: Any, enums: Mapping[str, Schema]) -> Any:
    """Put the values of an enumeration where it is referred to: they are a kind of value, not a part with keys."""
    if isinstance(node, list):
        return [_with_values(item, enums) for item in node]
    if not isinstance(node, dict):
        return node
    name = str(node.get("$ref", "")).rpartition("/")[2]
    more = {"enum": enums[name]["enum"]} if name in enums else {}
    return {k: _with_values(v, enums) for k, v in node.items() if not (more and k == "$ref")} | more


def _part(title: str, part: Schema, parts: Mapping[str, Schema]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    about = re.split(r"\n\s*\n", part.get("description", ""))[0]
    if about:
        yield " ".join(about.split())
        yield ""
    yield "| key | value | default | meaning |"
    yield "|---|---|---|---|"
    needed = set(part.get("required", ()))
    for key, value in part["properties"].items():
        said = value.get("description") or parts.get(value.get("$ref", "").rpartition("/")[2], {}).get(
            "description", ""
        )
        meaning = " ".join(said.split("\n\n")[0].split())
        cells = (f"`{key}`", " or ".join(dict.fromkeys(kinds(value))), _default(key, value, needed), meaning)
        yield "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"


def kinds(value: Schema) -> Iterator[str]:
    """Say in words what may stand for a key. (`Template` may stand for any scalar of a job, so it is not repeated.)"""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        if name != "Template":
            yield f"[{_title(name).lower()}](#{_anchor(name)})"
    elif "anyOf" in value:
        for one in value["anyOf"]:
            yield from kinds(one)
    elif "enum" in value or "const" in value:
        yield from (f"`{v}`" for v in value.get("enum", [value.get("const")]))
    elif isinstance(value.get("type"), list):
        yield "text"
    elif value.get("type", "anything") != "null":
        yield _KINDS[value.get("type", "anything")](value)


def _number(value: Schema) -> str:
    low, high = value.get("minimum", value.get("exclusiveMinimum")), value.get("maximum")
    if low is not None and low == high:
        return f"`{low:g}`"
    bounds = (f" from {low:g}" if low is not None else "") + (f" to {high:g}" if high is not None else "")
    return ("whole number" if value["type"] == "integer" else "number") + bounds


def _string(value: Schema) -> str:
    pattern = str(value.get("pattern", ""))
    if "ms|[smhd]" in pattern:
        return "duration (`90s`, `1h30m`)"
    if "kKmMgG" in pattern:
        return "size (`512M`, `32G`)"
    return "day (`2027-03-31`)" if value.get("format") == "date" else "text"


_KINDS: Mapping[str, Callable[[Schema], str]] = {
    "array": lambda value: "list of " + (" or ".join(dict.fromkeys(kinds(value.get("items", {})))) or "anything"),
    "object": lambda value: "name: " + (" or ".join(dict.fromkeys(kinds(_values(value)))) or "value"),
    "integer": _number,
    "number": _number,
    "string": _string,
    "boolean": lambda _: "`true` or `false`",
    "anything": lambda _: "anything",
}


def _values(value: Schema) -> Schema:
    inner = value.get("additionalProperties")
    return inner if isinstance(inner, dict) else {}


def _default(key: str, value: Schema, needed: set[str]) -> str:
    if key in needed:
        return "must be there"
    default = value.get("default")
    if default is None or isinstance(default, dict) or default == []:
        return ""  # of a part with keys of its own, the defaults are those of its keys
    if any("duration" in kind for kind in kinds(value)) and isinstance(default, int | float):
        return f"`{default / 60:g}m`"
    return f"`{json.dumps(default)}`"


def _title(name: str) -> str:
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name.strip("_").removesuffix("Spec")) or name
    return words[0].upper() + words[1:].lower()


def _anchor(name: str) -> str:
    return _title(name).lower().replace(" ", "-")


def schema_of(model: type[BaseModel]) -> Schema:
    """Return the schema of a file that pydantic reads."""
    return model.model_json_schema(by_alias=True)
