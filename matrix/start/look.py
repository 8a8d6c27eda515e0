"""What a repository has that a matrix could run: tests, training scripts with their configs, shell scripts.

Only names and a bounded part of each text are looked at; nothing is imported and nothing is run.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

MAX_FILES = 50_000
MAX_TEXT = 256 << 10  # bytes of a file that are looked at
MAX_JOBS = 60
_MAX_READ = 400  # Python files that are read to learn what the repository computes with
_SKIPPED = frozenset({
    ".git", ".hg", ".matrix", ".venv", "venv", "node_modules", "build", "dist", "third_party", "__pycache__", ".tox",
    "site-packages", "examples",
})  # fmt: skip
_TEST = re.compile(r"(test_.*|.*_test)\.py")
_TRAIN = re.compile(r"(run_)?(pre)?(train|finetune|sft|dpo|lora|pretrain|eval|infer|predict)\w*\.py", re.IGNORECASE)
# Shell scripts that do the work of a CI job, by their name or their folder, and those that only prepare it.
_SHELL = re.compile(r"train|sft|lora|dpo|finetune|integration|eval|test|regression|check|(^|[-_.])ci([-_.]|$)")
_SHELL_FOLDER = re.compile(r"(integration|regression|unit|e2e|ce|ci)([-_]?tests?)?|tests?")
_PREPARES = re.compile(
    r"install|setup|set_up|build|env|prepare|download|clean|common|util|lib|functions|docker|init|deploy"
)
_TEST_FOLDERS = frozenset({"tests", "test", "unit_tests", "unittests", "unit_test"})
_MOST_TEST_FOLDERS = 12  # beyond this, a job for each top folder
_ON_CARDS = re.compile(
    r"\b(cuda|gpu|paddle\w*|torch\w*|jax|deepspeed|megatron\w*|nccl|transformers|accelerate)\b", re.IGNORECASE
)
_CONFIG_FOLDERS = frozenset({"config", "configs", "conf", "recipes", "yamls"})
_RUNS_ALONE = re.compile(r"^if __name__ ==|\bsys\.argv\b|\bArgumentParser\(|\bPdArgumentParser\(", re.MULTILINE)
_IMPORTS = re.compile(r"^\s*(?:import|from)\s+(paddle|torch)", re.MULTILINE)
# A shell script that takes its first argument as it is; one with a default, as in ${1:-h20}, goes without.
_ARGUMENTS = re.compile(
    r"^\s*(?:local\s+|readonly\s+|export\s+)?\w+=[\"']?\$(?:1\b|\{1[}?:](?!-))|\bcase\s+[\"']?\$\{?1\b", re.MULTILINE
)
_PROCESSES = re.compile(r"--?(?:nproc[_-]per[_-]node|gpus|devices)[= ]+[\"']?([\d,]+)")
_VISIBLE = re.compile(r"CUDA_VISIBLE_DEVICES=[\"']?(\d+(?:,\d+)*)")
_LAUNCHES = re.compile(r"torchrun|(?:paddle|torch)\.distributed\.(?:launch|run)")


@dataclass(frozen=True, slots=True)
class Tests:
    """A folder of tests, and how many cards its name asks for."""

    __test__ = False

    folder: str
    files: int
    cards: int


@dataclass(frozen=True, slots=True)
class Script:
    """A program that trains: its path, how it takes a config, how many cards it asks for itself."""

    path: str
    flag: str  # "--config", or "" where the config is an argument of its own
    cards: int | None
    on_cards: bool = True  # whether anything in it could use a card
    framework: str = ""  # paddle or torch, where it can be told
    arguments: bool = False  # whether a shell script does nothing useful without some


@dataclass(frozen=True, slots=True)
class Found:
    """All that was found; paths are relative to the root and sorted."""

    tests: tuple[Tests, ...] = ()
    scripts: tuple[Script, ...] = ()
    shells: tuple[Script, ...] = ()
    configs: tuple[str, ...] = ()
    sources: int = 0  # Python files


def look(root: Path) -> Found:
    """Look through a repository, without what git ignores and what came from elsewhere."""
    files = [f for f in _files(root) if _printable(f)]
    parts = {f: PurePosixPath(f) for f in files}
    tests = [f for f in files if _TEST.fullmatch(parts[f].name)]
    common = _framework(root, files)
    return Found(
        tests=tuple(_suites(tests)),
        scripts=tuple(
            script
            for f in files
            if _TRAIN.fullmatch(parts[f].name) and f not in tests and (script := _script(root, f, common)) is not None
        ),
        shells=tuple(
            Script(
                f,
                "",
                cards_of(text) or _cards_by_name(parts[f].stem) or None,
                arguments=_ARGUMENTS.search(text) is not None,
            )
            for f in files
            if _does_work(parts[f])
            for text in (_text(root / f),)
        ),
        configs=tuple(f for f in files if f.endswith((".yaml", ".yml")) and _CONFIG_FOLDERS & set(parts[f].parts[:-1])),
        sources=sum(f.endswith(".py") for f in files),
    )


def _does_work(path: PurePosixPath) -> bool:
    """Whether a shell script is a job rather than what jobs are prepared with."""
    if path.suffix != ".sh" or _PREPARES.search(path.stem.lower()):
        return False
    return bool(_SHELL.search(path.name.lower())) or any(_SHELL_FOLDER.fullmatch(p.lower()) for p in path.parts[:-1])


def cards_of(text: str) -> int | None:
    """Return how many cards a script says that it uses; None where it does not say."""
    for pattern in (_PROCESSES, _VISIBLE):
        counts = [len(m.split(",")) if "," in m or pattern is _VISIBLE else int(m[:6]) for m in pattern.findall(text)]
        if counts:
            return min(max([1, *counts]), 1024)
    return 1 if _LAUNCHES.search(text) else None


def _framework(root: Path, files: Iterable[str]) -> str:
    """Return what the repository's Python files import: paddle, torch, or neither."""
    read = islice((f for f in files if f.endswith(".py")), _MAX_READ)
    seen = Counter(name for f in read for name in set(_IMPORTS.findall(_text(root / f))))
    return max(sorted(seen), key=seen.__getitem__, default="")


def _script(root: Path, path: str, common: str) -> Script | None:
    text = _text(root / path)
    if not _RUNS_ALONE.search(text):
        return None
    flag = next((f for f in ("--config", "--config_file", "--config-file", "--cfg") if f'"{f}"' in text), "")
    own = _IMPORTS.search(text)
    on_cards = bool(_ON_CARDS.search(text))
    return Script(path, flag, cards_of(text), on_cards=on_cards, framework=own[1] if own else common)


def _suites(tests: Iterable[str]) -> Iterator[Tests]:
    """Group tests by what their folders say of cards: `multi_card`, `single_card`, `gpu`; the rest by package."""
    tests = list(tests)
    own = {path: _tests_folder(path) for path in tests}
    if len(set(own.values())) > _MOST_TEST_FOLDERS:
        own = {path: PurePosixPath(path).parts[0] if "/" in path else "." for path in tests}
    groups: dict[tuple[str, int], int] = {}
    for path in tests:
        folders = PurePosixPath(path).parts[:-1]
        for depth, name in enumerate(folders, 1):
            cards = _cards_by_name(name)
            if cards:
                key = ("/".join(folders[:depth]), cards)
                break
        else:
            key = (own[path], 0)
        groups[key] = groups.get(key, 0) + 1
    return (Tests(folder, n, cards) for (folder, cards), n in sorted(groups.items()))


def _tests_folder(path: str) -> str:
    """Return the first folder that is called tests, so that each package of many has a job; else the top folder."""
    folders = PurePosixPath(path).parts[:-1]
    named = next((n for n, name in enumerate(folders, 1) if name in _TEST_FOLDERS), 1)
    return "/".join(folders[:named]) or "."


def _cards_by_name(folder: str) -> int:
    name = folder.lower().replace("-", "_")
    if re.search(r"multi_?(card|gpu)|distributed", name):
        return 2
    return 1 if re.search(r"single_?(card|gpu)|(^|_)(gpu|cuda)($|_)", name) else 0


def _files(root: Path) -> Iterator[str]:
    listed = _git_files(root)
    found = sorted(listed) if listed is not None else sorted(_walk(root))
    for n, path in enumerate(found):
        if n >= MAX_FILES:
            return
        if not _SKIPPED & set(PurePosixPath(path).parts[:-1]) and (root / path).is_file():
            yield path


def _git_files(root: Path) -> list[str] | None:
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=30, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return os.fsdecode(done.stdout).split("\0")[:-1] if done.returncode == 0 else None


def _walk(root: Path) -> Iterator[str]:
    left = MAX_FILES
    for folder, names, files in os.walk(root):
        names[:] = sorted(set(names) - _SKIPPED)
        for name in files:
            left -= 1
            if left < 0:
                return
            yield (Path(folder) / name).relative_to(root).as_posix()


def _printable(path: str) -> bool:
    """Leave out names that a shell line or a YAML file could not hold without quoting."""
    return re.fullmatch(r"[\w./@+=-]+", path, re.ASCII) is not None and not path.startswith("-")


def _text(path: Path) -> str:
    try:
        with path.open("rb") as f:
            return f.read(MAX_TEXT).decode(errors="replace")
    except OSError:
        return ""
