"""Which Python files does a change reach? By the import statements of the repository, read and never run.

Where it is not sure which file an import means, it means all of them: a job too many costs time, one too few a bug.
"""

from __future__ import annotations

import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from matrix.spec.imported import Imported, Unreadable, read

_MOST_FILES = 20_000
_ROOTS = ("", "src/", "python/", "lib/")  # folders that packages may stand in


@dataclass(frozen=True, slots=True)
class Reach:
    """What a change reaches: file -> why it does, as a sentence about the file."""

    of: Mapping[str, str] = field(default_factory=dict)
    unsure: str | None = None  # why imports cannot decide


def reach(root: Path, files: Iterable[str], changed: Iterable[str], links: Mapping[str, str] | None = None) -> Reach:
    """Find all files that import a changed one, directly or over others.

    `files`: the Python files of the repository, relative to `root`; of `links`, each is the same file as another.
    """
    links = links or {}
    changed = {name for name in changed if name.endswith(".py")}
    there = sorted({*files, *links})
    if len(there) > _MOST_FILES:
        return Reach(unsure=f"more than {_MOST_FILES:,} Python files")
    modules = _Modules({*there, *changed})  # a file that was deleted is still imported by others
    importers: dict[str, set[str]] = defaultdict(set)
    guessing: dict[str, int] = {}
    for path in there:
        try:
            found = read(root / path, path)
        except FileNotFoundError:
            continue
        except Unreadable as e:
            return Reach(unsure=f"what {path} imports cannot be read: {e}")
        for target in modules.meant(found, path):
            importers[target].add(path)
        if found.computed:
            guessing[path] = found.computed
    for link, target in links.items():
        importers[target].add(link)
    for conftest in [p for p in modules.paths if PurePosixPath(p).name == "conftest.py"]:
        folder = PurePosixPath(conftest).parent
        importers[conftest] |= {p for p in there if p != conftest and folder in PurePosixPath(p).parents}
    return Reach(_follow(changed, importers, guessing))


def _follow(changed: set[str], importers: Mapping[str, set[str]], guessing: Mapping[str, int]) -> dict[str, str]:
    found: dict[str, str] = {}
    starts = [(name, f"imports {name}, which changed") for name in sorted(changed)]
    if changed:
        starts += [(p, f"imports {p}, which imports what only a run can tell: line {n}") for p, n in guessing.items()]
    for start, why in starts:
        if start in guessing and start not in changed:
            found.setdefault(start, f"imports what only a run can tell: line {guessing[start]}")
        queue = deque([start])
        while queue:
            for importer in sorted(importers.get(queue.popleft(), ())):
                if importer not in found:
                    found[importer] = why
                    queue.append(importer)
    return {path: why for path, why in found.items() if path not in changed}


class _Modules:
    """The Python files of a repository, by the names that they may be imported by."""

    def __init__(self, paths: set[str]) -> None:
        self.paths = paths
        self._by_name: dict[str, set[str]] = defaultdict(set)  # by every end of the dotted path
        self._folders: dict[str, set[str]] = defaultdict(set)
        for path in paths:
            parts = _parts(path)
            for i in range(len(parts)):
                self._by_name[".".join(parts[i:])].add(path)
            above = PurePosixPath(path).parent.parts
            for i in range(len(above)):
                self._folders[".".join(above[i:])].add(path)

    def meant(self, found: Imported, path: str) -> Iterator[str]:
        """Yield the files that the imports of a file may mean."""
        for name in found.names:
            standard = name.split(".")[0] in sys.stdlib_module_names
            for end in _ends(name):
                hits = self._by_name.get(end, ())
                yield from (hit for hit in hits if not standard or _shadows(hit, end, path))
        for name in found.exact:
            for end in _ends(name):
                yield from (hit for hit in self._by_name.get(end, ()) if ".".join(_parts(hit)) == end)
        for name in found.quoted:
            for end in [name, name.rpartition(".")[0]]:
                yield from self._by_name.get(end, ()) if "." in end else ()
        for name in found.folders:
            yield from self._folders.get(name, ())
        for script in found.scripts:
            name = ".".join(p for p in _parts(script.replace("\\", "/")) if p not in (".", "..", ""))
            yield from self._by_name.get(name, ())


def _parts(path: str) -> tuple[str, ...]:
    parts = PurePosixPath(path).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts


def _ends(name: str) -> Iterator[str]:
    """`a.b.c`, `a.b` and `a`: the module, or what holds the name, and every package above it, which runs too."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        yield ".".join(parts[:end])


def _shadows(hit: str, name: str, importer: str) -> bool:
    """Whether a file can stand before a module of the standard library: at the top of a path, beside its importer."""
    own = PurePosixPath(importer).parent.as_posix()
    return any(".".join(_parts(hit.removeprefix(top))) == name for top in (*_ROOTS, f"{own}/") if hit.startswith(top))
