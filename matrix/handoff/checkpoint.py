"""Says whether a folder is a checkpoint that can be loaded, by reading headers, indexes and directories only.

Known: Hugging Face (safetensors, .bin, sharded), PEFT adapters, torch .pt/.pth/.ckpt, torch distributed checkpoints
(FSDP), Paddle .pdparams/.pdopt, and checkpoints with a manifest of sizes and digests, such as those of `dsv4 train`.
"""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from matrix.handoff import distributed, manifest
from matrix.handoff.archives import check_pickle, check_torch, check_zip, is_zip
from matrix.handoff.problem import Problem, half_written, head, lfs_pointer, size
from matrix.handoff.safetensors import UnsoundError, tensors

MAX_FILES = 100_000
_MAX_JSON = 64 << 20  # bytes; a larger JSON file is not parsed
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
_SHARD = re.compile(r"^(?P<stem>.+)-(?P<n>\d{3,6})-of-(?P<of>\d{3,6})(?P<ext>\.\w+)$")
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
        what = "holds no weights" if files else "is empty"
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


def read_json(file: Path) -> object:
    """Parse a JSON file of a bounded size.

    Raises:
        UnsoundError: it does not parse.

    """
    if file.stat().st_size > _MAX_JSON:
        return None
    try:
        return json.loads(file.read_bytes())
    except UnicodeDecodeError as e:
        raise UnsoundError(f"is not UTF-8 (byte {e.start})") from None
    except json.JSONDecodeError as e:
        raise UnsoundError(f"does not parse as JSON: {e.msg} at line {e.lineno}, column {e.colno}") from None
    except RecursionError:
        raise UnsoundError("does not parse as JSON: nested too deeply") from None
    except ValueError as e:
        raise UnsoundError(f"does not parse as JSON: {e}") from None


def _check_folder(root: Path, folder: Path, names: frozenset[str]) -> Iterator[Problem]:
    """Check what needs several files of one folder: configs, shards, indexes, metadata, manifests."""
    yield from _check_config(root, folder, names)
    yield from _check_shards(root, folder, names)
    for name in sorted(names):
        if name.endswith(".index.json"):
            yield from _guarded(root, folder / name, _check_index)
    yield from distributed.check_folder(folder, names, lambda f: _shown(root, f))
    yield from manifest.check_folder(folder, names, lambda f: _shown(root, f))


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


def _check_shards(root: Path, folder: Path, names: frozenset[str]) -> Iterator[Problem]:
    """Check that a set `model-00001-of-00003.safetensors` is complete and has its index."""
    sets: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for name in names:
        if m := _SHARD.match(name):
            sets[m["stem"], m["of"], m["ext"]].add(m["n"])
    for (stem, of, ext), there in sorted(sets.items()):
        if int(of) > MAX_FILES:
            continue
        for n in range(1, int(of) + 1):
            number = str(n).zfill(len(of))
            if number not in there:
                yield Problem(
                    _shown(root, folder / f"{stem}-{number}-of-{of}{ext}"), f"is not there: a shard of {int(of)}"
                )
        index = f"{stem}{ext}.index.json"
        if (
            int(of) > 1
            and ext in (".safetensors", ".bin")
            and stem in ("model", "pytorch_model")
            and index not in names
        ):
            yield Problem(
                _shown(root, folder / index), f"is not there, and {int(of)} shards cannot be loaded without it"
            )


def _check_index(root: Path, file: Path) -> Iterator[Problem]:
    """Check an index against the headers of the shards that it names."""
    shown = _shown(root, file)
    try:
        parsed = read_json(file)
    except UnsoundError:
        return  # named where the files are checked one by one
    weights = parsed.get("weight_map") if isinstance(parsed, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(v, str) for v in weights.values()):
        yield Problem(shown, "has no weight_map of tensor names to files")
        return
    if not weights:
        yield Problem(shown, "has an empty weight_map")
    shards: dict[str, set[str]] = defaultdict(set)
    for tensor, shard in weights.items():
        shards[shard].add(tensor)
    for shard, wanted in sorted(shards.items()):
        target = file.parent / shard
        if not shard or Path(shard).is_absolute() or ".." in Path(shard).parts:
            yield Problem(shown, f"names {shard[:200]!r}, which lies outside the folder")
            continue
        length = size(target)
        if isinstance(length, str):
            yield Problem(_shown(root, target), f"{length}, though {file.name} names it")
        elif shard.endswith(".safetensors"):
            yield from _compare(shown, shard, wanted, target, length)


def _compare(shown: str, shard: str, wanted: set[str], target: Path, length: int) -> Iterator[Problem]:
    try:
        there = set(tensors(target, length))
    except UnsoundError:
        return  # named where the files are checked one by one
    if missing := sorted(wanted - there):
        yield Problem(shown, f"{shard} has no tensor {missing[0][:200]!r}" + _more(missing))
    elif extra := sorted(there - wanted):
        yield Problem(shown, f"does not name tensor {extra[0][:200]!r} of {shard}" + _more(extra))


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
