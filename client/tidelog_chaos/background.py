"""The threads of a run that work beside it."""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from types import FrameType

ENDS_S = 60.0
"""The requests and pauses of a thread end in less."""
_SHOWN_CALLS = 4


class StillRunningError(TimeoutError):
    """A thread that has not ended in time."""


class BackgroundThread(ABC):
    """A thread that works from :meth:`start` to :meth:`stop`."""

    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def request_stop(self) -> None:
        """Tell the thread to end, without waiting."""
        self._stopping.set()

    def stop(self, timeout_s: float = ENDS_S) -> None:
        """End the thread and wait for its end; a thread that was not started has none.

        Raises:
            StillRunningError: It has not ended after ``timeout_s``.
        """
        self.request_stop()
        if self._thread.ident is None:
            return
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            raise StillRunningError(f"{self._thread.name} does not end: it is in {calls_of(self._thread)}")

    @abstractmethod
    def _run(self) -> None:
        """Work until ``_stopping`` is set."""


def calls_of(thread: threading.Thread) -> str:
    """Return the innermost functions that a thread is in, with their lines, the innermost first."""
    frame: FrameType | None = sys._current_frames().get(thread.ident or 0)
    calls: list[str] = []
    while frame is not None and len(calls) < _SHOWN_CALLS:
        code = frame.f_code
        calls.append(f"{code.co_qualname} ({Path(code.co_filename).name}:{frame.f_lineno})")
        frame = frame.f_back
    return ", called by ".join(calls) or "no function"
