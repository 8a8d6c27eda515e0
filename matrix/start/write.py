"""Writes what was found in a repository down as a matrix file. Pure: what was found in, text out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import yaml

from matrix.start.look import MAX_JOBS, Found, Script, Tests

_TP_PP = re.compile(r"(tensor|pipeline|context)_?(model_)?parallel_?(size|degree)|^(tp|pp|cp)(_size)?$")
_LEAVES = ("output_dir", "save_dir", "save", "checkpoint_dir", "output")
_TAKES = (
    "model_name_or_path", "load", "load_dir", "init", "init_from", "pretrained", "pretrained_model_name_or_path",
    "resume_from_checkpoint", "resume", "checkpoint", "checkpoint_path", "ckpt", "ckpt_path", "model_path", "weights",
)  # fmt: skip


@dataclass(slots=True)
class Draft:
    """A job to be written: its keys, and why it is as it is."""

    name: str
    keys: dict[str, Any]
    why: str


@dataclass(slots=True)
class Drafts:
    """Jobs by suite, with names that are unique in the matrix."""

    suites: dict[str, list[Draft]] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)

    def add(self, suite: str, wish: str, keys: dict[str, Any], why: str) -> Draft | None:
        """Add a job under the wished name, or the next free one; nothing once there are too many."""
        if len(self.names) >= MAX_JOBS:
            return None
        base = re.sub(r"[^A-Za-z0-9._-]+", "-", wish).strip("-._")[:80] or "job"
        name, n = base, 2
        while name in self.names:
            name, n = f"{base}-{n}", n + 1
        self.names.add(name)
        draft = Draft(name, keys, why)
        self.suites.setdefault(suite, []).append(draft)
        return draft


def matrix_of(found: Found, configs: Mapping[str, object]) -> str:
    """Return the text of a matrix. `configs` holds what each config file says, by path.

    Raises:
        ValueError: nothing was found that could be run.

    """
    drafts = Drafts()
    for tests in found.tests:
        keys: dict[str, Any] = {"pytest": _targets(tests, found.tests)}
        if tests.cards:
            keys["cards"] = tests.cards
        why = f"{tests.files} test {'file' if tests.files == 1 else 'files'}"
        drafts.add(_suite(tests.cards, "unit tests"), tests.folder.replace("/", "-"), keys, why)
    _trainings(drafts, found, configs)
    for shell in found.shells:
        keys = {"command": f"bash {shell.path}"} | ({"cards": shell.cards} if shell.cards else {})
        drafts.add(_suite(shell.cards or 0, "scripts"), PurePosixPath(shell.path).stem, keys, _SHELL[shell.arguments])
    if not drafts.names and found.sources:
        drafts.add("static checks", "compile", {"command": "python -m compileall -q ."}, "every file must compile")
    if not drafts.names:
        raise ValueError("nothing was found that a matrix could run")
    return _text(drafts)


def _targets(tests: Tests, others: tuple[Tests, ...]) -> object:
    """Return what `pytest:` says of a folder: without the folders in it that are jobs of their own."""
    within = "" if tests.folder == "." else tests.folder + "/"
    inside = [t.folder for t in others if t.folder != tests.folder and t.folder.startswith(within)]
    if not inside:
        return tests.folder
    return {"targets": tests.folder, "args": [f"--ignore={folder}" for folder in inside]}


def _trainings(drafts: Drafts, found: Found, configs: Mapping[str, object]) -> None:
    """Add a job for each config of the training script nearest to it; what one leaves and another takes joins them."""
    used = False
    left: dict[str, str] = {}  # folder -> hand-off
    made: list[tuple[Draft, dict[str, Any]]] = []
    for config in found.configs:
        script = _nearest(config, found.scripts)
        content = configs.get(config)
        if script is None or not isinstance(content, dict):
            continue
        flat = _flat(content)
        used = True
        least = 2 if re.search(r"multi_?(card|gpu)", config.lower()) else int(script.on_cards)
        cards = script.cards or max(_parallel(flat) if _parallel(flat) > 1 else 0, least)
        line = " ".join(filter(None, [_launcher(script, cards), script.path, script.flag, config]))
        draft = drafts.add(
            _suite(cards, "training"), PurePosixPath(config).stem,
            {"command": line} | ({"cards": cards} if cards else {}), f"from {config}{_doubt(script, cards)}",
        )  # fmt: skip
        if draft is None:
            return
        made.append((draft, flat))
        left.setdefault(_path(flat, _LEAVES) or "", draft.name)
    for draft, flat in made:
        source = left.get(_path(flat, _TAKES) or "-")
        if source and source != draft.name:
            draft.keys["needs"] = source
    _break_rings([draft for draft, _ in made])
    needed = {draft.keys.get("needs") for draft, _ in made}
    for draft, flat in made:
        if draft.name in needed:  # what nobody takes need not be a checkpoint
            draft.keys["produces"] = _path(flat, _LEAVES)
    for script in found.scripts:
        if not used:
            cards = script.cards or int(script.on_cards)
            keys: dict[str, Any] = {"command": f"python {script.path}"} | ({"cards": cards} if cards else {})
            drafts.add(_suite(cards, "training"), PurePosixPath(script.path).stem, keys, "no config found")


def _break_rings(drafts: list[Draft]) -> None:
    """Let no job need itself by way of others: a config may well resume from what a later one leaves."""
    by_name = {d.name: d for d in drafts}
    for draft in drafts:
        seen, at = {draft.name}, draft
        while "needs" in at.keys:
            if at.keys["needs"] in seen:
                del at.keys["needs"]
                break
            seen.add(at.keys["needs"])
            at = by_name[at.keys["needs"]]


def _nearest(config: str, scripts: tuple[Script, ...]) -> Script | None:
    """Return the script that shares most of its path, then most of its name, with a config."""
    folders, stem = PurePosixPath(config).parts[:-1], PurePosixPath(config).stem.lower()

    def shared(script: Script) -> tuple[int, int, int]:
        own = PurePosixPath(script.path)
        common = sum(a == b for a, b in zip(folders, own.parts[:-1], strict=False))
        words, others = (re.split(r"[^a-z0-9]+", text) for text in (stem, own.stem.lower()))
        alike = sum(
            any(len(min(a, b, key=len)) > 2 and (a.startswith(b) or b.startswith(a)) for b in others) for a in words
        )
        return common, alike, -len(own.stem)

    return max(scripts, key=shared, default=None)


_SHELL = ("a shell script", "a shell script that takes arguments: write them behind it, a job for each set")
_LAUNCHERS = {"paddle": "python -m paddle.distributed.launch", "torch": "torchrun"}


def _launcher(script: Script, cards: int) -> str:
    if script.cards or cards <= 1 or script.framework not in _LAUNCHERS:
        return "python"  # it starts its own processes, or needs one only, or how to start them cannot be told
    return f"{_LAUNCHERS[script.framework]} --nproc_per_node {cards}"


def _doubt(script: Script, cards: int) -> str:
    """Say where a launcher may be missing."""
    if script.cards or cards <= 1 or script.framework in _LAUNCHERS:
        return ""
    return "; nothing imports paddle or torch: add a launcher if it has ranks"


def _parallel(flat: Mapping[str, object]) -> int:
    """Return how many cards the parallel sizes of a config multiply to."""
    product = 1
    for key, value in flat.items():
        if _TP_PP.search(key.rpartition(".")[2].lower()) and isinstance(value, int) and 1 < value <= 64:
            product *= value
    return min(product, 64)


def _flat(content: Mapping[Any, Any], prefix: str = "", depth: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, dict) and depth < 4:
            found |= _flat(value, f"{prefix}{key}.", depth + 1)
        else:
            found[f"{prefix}{key}"] = value
    return found


def _path(flat: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """Return a folder inside the repository that a config names under one of these keys."""
    for name in names:
        for key, value in flat.items():
            if key.rpartition(".")[2] == name and isinstance(value, str):
                path = value.removeprefix("./").rstrip("/")
                if re.fullmatch(r"[\w@+=-][\w./@+=-]*", path, re.ASCII) and ".." not in path.split("/"):
                    return path
    return None


def _suite(cards: int, otherwise: str) -> str:
    return otherwise if not cards else f"integration ({'single' if cards == 1 else 'multi'}-card)"


def _text(drafts: Drafts) -> str:
    lines = [
        "# The test matrix of this repository, begun by `matrix init`. Mend what it guessed wrong.",
        "# `matrix list` shows the jobs, `matrix plan` what would run where, `matrix run` runs them.",
        "version: 1",
        "",
        "defaults:",
        "  timeout: 30m",
        "",
    ]
    if any("cards" in d.keys for some in drafts.suites.values() for d in some):
        most = max(int(d.keys.get("cards", 0)) for some in drafts.suites.values() for d in some)
        lines += [
            "# On a host without cards, jobs with `cards` are refused. Take the mark off to pretend some:",
            f'# pretend_cards: "{most}"',
            "",
        ]
    lines.append("suites:")
    for suite, jobs in drafts.suites.items():
        lines += [f"  {_scalar(suite)}:", "    jobs:"]
        for draft in jobs:
            lines.append(f"      {_scalar(draft.name)}:  # {draft.why}")
            lines += [f"        {key}: {_scalar(value)}" for key, value in draft.keys.items()]
    return "\n".join(lines) + "\n"


def _scalar(value: object) -> str:
    """Write a number or a text as YAML does, quoted only where it must be."""
    text = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10_000, allow_unicode=True)
    return text.removesuffix("...\n").strip()
