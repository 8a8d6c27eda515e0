"""Titles and first steps of categories, from the rule pages; the category's id where there is no page."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any


@functools.lru_cache(maxsize=1)
def _pages() -> Mapping[str, Any]:
    try:
        module = importlib.import_module("matrix.triage.ruleset")
    except ModuleNotFoundError:
        return {}
    pages: Mapping[str, Any] = module.load_rules().categories
    return pages


def title(category: str, language: str) -> str:
    """Say what the category is called."""
    page = _pages().get(category)
    return str(page.title.get(language) or page.title.get("en") or category) if page else category.replace("_", " ")


def first_step(category: str, language: str) -> str:
    """Return the first step of the category's page; empty without one."""
    page = _pages().get(category)
    steps = page.steps.get(language, ()) if page else ()
    return str(steps[0]) if steps else ""


def known() -> frozenset[str]:
    """Ids of all categories that have a page."""
    return frozenset(_pages())
