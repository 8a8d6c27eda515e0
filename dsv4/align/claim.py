"""Check what a text says about aligned losses, from the text alone.

A printed loss and its md5 can be checked without any run: the md5 is that of the four bytes of the float32. A count
such as `main_matches=200/200` cannot; it is at best consistent with what stands beside it, and never proven.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Literal

import numpy as np

from dsv4.align.bits import decimal20, f32_hex, loss_md5, to_float32

Verdict = Literal["consistent", "inconsistent", "cannot-tell"]
MAX_LINE = 20_000  # of a text written by strangers
MAX_CANDIDATES = 4096  # float32 values that a shortened decimal may stand for

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MARKUP = re.compile(r"[`*\"']|\\(?=[_*.])")
_NUMBER = r"[-+]?\d{1,40}(?:\.\d{1,60})?(?:[eE][-+]?\d{1,4})?"
# `final_loss=0.74 md5=9d82…`, `final_loss: rank=0 val=0.74 md5=9d82…`, `loss 0.74 (md5: 9d82…)`
_PAIR = re.compile(
    rf"(?:final[ _]?loss|\bval(?:ue)?\b|\bloss\b)\s*[=:]?\s*(?:rank\s*=\s*\d+\s*)?(?:val(?:ue)?\s*[=:]\s*)?"
    rf"(?P<value>{_NUMBER})[\s,;|(]*md5\s*(?:sum)?\s*[=:]?\s*(?P<md5>[0-9a-fA-F]+)",
    re.IGNORECASE,
)
# `md5=9d82… final_loss=0.74`, on one line
_REVERSED = re.compile(
    rf"\bmd5\s*[=:]?\s*(?P<md5>[0-9a-fA-F]{{32}})[ \t,;|(]*(?:final[ _]?loss|\bval(?:ue)?\b|\bloss\b)"
    rf"\s*[=:]?\s*(?P<value>{_NUMBER})(?![\s,;|(]*md5)",
    re.IGNORECASE,
)
_CELLS = re.compile(rf"\|\s*(?P<value>{_NUMBER})\s*\|(?:[^|]*\|)?\s*(?P<md5>[0-9a-fA-F]{{32}})\s*\|")
# `main_matches=200/200`, `mtp losses: 200 of 200`, `main md5 diff 0/10`
_COUNT = re.compile(
    r"\b(?P<name>main|mtp)"
    r"(?P<words>(?:[ _-]{0,2}(?:loss(?:es)?|md5|bits?|match(?:es|ed)?|diff(?:s|ers)?|mismatch(?:es)?))*)"
    r"\s*(?P<sign>[=:]?)\s*(?P<a>\d{1,9})\s*(?:/|of)\s*(?P<b>\d{1,9})\b",
    re.IGNORECASE,
)
_FIRST = re.compile(r"\bfirst_(?P<name>main|mtp)_diff\s*[=:]\s*(?P<value>[^\n]+)", re.IGNORECASE)
_DIGEST = re.compile(r"\b[0-9a-f]{64}\b", re.IGNORECASE)
_NAME = re.compile(r"\b(main|mtp)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Claim:
    """One statement of the text and what can be said of it."""

    kind: Literal["pair", "count", "first_diff"]
    line: int
    text: str
    loss: str | None  # main or mtp, where the text says so
    verdict: Verdict
    why: str


def check_text(text: str) -> list[Claim]:
    """Find and check every claim of a text, in its order."""
    lines = [_MARKUP.sub("", _ANSI.sub("", raw[:MAX_LINE])) for raw in text.split("\n")]
    claims = list(_pairs("\n".join(lines)))
    latest: dict[str, Claim] = {}  # count of each loss
    for number, line in enumerate(lines, 1):
        for claim in _counts(number, line):
            latest[str(claim.loss)] = claim
            claims.append(claim)
        claims += [_first_diff(number, match, latest) for match in _FIRST.finditer(line)]
    return sorted(claims, key=lambda claim: claim.line)


def _pairs(text: str) -> Iterator[Claim]:
    """Pairs in either order, also with the md5 on the next line."""
    starts = [0, *(m.end() for m in re.finditer("\n", text))]
    end = 0
    for match in sorted(_matches(text), key=re.Match.start):
        if match.start() < end:
            continue  # the same md5, taken by the value before it
        line = bisect_right(starts, match.start())
        begin = max(starts[line - 1], end)
        name = _NAME.findall(text[begin : match.start()]) or _NAME.findall(match[0])
        verdict, why = check_pair(match["value"], match["md5"])
        shown = " ".join(match[0].split())
        yield Claim("pair", line, shown, name[-1].lower() if name else None, verdict, why)
        end = match.end()


def _matches(text: str) -> Iterator[re.Match[str]]:
    for pattern in (_PAIR, _CELLS, _REVERSED):
        yield from pattern.finditer(text)


def check_pair(value: str, md5: str) -> tuple[Verdict, str]:
    """Decide whether a printed loss and an md5 belong together, and say why."""
    md5 = md5.lower()
    if len(md5) != 32:
        return "inconsistent", f"an md5 has 32 hex digits, this has {len(md5)}"
    number = float(value)
    bits = f32_hex(number)
    if loss_md5(number) == md5:
        exact = decimal20(to_float32(number))
        return "consistent", _digits_note(value, exact, bits)
    candidates = _neighbours(value)
    if candidates is None:
        return "cannot-tell", f"more than {MAX_CANDIDATES} float32 values are printed as {value}"
    for candidate in candidates:
        if loss_md5(candidate) == md5:
            return "consistent", f"md5 of float32 {f32_hex(candidate)} = {decimal20(candidate)}, printed shortened"
    return "inconsistent", f"{value} is float32 {bits}, whose md5 is {loss_md5(number)}"


def _digits_note(value: str, exact: str, bits: str) -> str:
    if Decimal(value) == Decimal(exact):
        return f"md5 of float32 {bits}, whose decimals are the ones printed"
    return f"md5 of float32 {bits} = {exact}; the printed decimals are not that float32's own"


def _neighbours(value: str) -> list[float] | None:
    """All float32 values that `value` may be a shortened print of; None if too many to try."""
    printed = Decimal(value)
    exponent = printed.as_tuple().exponent
    if not isinstance(exponent, int):
        return []
    half = Decimal(5).scaleb(exponent - 1)
    here = np.float32(float(value))
    found: list[float] = []
    for direction in (np.float32(-np.inf), np.float32(np.inf)):
        x = np.nextafter(here, direction)
        while abs(Decimal(float(x)) - printed) <= half:
            found.append(float(x))
            if len(found) > MAX_CANDIDATES:
                return None
            x = np.nextafter(x, direction)
    return found


def _counts(number: int, line: str) -> Iterator[Claim]:
    for match in _COUNT.finditer(line):
        a, b = int(match["a"]), int(match["b"])
        possible = b > 0 and a <= b
        if not (possible or match["words"] or match["sign"]):
            continue  # a date or a fraction after the word, such as `main 12/01`
        verdict: Verdict = "consistent" if possible else "inconsistent"
        why = "only the record and its reference can prove it: dsv4 align" if possible else f"{a} of {b} cannot be"
        yield Claim("count", number, match[0], match["name"].lower(), verdict, why)


def _complete(count: str) -> bool:
    """Whether a count says that everything matched."""
    found = _COUNT.fullmatch(count)
    assert found is not None
    if re.search("diff|mismatch", found["words"], re.IGNORECASE):
        return int(found["a"]) == 0
    return found["a"] == found["b"]


def _first_diff(number: int, match: re.Match[str], latest: Mapping[str, Claim]) -> Claim:
    """`first_main_diff` must be None just where the count before it is complete."""
    name, none = match["name"].lower(), match["value"].strip().lower().startswith(("none", "null", "-"))
    text = match[0].strip()
    count = latest.get(name)
    if count is None:
        return Claim("first_diff", number, text, name, "cannot-tell", "no count of this loss stands before it")
    if _complete(count.text) == none:
        return Claim("first_diff", number, text, name, "consistent", f"agrees with line {count.line}")
    return Claim("first_diff", number, text, name, "inconsistent", f"contradicts {count.text} in line {count.line}")


def names_reference(text: str) -> bool:
    """Whether the text holds a sha256, by which a reference could be told from another."""
    return _DIGEST.search(text) is not None


def as_text(claims: Sequence[Claim], *, reference_named: bool) -> str:
    """One line a claim, then the sum."""
    lines = []
    for c in claims:
        what = "consistent, not proven" if c.verdict == "consistent" and c.kind != "pair" else c.verdict
        label = f"{c.loss} " if c.loss and c.kind == "pair" else ""
        lines.append(f"line {c.line}: {label}{c.text}: {what} ({c.why})")
    tally = {v: sum(c.verdict == v for c in claims) for v in ("consistent", "inconsistent", "cannot-tell")}
    lines.append(f"claims={len(claims)} " + " ".join(f"{verdict}={n}" for verdict, n in tally.items()) + " proven=0")
    if claims and not reference_named:
        lines.append("reference: not named by a digest, so a count does not say what was matched")
    return "\n".join(lines)


def as_json(claims: Sequence[Claim]) -> dict[str, Any]:
    """Write the document of `--json`."""
    return {
        "schema": "claim/1",
        "consistent": bool(claims) and all(c.verdict != "inconsistent" for c in claims),
        "proven": False,
        "claims": [asdict(c) for c in claims],
    }
