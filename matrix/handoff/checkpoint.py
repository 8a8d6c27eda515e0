"""Says whether a folder is a checkpoint that can be loaded, by reading headers, indexes and directories only.

Known: Hugging Face (safetensors, .bin, sharded), PEFT adapters, torch .pt/.pth/.ckpt, torch distributed checkpoints
(FSDP), Paddle .pdparams/.pdopt, and checkpoints with a manifest of sizes and digests, such as those of `dsv4 train`.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from matrix.handoff import distributed, manifest, shards
from matrix.handoff.archives import check_pickle, check_torch, check_zip, is_zip
from matrix.handoff.documents import read_json
from matrix.handoff.problem import Problem, half_written, head, lfs_pointer, size
from matrix.handoff.safetensors import UnsoundError, tensors

MAX_FILES = 100_000
_WEIGHTS = (
    ".safetensors",
    ".bin",
    ".pt",
    ".pth",
    ".ckpt",
    ".pdparams",
    ".pdiparams",
    ".distcp",
    ".gguf",
    ".npz",
    ".h5",
)
_NEVER_EMPTY = (
    *_WEIGHTS,
    ".json",
    ".model",
    ".pdopt",
    ".pdmodel",
    ".metadata",
    ".npy",
    ".msgpack",
    ".yaml",
    ".yml",
    ".pkl",
)
_NEVER_EMPTY_NAMES = ("vocab.txt", "merges.txt", "latest")
_NOT_WEIGHTS = re.compile(r"^(training_args|scheduler|optimizer|rng_state|random_states|scaler)", re.IGNORECASE)
_HF_WEIGHTS = re.compile(r"^(model|pytorch_model|model_state)(-\d+-of-\d+)?\.(safetensors|bin|pdparams)$")
_ADAPTER_WEIGHTS = re.compile(
    r"^(adapter_model|lora_model_state|lora_model|peft_model)\b.*\.(safetensors|bin|pdparams)$"
)
_ADAPTER_CONFIGS = ("adapter_config.json", "lora_config.json")
_SKIPPED_FOLDERS = frozenset({".cache", ".git", "__pycache__"})


def check(path: Path, *, since: float | None = None) -> list[Problem]:
    """Return what is wrong with a checkpoint (a folder, or one file of weights); an empty list if it can be loaded.

    Half-written files and folders that are older than `since` (a time as of time.time()) are passed over: what a writer
    left that was killed long ago says nothing of this checkpoint.
    """
    if path.is_file():
        return list(_guarded(path.parent, path, _check_file))
    if not path.is_dir():
        what = "a link that leads nowhere" if path.is_symlink() else "is not there"
        return [Problem(str(path), what)]
    problems: list[Problem] = []
    files = _walk(path, problems, since or 0.0)
    for file in files:
        problems += _guarded(path, file, _check_file)
    folders: dict[Path, list[str]] = defaultdict(list)
    for file in files:
        folders[file.parent].append(file.name)
    for folder, names in folders.items():
        problems += _guarded(path, folder, partial(_check_folder, names=frozenset(names)))
    if not any(_is_weights(f.name) for f in files) and not any(e in p.file for p in problems for e in _WEIGHTS):
        others = ", ".join(sorted({f.name for f in files})[:3])
        what = (
            f"holds no weights, only {others}; is it no checkpoint? then write `kind: files`" if files else "is empty"
        )
        problems.append(Problem(str(path), what))
    return _distinct(problems)


def _walk(root: Path, problems: list[Problem], since: float) -> list[Path]:
    files: list[Path] = []

    def failed(e: OSError) -> None:
        problems.append(Problem(_shown(root, Path(e.filename or root)), f"cannot be read: {e.strerror}"))

    for folder, names, here in os.walk(root, onerror=failed):
        names[:] = sorted(set(names) - _SKIPPED_FOLDERS)
        for name in [n for n in names if half_written(n)]:
            if not _older(Path(folder, name), since):
                problems.append(Problem(_shown(root, Path(folder, name)), "a folder that was still being written"))
            names.remove(name)
        paths = [Path(folder, name) for name in sorted(here)]
        files += [p for p in paths if not (half_written(p.name) and _older(p, since))]
        if len(files) > MAX_FILES:
            problems.append(Problem(str(root), f"holds more than {MAX_FILES} files, the rest was not looked at"))
            break
    return files


def _older(path: Path, than: float) -> bool:
    try:
        return path.lstat().st_mtime < than
    except OSError:
        return False


def _guarded(root: Path, file: Path, check: Callable[[Path, Path], Iterator[Problem]]) -> list[Problem]:
    """Run one check; what makes the file unreadable becomes a problem of that file."""
    found: list[Problem] = []
    try:
        found.extend(check(root, file))
    except UnsoundError as e:
        found.append(Problem(_shown(root, file), str(e)))
    except OSError as e:
        found.append(Problem(_shown(root, file), f"cannot be read: {e.strerror or e}"))
    return found


def _shown(root: Path, file: Path) -> str:
    return str(file.relative_to(root)) if file != root and file.is_relative_to(root) else str(file)


def _distinct(problems: list[Problem]) -> list[Problem]:
    """Keep one problem a file, the first: what follows from a missing or broken file is no news."""
    first: dict[str, Problem] = {}
    for problem in problems:
        first.setdefault(problem.file, problem)
    return list(first.values())


def _is_weights(name: str) -> bool:
    return name.endswith(_WEIGHTS) and not _NOT_WEIGHTS.match(name) and not half_written(name)


def _check_file(root: Path, file: Path) -> Iterator[Problem]:
    name, shown = file.name, _shown(root, file)
    length = size(file)
    if isinstance(length, str):
        yield Problem(shown, length)
        return
    if half_written(name):
        yield Problem(shown, "a file that was still being written")
        return
    if length == 0:
        if name.endswith(_NEVER_EMPTY) or name in _NEVER_EMPTY_NAMES:
            yield Problem(shown, "is empty")
        return
    if pointer := lfs_pointer(file, length):
        yield Problem(shown, pointer)
        return
    _check_content(file, length)


def _check_content(file: Path, length: int) -> None:
    name = file.name
    if name.endswith(".safetensors"):
        tensors(file, length)
    elif name.endswith(".json"):
        read_json(file)
    elif name.endswith((".pt", ".pth", ".ckpt")) or (name.endswith(".bin") and _looks_like_torch(file)):
        check_torch(file, length)
    elif name.endswith((".pdparams", ".pdopt")):
        if is_zip(head(file, 4)):
            check_zip(file, length)
        elif head(file, 9)[8:] == b"{":
            tensors(file, length)
        else:
            check_pickle(file, length)
    elif name.endswith(".npz"):
        check_zip(file, length)
    elif name.endswith(".distcp"):
        distributed.check_shard(file, length)


def _looks_like_torch(file: Path) -> bool:
    """Tell whether a .bin must be one of torch.save: by its name, or since it begins as one."""
    return bool(_HF_WEIGHTS.match(file.name) or _ADAPTER_WEIGHTS.match(file.name)) or is_zip(head(file, 4))


def _check_folder(root: Path, folder: Path, names: frozenset[str]) -> Iterator[Problem]:
    """Check what needs several files of one folder: configs, shards, indexes, metadata, manifests."""
    yield from _check_config(root, folder, names)
    yield from shards.check_sets(folder, names, lambda f: _shown(root, f))
    for name in sorted(names):
        if name.endswith(".index.json"):
            yield from _guarded(root, folder / name, _index)
    yield from distributed.check_folder(folder, names, lambda f: _shown(root, f))
    yield from manifest.check_folder(folder, names, lambda f: _shown(root, f))


def _index(root: Path, file: Path) -> Iterator[Problem]:
    yield from shards.check_index(file, lambda f: _shown(root, f))


def _check_config(root: Path, folder: Path, names: frozenset[str]) -> Iterator[Problem]:
    adapter = [n for n in _ADAPTER_CONFIGS if n in names]
    for name in (*adapter, *(n for n in ("config.json",) if n in names)):
        try:
            parsed = read_json(folder / name)
        except UnsoundError:
            continue  # named where the files are checked one by one
        if not isinstance(parsed, dict):
            yield Problem(_shown(root, folder / name), "is not a JSON object")
    if adapter and not any(_ADAPTER_WEIGHTS.match(n) for n in names):
        yield Problem(_shown(root, folder / "adapter_model.safetensors"), f"is not there, though {adapter[0]} is")
    if any(_ADAPTER_WEIGHTS.match(n) for n in names) and not adapter:
        yield Problem(_shown(root, folder / "adapter_config.json"), "is not there, and loaders of adapters need it")
    if not any(_HF_WEIGHTS.match(n) or n.endswith((".safetensors.index.json", ".bin.index.json")) for n in names):
        return
    if adapter or manifest.present(names) or any(n.startswith("random_states_") for n in names):  # accelerate's state
        return
    above = [folder, *folder.parents]
    if not any((f / "config.json").exists() for f in above[: above.index(root) + 1]):
        yield Problem(_shown(root, folder / "config.json"), "is not there, and loaders of this checkpoint need it")
