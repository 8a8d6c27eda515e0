"""What one Python file imports: read, never run. What only a run can tell is said to be so."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

_MOST_BYTES = 2 << 20
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_BY_NAME = {"import_module": 0, "__import__": 0, "run_module": 0}  # function: where its argument stands
_BY_PATH = {"spec_from_file_location": 1, "SourceFileLoader": 1, "run_path": 0}


class Unreadable(Exception):  # noqa: N818 -- told as a reason
    """What a file imports cannot be said."""


@dataclass
class Imported:
    """What a file imports. A name may stand in any folder of the repository: who can say what `sys.path` holds."""

    names: set[str] = field(default_factory=set)  # dotted; the packages above them run too
    exact: set[str] = field(default_factory=set)  # dotted, from the top of the repository: relative imports
    quoted: set[str] = field(default_factory=set)  # dotted names in strings, such as those that are patched
    folders: set[str] = field(default_factory=set)  # dotted packages of which any module may be meant
    scripts: set[str] = field(default_factory=set)  # ends of paths of Python files
    computed: int | None = None  # line of an import of which only a run can tell what it imports


def read(file: Path, path: str) -> Imported:
    """Read the file at `path` of the repository.

    Raises:
        FileNotFoundError: it is not there, so that nobody imports anything by it.
        Unreadable: it is no Python that this Python can read, or not to be read at all.

    """
    try:
        raw = file.read_bytes()
        if len(raw) > _MOST_BYTES:
            raise Unreadable(f"it is larger than {_MOST_BYTES >> 20} MB")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of strings with odd escapes; the file's own matter
            tree = ast.parse(raw)
    except FileNotFoundError:
        raise
    except SyntaxError as e:
        raise Unreadable(f"{e.msg}, line {e.lineno}" if e.lineno else e.msg) from None
    except OSError as e:
        raise Unreadable((e.strerror or str(e)).lower()) from None
    except (ValueError, RecursionError, MemoryError) as e:
        raise Unreadable(str(e) or type(e).__name__) from None
    found = Imported()
    package = PurePosixPath(path).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            _from(node, package, found)
        elif isinstance(node, ast.Call):
            _call(node, found)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            _quoted(node.value, found)
        elif isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "pytest_plugins" for t in node.targets):
            found.names.update(text for text in _texts(node.value) if text)
    return found


def _from(node: ast.ImportFrom, package: tuple[str, ...], found: Imported) -> None:
    above = package[: max(0, len(package) - node.level + 1)] if node.level else ()
    base = ".".join([*above, *([node.module] if node.module else [])])
    for alias in node.names:
        if alias.name == "*":
            found.folders.add(base)  # __all__ of a package may name its modules
        full = base if alias.name == "*" else f"{base}.{alias.name}".lstrip(".")
        (found.exact if node.level else found.names).add(full)


def _call(node: ast.Call, found: Imported) -> None:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in _BY_PATH:
        words = [*node.args[_BY_PATH[name] :], *(k.value for k in node.keywords)]
        if not any(text.endswith(".py") for word in words for text in _texts(word)):
            found.computed = found.computed or node.lineno  # a file that is named is found among the strings
    elif name in _BY_NAME:
        words = [*node.args, *(k.value for k in node.keywords if k.arg in ("name", "mod_name"))]
        if words and not _named(words[0], found):
            found.computed = found.computed or node.lineno


def _named(word: ast.expr, found: Imported) -> bool:
    """Take up what the argument of an import says; whether it says enough."""
    if isinstance(word, ast.Constant) and isinstance(word.value, str):
        found.names.add(word.value.lstrip("."))
        return True
    first = word.values[0] if isinstance(word, ast.JoinedStr) and word.values else word
    first = first.left if isinstance(first, ast.BinOp) else first
    start = first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""
    folder = start.lstrip(".").rpartition(".")[0]
    if folder:
        found.folders.add(folder)
    return bool(folder)


def _quoted(text: str, found: Imported) -> None:
    if text.endswith(".py") and len(text) < 300 and "\n" not in text:
        found.scripts.add(text)
    elif len(text) < 300 and _DOTTED.fullmatch(text):
        found.quoted.add(text)


def _texts(node: ast.expr) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value
