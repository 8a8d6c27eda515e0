"""Which Python files does a change reach? By the import statements of the repository, read and never run."""

from __future__ import annotations

import ast
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

_MOST_FILES = 20_000
_MOST_BYTES = 2 << 20
_ROOTS = ("", "src/", "python/", "lib/")  # folders that packages may stand in


@dataclass(frozen=True, slots=True)
class Reach:
    """What a change reaches: file -> the changed file that it imports, directly or over others."""

    of: Mapping[str, str] = field(default_factory=dict)
    unsure: str | None = None  # why imports cannot decide


def reach(root: Path, files: Iterable[str], changed: Iterable[str]) -> Reach:
    """Find all files that import a changed one. `files`: the Python files of the repository, relative to `root`."""
    known = sorted(files)
    changed = set(changed)
    if len(known) > _MOST_FILES:
        return Reach(unsure=f"more than {_MOST_FILES:,} Python files")
    modules = {name: path for path in known for name in _names(path)}
    importers: dict[str, set[str]] = defaultdict(set)
    for path in known:
        try:
            raw = (root / path).read_bytes()
            tree = ast.parse(raw if len(raw) <= _MOST_BYTES else b"")
        except (OSError, SyntaxError, ValueError, RecursionError):
            continue  # it imports nothing as it stands; a job that runs it fails by itself
        for name in _imported(tree, path):
            for target in _targets(name, modules):
                importers[target].add(path)
    for conftest in [p for p in known if PurePosixPath(p).name == "conftest.py"]:
        folder = PurePosixPath(conftest).parent
        importers[conftest] |= {p for p in known if p != conftest and folder in PurePosixPath(p).parents}
    found: dict[str, str] = {}
    for start in sorted(changed):
        queue = deque([start])
        while queue:
            for importer in sorted(importers[queue.popleft()]):
                if importer not in found:
                    found[importer] = start
                    queue.append(importer)
    return Reach({path: why for path, why in found.items() if path not in changed})


def _names(path: str) -> Iterator[str]:
    """Yield the module names that a file may be imported by."""
    for top in _ROOTS:
        if path.startswith(top):
            name = path.removeprefix(top).removesuffix(".py").replace("/", ".")
            yield name.removesuffix(".__init__")


def _imported(tree: ast.AST, path: str) -> Iterator[str]:
    package = list(PurePosixPath(path).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
                # A script's folder is on its path: `import helper` may be the file beside it.
                yield ".".join([*package, alias.name])
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{base}.{alias.name}"
                if not node.level:
                    yield ".".join([*package, base, alias.name])


def _targets(name: str, modules: Mapping[str, str]) -> Iterator[str]:
    """Files that an import of a name runs: the module and every package above it."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        path = modules.get(".".join(parts[:end]))
        if path:
            yield path
