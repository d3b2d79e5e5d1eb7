"""The threads of a run that work beside it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class BackgroundThread(ABC):
    """A thread that works from :meth:`start` to :meth:`stop`."""

    def __init__(self, name: str) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for its end; a thread that was not started has none."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    @abstractmethod
    def _run(self) -> None:
        """Work until ``_stopping`` is set."""
