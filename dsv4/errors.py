"""Errors that end a command. Each carries the exit code of the contract; none is ever shown as a traceback."""

from __future__ import annotations


class Dsv4Error(Exception):
    """Base of the errors a user sees: one line of what was wrong, and perhaps one line of advice."""

    exit_code = 3

    def __init__(self, message: str, advice: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


class UsageError(Dsv4Error):
    """Wrong use, a bad configuration or bad data: the user can mend it."""

    exit_code = 2


class DivergedError(Dsv4Error):
    """The work itself failed: losses differ, or are not finite."""

    exit_code = 1
