"""Titles and first steps of categories, from the rule pages; the category's id in words where there is no page."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from matrix.triage.ruleset import Category, load_rules


@functools.lru_cache(maxsize=1)
def _pages() -> Mapping[str, Category]:
    return load_rules().categories


def title(category: str, language: str = "en") -> str:
    """Say what the category is called."""
    page = _pages().get(category)
    return (page.title.get(language) or page.title.get("en") if page else None) or category.replace("_", " ")


def first_step(category: str, language: str) -> str:
    """Return the first step of the category's page; empty without one."""
    page = _pages().get(category)
    steps = page.steps.get(language, ()) if page else ()
    return steps[0] if steps else ""


def known() -> frozenset[str]:
    """List ids of all categories that have a page."""
    return frozenset(_pages())
