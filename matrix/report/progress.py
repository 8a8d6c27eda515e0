"""How far something that takes more than two seconds has come, and how long it will still take. On standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from matrix.report.terminal import interactive, make_console
from matrix.report.text import duration, one_line

_FIRST, _EVERY = 2.0, 10.0  # seconds before the first plain line, and from one to the next

T = TypeVar("T")


def left(done: int, total: int, seconds: float) -> str:
    """Say how long the rest will take, if it goes on as it went.

    >>> left(0, 10, 3.0), left(5, 10, 20.0), left(10, 10, 20.0)
    ('', 'about 20s left', '')
    """
    return f"about {duration(round(seconds / done * (total - done)))} left" if 0 < done < total else ""


def tracked(
    items: Iterable[T],
    total: int,
    what: str,
    *,
    console: Console | None = None,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[T]:
    """Yield the items, and show meanwhile how many are done: a bar on a terminal, now and then a line elsewhere."""
    console = console or make_console(stderr=True)
    if interactive(console):
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            yield from bar.track(items, total=total, description=one_line(what))
        return
    began = now()
    due = began + _FIRST
    for done, item in enumerate(items):
        if (at := now()) >= due:
            due = at + _EVERY
            said = ", ".join(filter(None, [f"{what}: {done} of {total}", left(done, total, at - began)]))
            console.print(one_line(said), soft_wrap=True)
        yield item
