"""One attempt made ready: its environment, its command, copies of the configs that it overrides, its inputs."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from matrix.errors import UsageError
from matrix.spec.check import mentions
from matrix.spec.job import Inputs, Job


@dataclass(frozen=True, slots=True)
class Place:
    """Where things of a run are."""

    root: Path  # folder of matrix.yaml
    folder: Path  # of the run
    handoffs: Mapping[str, Path] = field(default_factory=dict)  # of all jobs, and those given by hand
    companions: Mapping[str, Path] = field(default_factory=dict)  # REPO@REF -> its checkout

    def cwd(self, job: Job) -> Path:
        """Return the job's working folder."""
        return self.root / job.cwd

    def log(self, job: str, attempt: int) -> Path:
        """Return the log of an attempt."""
        return self.folder / "logs" / job / f"{attempt}.log"

    def scratch(self, job: str, attempt: int) -> Path:
        """Return the folder for what an attempt leaves beside its log."""
        return self.folder / "logs" / job / str(attempt)


def handoff_paths(root: Path, jobs: Sequence[Job]) -> dict[str, Path]:
    """Return where each hand-off of a matrix is to be found."""
    return {h.name: root / job.cwd / h.path for job in jobs for h in job.produces}


def variable(prefix: str, name: str) -> str:
    """Return the name of the variable that speaks of a hand-off or a companion: `MATRIX_HANDOFF_QWEN_PT`."""
    return prefix + re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_").upper()


def environment(job: Job, attempt: int, place: Place) -> dict[str, str]:
    """Return the environment of an attempt: the runner's, the job's, and what it may want to know of the run."""
    scratch = place.scratch(job.name, attempt)
    env = {**os.environ, **job.env}
    env |= {
        "MATRIX_RUN": place.folder.name,
        "MATRIX_JOB": job.name,
        "MATRIX_ATTEMPT": str(attempt),
        "COVERAGE_FILE": job.env.get("COVERAGE_FILE") or str(scratch / ".coverage"),
        "MATRIX_FACTS": str(scratch / "facts.jsonl"),
        "MATRIX_OVERRIDES": str(scratch / "config"),
        "MATRIX_SHARD_TIMES": str(shard_folder(job, place)),
    }
    for name in (*job.needs, *(h.name for h in job.produces)):
        if name in place.handoffs:
            env[variable("MATRIX_HANDOFF_", name)] = str(place.handoffs[name])
    for companion in job.companions:
        path = place.companions.get(f"{companion.repo}@{companion.ref}")
        if path:
            name = companion.repo.rstrip("/").rsplit("/", 1)[-1].removesuffix(".git")
            env[variable("MATRIX_COMPANION_", name)] = str(path)
    return env


def shard_folder(job: Job, place: Place) -> Path:
    """Return where the shards of one job exchange the times of their tests."""
    return place.folder / "shards" / job.whole


def command(job: Job, attempt: int, place: Place) -> tuple[str, ...]:
    """Return the command of an attempt: overridden configs by the paths of their copies, pytest's results as a file."""
    scratch = place.scratch(job.name, attempt)
    argv = list(job.command)
    for file, changes in job.overrides.items():
        copy = scratch / "config" / file
        write_override(place.cwd(job) / file, changes, copy)
        argv = [_renamed(word, file, str(copy)) for word in argv]
    if job.pytest:
        argv.append(f"--junitxml={scratch / 'junit.xml'}")
    return tuple(argv)


def _renamed(word: str, file: str, copy: str) -> str:
    if not mentions(word, file):
        return word
    return re.sub(rf"(?<![\w./-]){re.escape(file)}(?![\w/-]|\.\w)", lambda _: copy, word)


def write_override(source: Path, changes: Mapping[str, object], copy: Path) -> None:
    """Write a copy of a YAML or JSON config with some values changed. The config itself is never touched.

    Raises:
        UsageError: the config is not there, cannot be parsed, or a dotted key leads through a plain value.

    """
    is_json = source.suffix == ".json"
    try:
        text = source.read_text(encoding="utf-8")
        data = json.loads(text) if is_json else yaml.safe_load(text)
    except OSError as e:
        raise UsageError(f"{source}: cannot be read to override it: {e.strerror}") from None
    except (ValueError, yaml.YAMLError) as e:
        first = str(e).splitlines()[0]
        raise UsageError(f"{source}: cannot be parsed to override it: {first}") from None
    data = {} if data is None else data
    for key, value in changes.items():
        _set(data, key.split("."), value, f"{source}: {key}")
    copy.parent.mkdir(parents=True, exist_ok=True)
    shape = json.dumps(data, indent=2) if is_json else yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    copy.write_text(shape, encoding="utf-8")


def _set(data: Any, keys: Sequence[str], value: object, where: str) -> None:
    for key in keys[:-1]:
        if isinstance(data, dict):
            data = data.setdefault(key, {})
        elif isinstance(data, list) and key.isdecimal() and int(key) < len(data):
            data = data[int(key)]
        else:
            raise UsageError(f"{where}: {key!r} leads nowhere, what is above it is no mapping")
    if isinstance(data, dict):
        data[keys[-1]] = value
    elif isinstance(data, list) and keys[-1].isdecimal() and int(keys[-1]) < len(data):
        data[int(keys[-1])] = value
    else:
        raise UsageError(f"{where}: {keys[-1]!r} cannot be set, what is above it is no mapping")


def missing_inputs(inputs: Inputs, cwd: Path, env: Mapping[str, str]) -> list[str]:
    """Say what of a job's inputs is not there: paths, repositories of the hub cache, free disk."""
    missing = [
        f"path {p} is not there" for p in inputs.paths if not (cwd / Path(os.path.expandvars(p)).expanduser()).exists()
    ]
    for name in inputs.hub:
        tried = hub_places(name, env)
        if not any(_filled(p) for p in tried):
            missing.append(f"{name} is not in the hub cache ({tried[0]})")
    if inputs.disk is not None:
        free = shutil.disk_usage(_existing(cwd)).free
        if free < inputs.disk:
            missing.append(
                f"{free / 2**30:.1f} GiB of disk are free in {cwd}, {inputs.disk / 2**30:.1f} GiB are wanted"
            )
    return missing


def hub_places(name: str, env: Mapping[str, str]) -> list[Path]:
    """Return where the caches of Hugging Face and ModelScope keep a repository, `datasets/OWNER/NAME` included."""
    home = Path(env.get("HOME") or "~").expanduser()
    hf = Path(env.get("HF_HOME") or Path(env.get("XDG_CACHE_HOME") or home / ".cache") / "huggingface")
    hub = Path(env.get("HF_HUB_CACHE") or env.get("HUGGINGFACE_HUB_CACHE") or hf / "hub")
    kind, rest = ("datasets", name.removeprefix("datasets/")) if name.startswith("datasets/") else ("models", name)
    scope = Path(env.get("MODELSCOPE_CACHE") or home / ".cache" / "modelscope" / "hub")
    return [hub / f"{kind}--{rest.replace('/', '--')}" / "snapshots", scope / kind / rest, scope / rest]


def _filled(path: Path) -> bool:
    return path.is_dir() and any(p.is_file() for p in path.rglob("*"))


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)
