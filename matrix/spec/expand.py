"""From a job as written to its concrete forms: defaults, parameters × values, include and exclude, `${{ name }}`.

All of it happens on plain values, before validation, so that any field may hold a parameter and a mistake is reported
where it stands in the file.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from matrix.spec.document import written
from matrix.spec.problems import Part, did_you_mean

MAX_COMBINATIONS = 1000
TEMPLATE = re.compile(r"\$\{\{\s*([^{}]*?)\s*\}\}")
_SHAPE_KEYS = ("parameters", "include", "exclude")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")

Path = tuple[Part, ...]


@dataclass
class Layered:
    """A mapping put together from layers, with where in the document each entry stands."""

    values: dict[str, Any]
    origins: dict[Path, Path] = field(default_factory=dict)

    def where(self, inner: Path) -> Path:
        """Path in the document of a path in `values`."""
        for end in range(len(inner), -1, -1):
            if inner[:end] in self.origins:
                return (*self.origins[inner[:end]], *inner[end:])
        return inner


def layer(layers: list[tuple[Path, Any]], job_path: Path) -> Layered:
    """Lay settings over each other, the last deciding; `env` goes by variable, and tags add up."""
    out = Layered({}, {(): job_path})
    for path, values in layers:
        if not isinstance(values, dict):
            continue
        for key, value in values.items():
            if key == "env" and isinstance(value, dict) and isinstance(out.values.get("env"), dict):
                _env(out, value, (*path, key))
            elif key == "tags" and "tags" in out.values:
                old, new = (v if isinstance(v, list) else [v] for v in (out.values["tags"], value))
                out.values["tags"] = [*old, *new]
                for i in range(len(new)):
                    out.origins["tags", len(old) + i] = (*path, key, i)
            else:
                out.values[key] = value
                if key in ("env", "tags"):
                    out.origins = {k: v for k, v in out.origins.items() if k[:1] != (key,)}
                out.origins[key,] = (*path, key)
    env = out.values.get("env")
    if isinstance(env, dict):
        out.values["env"] = {name: value for name, value in env.items() if value is not None}
    return out


def _env(out: Layered, new: dict[str, Any], path: Path) -> None:
    out.values["env"] = {**out.values["env"], **new}
    for name in new:
        out.origins["env", name] = (*path, name)


def weight(value: Any) -> int:
    """How much there is to copy of a value: one for each part, and for each 50 characters."""
    if isinstance(value, dict):
        return 1 + sum(1 + len(key) // 50 + weight(item) for key, item in value.items())
    if isinstance(value, list):
        return 1 + sum(weight(item) for item in value)
    return 1 + (len(value) // 50 if isinstance(value, str) else 0)


@dataclass(frozen=True, slots=True)
class Mistake:
    """A problem at a path inside the job."""

    path: Path
    message: str


def combinations(raw: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[Mistake]]:
    """Every combination of parameter values that a job stands for, and what is wrong with the description of them.

    The product of all values, less those that fit an entry of `exclude`, plus the entries of `include`. One empty
    combination when there are no parameters.
    """
    given = raw.get("parameters")
    if given is None:
        wrong = [
            Mistake((key,), f"'{key}' without 'parameters': add parameters, or remove it")
            for key in ("include", "exclude")
            if raw.get(key)
        ]
        return [{}], wrong
    if not isinstance(given, dict):
        return [], [Mistake(("parameters",), "must be a mapping of names to values, such as tp: [1, 2]")]
    mistakes: list[Mistake] = []
    values = {str(name): list(_values(str(name), value, mistakes)) for name, value in given.items()}
    include = list(_entries(raw, "include", values, mistakes))
    exclude = list(_entries(raw, "exclude", values, mistakes))
    if math.prod(len(v) for v in values.values()) > MAX_COMBINATIONS:
        mistakes.append(Mistake(("parameters",), f"more than {MAX_COMBINATIONS:,} combinations: use fewer values"))
    if mistakes:
        return [], mistakes
    product = [dict(zip(values, choice, strict=True)) for choice in itertools.product(*values.values())]
    used = [any(_fits(entry, combo) for combo in product) for entry in exclude]
    mistakes += [
        Mistake(("exclude", i), "fits no combination: mend the values, or remove it")
        for i, hit in enumerate(used)
        if not hit
    ]
    kept = [combo for combo in product if not any(_fits(entry, combo) for entry in exclude)]
    for i, entry in enumerate(include):
        missing = [name for name in values if name not in entry]
        if missing:
            mistakes.append(Mistake(("include", i), f"lacks {', '.join(missing)}: an entry names every parameter"))
        elif any(_fits(entry, combo) for combo in kept):
            mistakes.append(Mistake(("include", i), "is there already: remove it"))
        else:
            kept.append({name: entry[name] for name in values})
    if not kept and not mistakes:
        mistakes.append(Mistake(("exclude",), "leaves no combination at all: exclude fewer"))
    return kept, mistakes


def _values(name: str, given: Any, mistakes: list[Mistake]) -> Iterator[Any]:
    path: Path = ("parameters", name)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name):
        mistakes.append(Mistake(path, f"bad name of a parameter {name!r}: use letters, digits, '-' and '_'"))
    items = given if isinstance(given, list) else [given]
    if not items:
        mistakes.append(Mistake(path, "has no values: write at least one, such as [1, 2]"))
    seen: set[str] = set()
    for i, item in enumerate(items):
        if item is None or isinstance(item, dict | list):
            mistakes.append(Mistake((*path, i), "a value must be a number or a text"))
        elif written(item) in seen:
            mistakes.append(Mistake((*path, i), f"{written(item)!r} stands twice: remove one"))
        else:
            seen.add(written(item))
            yield item


def _entries(
    raw: Mapping[str, Any], key: str, values: Mapping[str, Any], mistakes: list[Mistake]
) -> Iterator[dict[str, Any]]:
    entries = raw.get(key) or []
    if not isinstance(entries, list):
        mistakes.append(Mistake((key,), "must be a list of combinations, such as - {tp: 2, pp: 4}"))
        return
    for i, entry in enumerate(entries):
        if not isinstance(entry, dict) or not entry:
            mistakes.append(Mistake((key, i), "must be a combination, such as {tp: 2, pp: 4}"))
            continue
        for name, value in entry.items():
            if name not in values:
                advice = did_you_mean(name, values)
                mistakes.append(Mistake((key, i, name), f"unknown parameter {name!r}: {advice}"))
            elif value is None or isinstance(value, dict | list):
                mistakes.append(Mistake((key, i, name), "a value must be a number or a text"))
        yield entry


def _fits(entry: Mapping[str, Any], combo: Mapping[str, Any]) -> bool:
    return all(name in combo and written(combo[name]) == written(value) for name, value in entry.items())


def concrete_name(base: str, combo: Mapping[str, Any], shard: tuple[int, int] | None = None) -> str:
    """`base@tp=2@shard=1of3`: fit for a shell, a file name and a pull request."""
    parts = [f"{name}={_UNSAFE.sub('-', written(value)).strip('-') or 'empty'}" for name, value in combo.items()]
    if shard:
        parts.append(f"shard={shard[0]}of{shard[1]}")
    return "@".join([base, *parts])


def substitute(value: Any, combo: Mapping[str, Any], path: Path = ()) -> tuple[Any, list[Mistake]]:
    """Put the values of a combination in the place of `${{ name }}`; a text of nothing else becomes the value."""
    mistakes: list[Mistake] = []

    def walk(value: Any, path: Path) -> Any:
        if isinstance(value, dict):
            return {
                key: item if not path and key in _SHAPE_KEYS else walk(item, (*path, key))
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [walk(item, (*path, i)) for i, item in enumerate(value)]
        return text(value, path) if isinstance(value, str) and "${{" in value else value

    def text(value: str, path: Path) -> Any:
        for name in TEMPLATE.findall(value):
            if name not in combo:
                mistakes.append(Mistake(path, f"unknown parameter {name!r} in ${{{{ }}}}: {did_you_mean(name, combo)}"))
                return value
        whole = TEMPLATE.fullmatch(value)
        return combo[whole[1]] if whole else TEMPLATE.sub(lambda m: written(combo[m[1]]), value)

    return walk(value, path), mistakes
