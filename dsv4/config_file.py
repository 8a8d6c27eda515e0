"""Configuration files: YAML or JSON read into plain values that remember their lines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from dsv4.errors import UsageError

KeyPath = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as JSON users expect it: `1e-06` is a number, and a key may stand only once."""


_Loader.yaml_implicit_resolvers = {
    first: [r for r in resolvers if r[0] != "tag:yaml.org,2002:float"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(
        r"^[-+]?(?:\d[\d_]*(?:\.[\d_]*)?(?:[eE][-+]?\d+)?|\.\d[\d_]*(?:[eE][-+]?\d+)?|\.(?:inf|nan))$", re.IGNORECASE
    ),
    list("-+0123456789."),
)


class Document:
    """A configuration as plain values, and the line of every key in it."""

    def __init__(self, path: str, values: dict[str, Any], lines: dict[KeyPath, int]) -> None:
        self.path, self.values, self._lines = path, values, lines

    def where(self, key: KeyPath) -> str:
        """`file:line` of a key, or of the nearest one above it; the option's name for a value of `--set`."""
        for end in range(len(key), -1, -1):
            line = self._lines.get(key[:end])
            if line is not None:
                return f"{self.path}:{line}" if line else f"--set {'.'.join(map(str, key[:end]))}"
        return self.path

    def set(self, text: str, sections: dict[str, frozenset[str]]) -> None:
        """Apply one `key=value`; a bare key goes to the one section that has it. Values are YAML."""
        name, equals, value = text.partition("=")
        keys = tuple(name.strip().split("."))
        if not equals or not all(keys):
            raise UsageError(f"--set {text}: not key=value", "write --set train.steps=10")
        if len(keys) == 1:
            homes = [section for section, known in sections.items() if keys[0] in known]
            if len(homes) != 1:
                near = ", ".join(f"{home}.{keys[0]}" for home in homes) or "section.key, such as train.steps"
                raise UsageError(f"--set {text}: no key or more than one is named {keys[0]}", f"write {near}")
            keys = (homes[0], keys[0])
        try:
            parsed = yaml.load(value, Loader=_Loader)  # noqa: S506 - a SafeLoader
        except yaml.YAMLError:
            raise UsageError(f"--set {text}: the value is no YAML", "quote it") from None
        target = self.values
        for key in keys[:-1]:
            target = target.setdefault(key, {})
            if not isinstance(target, dict):
                raise UsageError(f"--set {text}: {key} holds no keys", "write section.key=value")
        target[keys[-1]] = parsed
        self._lines[keys] = 0


def read_document(path: Path) -> Document:
    """Read YAML or JSON. Raises UsageError with file and line on anything that is not a mapping of sections."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(
            f"{path}: {getattr(e, 'strerror', None) or 'not UTF-8 text'}", "name a YAML or JSON file"
        ) from None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        lines: dict[KeyPath, int] = {}
        if node is not None:
            _walk(str(path), node, (), lines)
        values = loader.construct_document(node) if node is not None else {}
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        at = f":{mark.line + 1}" if mark else ""
        raise UsageError(f"{path}{at}: {getattr(e, 'problem', None) or 'not YAML'}", "mend the syntax") from None
    if not isinstance(values, dict):
        raise UsageError(f"{path}:1: the file holds no sections", "write the sections `model:` and `train:`")
    return Document(str(path), values, lines)


def _walk(path: str, node: yaml.Node, key: KeyPath, lines: dict[KeyPath, int]) -> None:
    lines[key] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for k, v in node.value:
            child = (*key, str(k.value))
            if child in lines:
                raise UsageError(f"{path}:{k.start_mark.line + 1}: `{k.value}` stands twice", "keep one of them")
            _walk(path, v, child, lines)
            lines[child] = k.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for i, v in enumerate(node.value):
            _walk(path, v, (*key, i), lines)
