"""Causes that this program saw by itself, where no log line need carry the evidence."""

from __future__ import annotations

import hashlib

from matrix.triage.model import Cause


def witnessed(
    category: str, text: str, *, rule: str, about: str, fix: tuple[str, str] | None = None, line: int | None = None
) -> Cause:
    """Return a cause whose evidence is `text`. `fix` is in English and Chinese.

    It is the same failure in every run that has the category and `about` (a job, a hand-off, a kind of difference) in
    common, whatever the numbers in the text.
    """
    return Cause(
        category=category,
        rule=rule,
        confidence=1.0,
        line=line,
        text=text,
        signature=hashlib.sha256(f"{category}\0{about}".encode(errors="replace")).hexdigest()[:16],
        fix={"en": fix[0], "zh": fix[1]} if fix else {},
    )
