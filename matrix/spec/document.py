"""A YAML text as plain values with the line of each, read safely: bounded, no tags, no duplicate keys, no cycles.

Scalars follow YAML 1.2's core schema (`on`, `no` and `1:30` are text), and numbers and booleans remember how they were
written, so that an environment variable `VERSION: 1.10` stays `1.10`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from matrix.spec.problems import Part, Problem, show_path

MAX_BYTES = 1 << 20
MAX_DEPTH = 40
MAX_VALUES = 100_000

_TAG = "tag:yaml.org,2002:"
_CORE_TAGS = {_TAG + name for name in ("null", "bool", "int", "float", "str", "seq", "map", "merge")}
_NULL = re.compile(r"~|null|Null|NULL|")
_TRUE = re.compile(r"true|True|TRUE")
_FALSE = re.compile(r"false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan")


# Stands for a value that could not be built, so that it is not taken for one that is not there.
INVALID = object()


class WrittenInt(int):
    """An integer that knows how it was written."""

    written: str


class WrittenFloat(float):
    """A number that knows how it was written."""

    written: str


class WrittenBool(int):
    """True or false (1 or 0) that knows how it was written."""

    written: str


def written(value: object) -> str:
    """Return a scalar as it stood in the file."""
    if isinstance(value, WrittenInt | WrittenFloat | WrittenBool):
        return value.written
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def plain(value: Any) -> Any:
    """Return the same value in Python's own types."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, WrittenBool):
        return bool(value)
    if isinstance(value, WrittenInt):
        return int(value)
    if isinstance(value, WrittenFloat):
        return float(value)
    return value


@dataclass
class Document:
    """Values of a YAML file, the line of each path, and what was wrong with the text."""

    data: Any = None
    lines: dict[tuple[Part, ...], int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    invalid: set[tuple[Part, ...]] = field(default_factory=set)  # paths whose value could not be built

    def line(self, path: tuple[Part, ...]) -> int:
        """Line of a path, or of the nearest parent that is in the file."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return 1


def parse(raw: bytes) -> Document:
    """Read the bytes of a YAML file. Never raises for its content: see `problems`."""
    text = _decode(raw)
    if isinstance(text, Problem):
        return Document(problems=[text])
    # libyaml where it is compiled in (ten times faster), else the same in Python.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        problem = _bounds(text, loader)
        node = None if problem else yaml.compose(text, Loader=loader)
    except yaml.MarkedYAMLError as e:
        problem, node = _syntax(e, text), None
    except yaml.reader.ReaderError as e:
        line = text.count("\n", 0, e.position) + 1 if isinstance(e.position, int) else 0
        problem, node = Problem(line, "", "a control character that YAML does not allow: remove it"), None
    if problem:
        return Document(problems=[problem])
    document = Document()
    if node is not None:
        document.data = _Builder(document).value(node, (), ())
    return document


def _decode(raw: bytes) -> str | Problem:
    if len(raw) > MAX_BYTES:
        return Problem(
            0, "", f"is {len(raw):,} bytes long: a matrix may have {MAX_BYTES:,}; split it or use parameters"
        )
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return Problem(1, "", "is UTF-16: save it as UTF-8")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = raw.count(b"\n", 0, e.start) + 1
        return Problem(line, "", f"byte 0x{raw[e.start]:02x} is not UTF-8: save the file as UTF-8")


def _bounds(text: str, loader: Any) -> Problem | None:
    """Refuse what is too deep or too long before anything recursive looks at it."""
    depth = 0
    for count, event in enumerate(yaml.parse(text, Loader=loader)):
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            depth += 1
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            depth -= 1
        if depth > MAX_DEPTH or count > 2 * MAX_VALUES:
            what = f"more than {MAX_DEPTH} levels deep" if depth > MAX_DEPTH else f"more than {MAX_VALUES:,} values"
            return Problem(
                (event.start_mark.line if event.start_mark else 0) + 1, "", f"{what}: a matrix has a few; simplify it"
            )
    return None


_ADVICE = (
    ("maximum nesting depth", f"more than {MAX_DEPTH} levels deep: a matrix has a few; simplify it"),
    ("'\\t'", "a tab: indent with spaces"),
    ("found duplicate anchor", "an anchor of this name stands above: rename one"),
    ("undefined alias", "no anchor of this name stands above: write &NAME where it is defined first"),
    ("expected a single document", "a second document starts here: a matrix is one document; remove the '---'"),
    ("mapping values are not allowed", "a ':' that YAML cannot place: put the value in quotes, or mend the indent"),
    ("could not find expected ':'", "a key without ':': write 'key: value'"),
    ("unexpected end of stream", "a quote or bracket is not closed: close it"),
    ("expected ',' or", "a bracket is not closed, or a comma is missing: write [a, b] or {a: b}"),
    ("did not find expected key", "this line is not indented like its neighbours: align it with spaces"),
    ("expected <block end>", "this line is not indented like its neighbours: align it with spaces"),
    ("cannot start any token", "a character that cannot start a value: put the value in quotes"),
    ("unknown escape character", 'an unknown escape in "...": use single quotes'),
)


def _syntax(e: yaml.MarkedYAMLError, text: str) -> Problem:
    mark = e.problem_mark or e.context_mark
    line = mark.line + 1 if mark else 1
    said = " ".join(part for part in (e.context, e.problem) if part)
    source = text.split("\n")
    here = source[line - 1] if line <= len(source) else ""
    if "\t" in here[: len(here) - len(here.lstrip())]:
        return Problem(line, "", "not YAML: a tab: indent with spaces")
    advice = next((advice for key, advice in _ADVICE if key in said), f"{said}: mend the syntax")
    return Problem(line, "", f"not YAML: {advice}")


class _Builder:
    """Turns nodes into values; a value that cannot be built becomes INVALID and a problem."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.count = 0
        self.full = False

    def problem(self, node: Node, path: tuple[Part, ...], message: str) -> None:
        self.document.problems.append(Problem(node.start_mark.line + 1, show_path(path), message))

    def value(self, node: Node, path: tuple[Part, ...], open_nodes: tuple[int, ...]) -> Any:
        """Build a node; `open_nodes` are those that it stands in."""
        self.document.lines.setdefault(path, node.start_mark.line + 1)
        if self._counted(node, path):
            return self._invalid(path)
        if id(node) in open_nodes:
            self.problem(node, path, "an anchor that contains itself: remove the alias")
            return self._invalid(path)
        if node.tag not in _CORE_TAGS and not self._implicit(node):
            short = node.tag.replace(_TAG, "!!")
            self.problem(node, path, f"tag {short} is not allowed: write a plain value")
            return self._invalid(path)
        inside = (*open_nodes, id(node))
        if isinstance(node, ScalarNode):
            return _scalar(node)
        if isinstance(node, SequenceNode):
            return [self.value(item, (*path, i), inside) for i, item in enumerate(node.value)]
        assert isinstance(node, MappingNode)
        return self._mapping(node, path, inside)

    def _counted(self, node: Node, path: tuple[Part, ...]) -> bool:
        """Count a value; whether there are too many of them."""
        self.count += 1
        if self.count > MAX_VALUES and not self.full:
            self.problem(node, path, f"aliases make more than {MAX_VALUES:,} values of this file: use fewer")
            self.full = True
        return self.full

    def _invalid(self, path: tuple[Part, ...]) -> object:
        self.document.invalid.add(path)
        return INVALID

    def _implicit(self, node: Node) -> bool:
        # YAML 1.1 resolves plain dates and `=` to tags of their own; for us they are text.
        return isinstance(node, ScalarNode) and node.tag in (_TAG + "timestamp", _TAG + "value")

    def _mapping(self, node: MappingNode, path: tuple[Part, ...], inside: tuple[int, ...]) -> dict[str, Any]:
        out: dict[str, Any] = {}
        first: dict[str, int] = {}
        for key_node, value_node in _own(node):
            if not isinstance(key_node, ScalarNode):
                self.problem(key_node, path, "a key must be a word: write 'key: value'")
                continue
            key, line = str(key_node.value), key_node.start_mark.line + 1
            if key in first:
                message = f"{key!r} is already on line {first[key]}: remove or rename one of the two"
                self.problem(key_node, (*path, key), message)
                continue
            first[key] = line
            out[key] = self._entry(key, value_node, path, line, inside)
        for source in self._merged(node, path):
            for key_node, value_node in _own(source):
                if self._counted(key_node, path):
                    return out
                key, line = str(key_node.value), key_node.start_mark.line + 1
                if key not in out:
                    out[key] = self._entry(key, value_node, path, line, inside)
        return out

    def _entry(self, key: str, node: Node, path: tuple[Part, ...], line: int, inside: tuple[int, ...]) -> Any:
        self.document.lines[(*path, key)] = line
        return self.value(node, (*path, key), inside)

    def _merged(self, node: MappingNode, path: tuple[Part, ...]) -> list[MappingNode]:
        """Find the mappings that `<<` brings in, nearest first."""
        found: list[MappingNode] = []
        queue: list[tuple[Node, int]] = [(value, 0) for key, value in node.value if key.tag == _TAG + "merge"]
        while queue:
            source, depth = queue.pop(0)
            if isinstance(source, SequenceNode) and depth == 0:
                queue = [(item, 1) for item in source.value] + queue
            elif isinstance(source, MappingNode) and len(found) < MAX_DEPTH:
                found.append(source)
                queue = [(value, 0) for key, value in source.value if key.tag == _TAG + "merge"] + queue
            else:
                self.problem(source, (*path, "<<"), "'<<' takes a mapping: write '<<: *anchor'")
                break
        return found


def _own(node: MappingNode) -> list[tuple[Node, Node]]:
    return [(key, value) for key, value in node.value if key.tag != _TAG + "merge"]


def _scalar(node: ScalarNode) -> Any:
    """Text in quotes stays text; plain text becomes what YAML 1.2's core schema says."""
    text = str(node.value)
    if node.style:  # the C parser says "" where the other says None
        return text
    if _NULL.fullmatch(text):
        return None
    value: WrittenInt | WrittenFloat | WrittenBool
    if _TRUE.fullmatch(text) or _FALSE.fullmatch(text):
        value = WrittenBool(bool(_TRUE.fullmatch(text)))
    elif _INT.fullmatch(text) and len(text) <= 30:
        value = WrittenInt(text)
    elif _FLOAT.fullmatch(text):
        value = WrittenFloat(text.replace(".inf", "inf").replace(".nan", "nan"))
    else:
        return text
    value.written = text
    return value
