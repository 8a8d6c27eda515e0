"""Signatures: the same failure in another run has the same one, whatever the numbers, paths, addresses, ranks and times."""

from __future__ import annotations

import hashlib
import re

_REPLACE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"https?://\S+"), "<url>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d(?:[T _]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?)?"), "<time>"),
    (re.compile(r"\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b"), "<time>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b"), "<addr>"),
    (re.compile(r"\[[0-9a-f:]{2,39}\](?::\d+)?(?=[\s,.]|$)", re.IGNORECASE), "<addr>"),
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"(?:[A-Za-z]:)?(?:[\\/][\w.@+~%{}-]+){2,}[\\/]?|\b[\w.@+~-]+(?:/[\w.@+~-]+)+"), "<path>"),
    (re.compile(r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b", re.IGNORECASE), "<hex>"),
    (re.compile(r"\btmp[\w-]{4,}\b"), "<tmp>"),
    (
        re.compile(
            r"(?<![A-Za-z_])[-+]?(?:\d+(?:[.,]\d+)*|\.\d+|nan|inf)(?:e[-+]?\d+)?(?![A-Za-z_]{4,})(?:%|[kKMGT]?i?B|ms|s)?(?![A-Za-z_])",
            re.IGNORECASE,
        ),
        "<n>",
    ),
    (re.compile(r"\d+"), "<n>"),
    (re.compile(r"(?:<n>[ ,x×*]*){2,}"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def normalise(text: str) -> str:
    """Text without what differs between runs of the same failure."""
    for pattern, word in _REPLACE:
        text = pattern.sub(word, text)
    return text.strip().lower()


def signature(category: str, exception: str, body: str, tests: tuple[str, ...] = ()) -> str:
    """16 hex digits for a failure. An unknown one is told apart by its text; a named one by category and text too."""
    test = re.sub(r"\[.*\]$", "", tests[0]) if len(tests) == 1 and category in {"unknown", "test_assertion"} else ""
    text = "\n".join((category, exception, normalise(body)[:400], test))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
