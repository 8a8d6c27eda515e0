"""Questions that may go unanswered: to a database on another host, say. A run never waits long for one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
PATIENCE = 2.0  # seconds


def within(seconds: float, ask: Callable[[], T]) -> T:
    """Return an answer, or what asking raised.

    The thread that asks is left alone when it takes too long, and does not keep the program from ending.

    Raises:
        TimeoutError: there was no answer in time.

    """
    answers: list[T] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(ask())
        except BaseException as e:  # noqa: BLE001 -- raised again by who asked
            problems.append(e)

    thread = threading.Thread(target=run, name="question", daemon=True)
    thread.start()
    thread.join(seconds)
    if problems:
        raise problems[0]
    if not answers:
        raise TimeoutError(f"no answer within {seconds:g} s")
    return answers[0]
