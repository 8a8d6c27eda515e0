"""The JSON Schema of matrix files, for editors: `matrix schema > docs/matrix.schema.json`."""

from __future__ import annotations

import json
from typing import Any

from matrix.spec.model import MatrixSpec

_TEMPLATE = {"type": "string", "pattern": r"\$\{\{.+\}\}", "description": "The value of a parameter."}
_PLAIN = ("SuiteSpec", "RetrySpec", "RetryRule")  # no job's own, so no parameter can stand in them
_SCALARS = ("integer", "number", "boolean")


def json_schema() -> dict[str, Any]:
    """Describe a matrix file. In a job and in defaults, a parameter may stand for any scalar."""
    schema = MatrixSpec.model_json_schema(by_alias=True, mode="validation")
    definitions = {
        name: body if name in _PLAIN else _with_templates(body) for name, body in schema.pop("$defs").items()
    }
    definitions["Template"] = _TEMPLATE
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A test matrix (matrix.yaml)",
        **{key: value for key, value in schema.items() if key != "title"},
        "$defs": definitions,
    }


def _with_templates(node: Any) -> Any:
    if isinstance(node, list):
        return [_with_templates(item) for item in node]
    if not isinstance(node, dict):
        return node
    narrow = node.get("type") in _SCALARS or (
        node.get("type") == "string" and ({"pattern", "enum", "format"} & set(node))
    )
    if narrow:
        outer = {key: node[key] for key in ("title", "description", "default") if key in node}
        inner = {key: value for key, value in node.items() if key not in outer}
        return {**outer, "anyOf": [inner, {"$ref": "#/$defs/Template"}]}
    return {key: item if key in ("default", "required") else _with_templates(item) for key, item in node.items()}


def text() -> str:
    """Return the schema as it stands in docs/."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False, sort_keys=True) + "\n"
