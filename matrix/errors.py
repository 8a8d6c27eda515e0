"""Errors that end a command. Each carries the exit code of the contract; none is ever shown as a traceback."""

from __future__ import annotations

import errno

_MEND = {
    errno.ENOSPC: "free some space (matrix prune removes old runs)",
    errno.EDQUOT: "free some space (matrix prune removes old runs)",
    errno.EROFS: "run it in a folder that can be written",
    errno.EACCES: "run it in a folder that you may write",
    errno.EPERM: "run it in a folder that you may write",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
}


class MatrixError(Exception):
    """Base of the errors a user sees: one line of what was wrong, and perhaps one line of advice."""

    exit_code = 3

    def __init__(self, message: str, advice: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


def by_system(e: OSError, then: str = "") -> ToolError:
    """Tell what the system refused, and `then`, what to do once that is mended."""
    where = f": {e.filename}" if e.filename else ""
    advice = _MEND.get(e.errno or 0)
    return ToolError(f"{(e.strerror or str(e)).lower()}{where}", ", then: ".join(filter(None, [advice, then])) or None)


class UsageError(MatrixError):
    """Wrong use or a bad spec: the user can mend it."""

    exit_code = 2


class ToolError(MatrixError):
    """The tool or its environment failed: no engine, no network, a locked database."""

    exit_code = 3
