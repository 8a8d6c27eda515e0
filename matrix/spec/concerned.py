"""Does a change concern a job that names no paths? By the imports of what it runs; where these cannot decide, yes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from matrix.spec.imports import Reach, reach
from matrix.spec.job import Job

if TYPE_CHECKING:
    from matrix.spec.load import Spec

# Files that no program reads when it runs.
_PROSE = (".md", ".rst", "LICENSE", "CODEOWNERS", ".gitignore")
# Programs that run the Python files that they are given and no others of the repository; and what shells do themselves.
_PLAIN = re.compile(
    r"(.*/)?(python[\d.]*|pytest|py\.test|torchrun|coverage)"
    r"|cd|echo|export|set|mkdir|rm|cp|mv|ls|cat|sleep|true|false|test|\[|:"
)
_BEFORE = re.compile(
    r"[A-Za-z_]\w*=.*|exec|env|time|nohup|timeout|nice|if|then|else|while|do|done|fi|!|\{|\}|-.*|[\d.]+[smh]?"
)


def by_imports(spec: Spec, job: Job, changed: Sequence[str]) -> str | None:
    """Say why changed files concern a job, or None where they do not."""
    told = [name for name in changed if not name.endswith(_PROSE)]
    if not told:
        return None
    other = [name for name in told if not name.endswith(".py")]
    if other:
        return f"{other[0]} changed, and imports cannot tell who reads it"
    tree = _tree(spec.root)
    known = {*tree.files, *tree.links, *told}
    entries = _entries(job, known)
    if not entries:
        return "names no Python file, so any change concerns it"
    runs = next((word for word in _programs(job) if not _PLAIN.fullmatch(word)), None)
    if runs:
        return f"runs {runs}, so any change concerns it"
    found = _reach(spec.root, tree, tuple(told))
    if found.unsure:
        return f"any change concerns it: {found.unsure}"
    for entry in entries:
        if entry in told:
            return f"{entry} changed"
        if entry in found.of:
            return f"{entry} {found.of[entry]}"
    return None


def _programs(job: Job) -> Iterator[str]:
    """Yield the program of every command of a job, a shell line taken apart; `python -c` for code in the line."""
    if job.command[0] != "bash" or "-c" not in job.command:
        yield job.command[0] + (" -c" if "-c" in job.command else "")
        return
    for part in re.split(r"&&|\|\||[;|&\n()]|\$\(|`", job.command[-1].replace("\\\n", " ")):
        words = part.split()
        inline = " -c" if any(word in ("-c", "-") or word.startswith("<<") for word in words) else ""
        yield from [word + inline for word in words if not _BEFORE.fullmatch(word)][:1]


def _entries(job: Job, files: set[str]) -> list[str]:
    """Python files that a job's command names: scripts, tests, all files of folders, modules after -m."""
    out: list[str] = []
    words = re.sub(r"""[;|&()<>{}=,'"`$]""", " ", " ".join(job.command)).split()
    for before, word in zip(["", *words], words, strict=False):
        name = os.path.normpath(PurePosixPath(job.cwd) / word.split("::")[0])
        out += [name] if name in files else []
        if before in ("-m", "-p"):  # a module or a plugin, in whatever folder the path has
            module = word.replace(".", "/")
            ends = (f"/{module}.py", f"/{module}/__main__.py", f"/{module}/__init__.py")
            out += sorted(f for f in files if f"/{f}".endswith(ends))
        if name != ".":
            out += sorted(f for f in files if f.startswith(f"{name}/"))
    return list(dict.fromkeys(out))


class _Tree:
    """The Python files of a repository, and the links among them: the same files by other names."""

    def __init__(self, files: tuple[str, ...], links: dict[str, str]) -> None:
        self.files, self.links = files, links


@lru_cache(maxsize=4)
def _tree(root: Path) -> _Tree:
    done = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        capture_output=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    # Decoded as the names of changed files are: they are compared.
    names = [name for name in done.stdout.decode(errors="backslashreplace").split("\0") if name]
    files = tuple(name for name in names if name.endswith(".py"))
    links: dict[str, str] = {}
    for name in names:
        if not (root / name).is_symlink():
            continue
        target = Path(os.path.relpath((root / name).resolve(), root.resolve())).as_posix()
        links |= {name + f.removeprefix(target): f for f in files if f == target or f.startswith(f"{target}/")}
    return _Tree(tuple(f for f in files if f not in links), links)


@lru_cache(maxsize=4)
def _reach(root: Path, tree: _Tree, changed: tuple[str, ...]) -> Reach:
    return reach(root, tree.files, changed, tree.links)
