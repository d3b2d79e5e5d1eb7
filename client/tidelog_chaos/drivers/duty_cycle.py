"""Limits a process to a share of the CPU time: suspends and resumes it many times a second."""

from __future__ import annotations

import threading

from tidelog.testing.process import ProcessHandle

_PERIOD_S = 0.1


class DutyCycle:
    """Suspends a process for a part of each tenth of a second until :meth:`end`, which leaves it running."""

    def __init__(self, process: ProcessHandle, share: float) -> None:
        self._process = process
        self._share = share
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"slow {process.name}", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Let the process run at full speed."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._ending.is_set():
                self._process.pause()
                self._ending.wait(_PERIOD_S * (1 - self._share))
                self._process.resume()
                self._ending.wait(_PERIOD_S * self._share)
        finally:
            self._process.resume()
