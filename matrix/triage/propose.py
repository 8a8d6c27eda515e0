"""Proposes a rule from a correction: the line that a person named, with what differs between runs left open."""

from __future__ import annotations

import json
import re

from matrix.triage.rule_model import MARKER

MAX_TEXT = 200  # characters of a line that a pattern is made of: more would fit no other run
# What another run of the same failure would print otherwise: addresses, paths, hexadecimal and other numbers.
_VARIES = re.compile(r"https?://\S+|(?:[\w.@+~-]*/)+[\w.@+~-]+|\b0x[0-9a-fA-F]+\b|\b(?=[\w.]*\d)[\w.]+\b")


def regex_of(text: str) -> str:
    """Return an expression that fits this line, and the same line of another run."""
    text = text.strip()[:MAX_TEXT]
    parts, at = [], 0
    for found in _VARIES.finditer(text):
        parts += [_literal(text[at : found.start()]), r"\S+"]
        at = found.end()
    return re.sub(r"(?:\\S\+){2,}", r"\\S+", "".join([*parts, _literal(text[at:])]))


def _literal(text: str) -> str:
    return re.sub(r"(?:\\? )+", " +", re.sub(r"([.^$*+?{}\[\]\\|()])", r"\\\1", text))


def says_something(text: str) -> bool:
    """Tell whether enough of a line stays the same over runs to know the failure by."""
    fixed = _VARIES.sub(" ", text[:MAX_TEXT])
    return sum(c.isalpha() for c in fixed) >= 8


def fragment(slug: str, text: str) -> str:
    """Return the pattern and the example, to be put into the page of a category that there is."""
    return f"patterns:\n{pattern(slug, text)}\nexamples:\n  match:\n{example(text)}\n"


def pattern(slug: str, text: str) -> str:
    """Return one entry of `patterns`."""
    regex = regex_of(text).replace("'", "''")
    return f"  - {{id: {slug}, regex: '{regex}', where: any, confidence: 0.8, priority: 60}}"


def example(text: str) -> str:
    """Return one entry of `examples.match`."""
    return f"    - {json.dumps(MARKER + text.strip(), ensure_ascii=False)}"
