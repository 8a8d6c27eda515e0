"""Stop between two steps when asked to by SIGTERM, as schedulers do before they kill."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, Self

EXIT_CODE = 128 + signal.SIGTERM


class StopRequest:
    """While entered, SIGTERM only sets `requested`. Enter it after Paddle is loaded, which sets its own handler."""

    def __init__(self) -> None:
        self.requested = False
        self._before: Any = None
        self._installed = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Self:
        if self._installed:
            self._before = signal.signal(signal.SIGTERM, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._installed:
            signal.signal(signal.SIGTERM, self._before or signal.SIG_DFL)

    def _take(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True
