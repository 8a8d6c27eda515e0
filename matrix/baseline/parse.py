"""Reads the training losses of a log, whatever the trainer that printed them.

Numbers are understood in every form that programs print: signs, exponents, nan, inf, hexadecimal floats, and wrapped
as in `tensor(1.2, device='cuda:0')`, `np.float32(1.2)` or Paddle's `Tensor(shape=[], dtype=float32, …, 1.2)`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_LINE = 64 << 10  # bytes of a line that are looked at

_NUMBER = (
    r"(?P<number>[-+]?(?:0[xX][0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?(?:[pP][-+]?\d+)?"
    r"|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf(?:inity)?))(?![\w%])(?!\.\d)"
)
_PADDLE = r"Tensor\(shape=\[[\d, ]{0,40}\][^\n]{0,160}?stop_gradient=(?:True|False),\s{0,16}"
_WRAPPED = rf"(?:{_PADDLE}|[a-zA-Z_][\w.]{{0,40}}\(\s?)?\[{{0,4}}"
_AFTER_LOSS = re.compile(rf"['\"]?\s{{0,8}}(?:[:=：]|is\b|was\b|->)?\s{{0,8}}['\"]?{_WRAPPED}{_NUMBER}", re.IGNORECASE)
_FULL_NUMBER = re.compile(rf"\s*{_WRAPPED}{_NUMBER}[\])]*\s*", re.IGNORECASE)
_SEVERAL = re.compile(r"\s*,\s*[-+.\d]")
_STEP_WORDS = ("global_step", "global step", "step", "iteration", "iter")  # the best first
_AFTER_STEP = re.compile(r"['\"]?\s{0,16}[:=#]?\s{0,16}['\"]?(\d{1,15})(?!\d*\.?\d)")
_NO_STEP = re.compile(r"(?:[\w/.]|per |max |total )$")
_STEP_KEYS = (
    "global_step",
    "global step",
    "step",
    "_step",
    "trainer/global_step",
    "train/global_step",
    "iteration",
    "iter",
)
_RANK = re.compile(
    r"\[(?:rank|default)[ :=]?(\d{1,5})\]|\brank[ :=]{0,2}(\d{1,5})\b|\[\d+,(\d{1,5})\]<std", re.IGNORECASE
)
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_PADDLE_CONTINUES = re.compile(r"Tensor\(shape=[^()]{0,120}(?:\([^()]*\))?[^()]{0,120},\s*$")
_JOINED = re.compile(r"[\w./-]*$")
_WORD = re.compile(r"(\w+)[ \t]+$")

# Names that stand for the training loss, best first: where a log has several, the first is taken.
_NAMES = ("loss", "lm", "train", "training", "main", "total")
# Words before `loss` that make it another one.
_OTHER = frozenset(
    {
        *("eval", "evaluation", "val", "valid", "validation", "test", "dev", "mtp", "aux", "auxiliary", "z", "balance"),
        *("balancing", "router", "moe", "kl", "indexer", "contrastive", "best", "min", "max", "avg", "average", "mean"),
        *("baseline", "expected", "reference", "ref", "want", "target", "golden", "gt", "truth", "previous", "old"),
        *("smoothed", "ema", "initial", "final", "scale", "reg", "regularization", "distill", "distillation"),
    }
)


@dataclass(frozen=True, slots=True)
class Loss:
    """A loss that was read. `micro` and `name` only differ where a record tells micro-batches or heads apart."""

    step: int
    value: float
    text: str  # the number as it was written
    line: int | None = None  # 1-based
    micro: int | None = None
    name: str = "loss"
    rank: int | None = None

    @property
    def key(self) -> tuple[int, int, str]:
        """What must be the same for two losses to be compared."""
        return self.step, self.micro or 0, self.name

    @property
    def where(self) -> str:
        """The step in words, as in `step 7` or `step 7 micro 1 (mtp)`."""
        micro = f" micro {self.micro}" if self.micro is not None else ""
        return f"step {self.step}{micro}" + (f" ({self.name})" if self.name != "loss" else "")


def number(text: str) -> float | None:
    """Return the number that a text is, None if it is none.

    >>> number("1e-5"), number("-inf"), number("tensor(1.5, dtype=float32)"), number("0x1.8p+1"), number("x")
    (1e-05, -inf, 1.5, 3.0, None)
    """
    m = _FULL_NUMBER.match(text)
    if m is None or (m.end() != len(text) and not text[m.end() :].startswith((",", ")"))):
        return None
    return _float(m["number"])


def _float(text: str) -> float:
    if text.lstrip("+-")[:2] in ("0x", "0X"):
        return float.fromhex(text)
    return float(text)


def read_log(lines: Iterable[str]) -> list[Loss]:
    """Return the training losses of a log, in its order.

    Lines carry a step and a loss in either order. Of several names the best known one is taken, of several ranks the
    lowest. Where no line has a step (as in Hugging Face's `{'loss': …}`) losses are counted from 1.
    """
    found = list(_scan(lines))
    stepped = [f for f in found if f.step >= 0]
    if not stepped:
        plain = _best(found)
        return [_with(f, step=i) for i, f in enumerate(plain, 1)]
    return _best(stepped)


def _best(found: list[Loss]) -> list[Loss]:
    names = {f.name for f in found}
    best = next((n for n in _NAMES if n in names), None)
    chosen = [f for f in found if f.name == best]
    ranks = [f.rank for f in chosen if f.rank is not None]
    if ranks:
        chosen = [f for f in chosen if f.rank == min(ranks)]
    return [_with(f) for f in chosen]


def _with(loss: Loss, step: int | None = None) -> Loss:
    return Loss(loss.step if step is None else step, loss.value, loss.text, loss.line, rank=loss.rank)


def _scan(lines: Iterable[str]) -> Iterator[Loss]:
    """Yield the losses of each line; step -1 where the line has none."""
    waiting: str | None = None  # a line that ends within Paddle's two-line print of a tensor
    for n, raw in enumerate(lines, 1):
        if waiting is not None:
            yield from _scan_line(waiting + " " + raw.strip()[:MAX_LINE], n - 1)
            waiting = None
            continue
        if "loss" not in raw and "loss" not in raw.lower():
            continue
        clean = _ANSI.sub("", raw[:MAX_LINE]) if "\x1b" in raw else raw[:MAX_LINE]
        for part in clean.split("\r"):
            if "Tensor(" in part and _PADDLE_CONTINUES.search(part):
                waiting = part.rstrip()
            else:
                yield from _scan_line(part, n)


def _scan_line(line: str, n: int) -> Iterator[Loss]:
    stripped = line.strip()
    if stripped.startswith("{") and stripped.endswith("}"):
        try:
            parsed = json.loads(stripped)
        except (ValueError, RecursionError):
            pass
        else:
            if isinstance(parsed, dict):
                yield from _of_object(parsed, n)
            return
    low = line.lower()
    if len(low) != len(line):  # a letter that changes its length, so that places would not agree
        low = line
    step, rank = _step(line, low), _rank(line, low)
    at = low.find("loss")
    while at >= 0:
        m = _AFTER_LOSS.match(line, at + 4)
        name = _name(line[max(0, at - 60) : at]) if m else None
        if m and name and not ("[" in m[0] and _SEVERAL.match(line, m.end())):
            yield Loss(step, _float(m["number"]), m["number"], n, name=name, rank=rank)
        at = low.find("loss", at + 4)


def _step(line: str, low: str) -> int:
    """Return the step that a line is about, -1 if it names none. The best word counts wherever it stands."""
    for word in _STEP_WORDS:
        at = low.find(word)
        while at >= 0:
            begin = at - 1 if word == "step" and at and line[at - 1] == "_" else at  # `_step`, as some loggers have it
            if (m := _AFTER_STEP.match(line, at + len(word))) and not _NO_STEP.search(low[max(0, begin - 6) : begin]):
                return int(m[1])
            at = low.find(word, at + 1)
    return -1


def _rank(line: str, low: str) -> int | None:
    """Return the rank that a line is tagged with."""
    if "rank" not in low and "default" not in low and "<std" not in low:
        return None
    m = _RANK.search(line)
    return int(next(g for g in m.groups() if g)) if m else None


def _name(before: str) -> str | None:
    """Name a loss by what stands before the word, None if it is not a training loss."""
    joined = _JOINED.search(before)
    if joined and joined[0]:
        name = joined[0].strip("_-/.").lower()
        return name if name in _NAMES else ("loss" if not name else None)
    word = _WORD.search(before)
    if word is None:
        return "loss"
    name = word[1].lower()
    return None if name in _OTHER else name if name in _NAMES else "loss"


def _of_object(found: dict[str, Any], n: int) -> Iterator[Loss]:
    steps = [found[k] for k in _STEP_KEYS if k in found]
    step = next((int(s) for s in steps if isinstance(s, int | float) and math.isfinite(s) and s == int(s)), -1)
    rank = found.get("rank")
    for key, value in found.items():
        if not key.lower().endswith("loss") or (name := _name(key[:-4])) is None:
            continue
        # Writers without NaN put null in its place.
        read = math.nan if value is None else number(str(value)) if isinstance(value, int | float | str) else None
        if read is not None and not isinstance(value, bool):
            yield Loss(step, read, str(value), n, name=name, rank=rank if type(rank) is int else None)


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a file, decoded with replacement; what a line has beyond MAX_LINE bytes is dropped."""
    with path.open("rb") as f:
        while raw := f.readline(MAX_LINE):
            rest = raw
            while rest and not rest.endswith(b"\n"):
                rest = f.readline(MAX_LINE)
            yield raw.decode("utf-8", "replace").rstrip("\n")
