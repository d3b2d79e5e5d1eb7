"""Writes a line of metrics every second, and keeps the totals for the progress display."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tidelog_chaos.metrics import ClusterView, Counts, Meter, MetricsFile, Outcome

_INTERVAL_S = 1.0


class Recorder:
    """A thread from :meth:`start` to :meth:`stop`; the progress display reads its attributes."""

    def __init__(
        self,
        path: Path,
        meter: Meter,
        now_s: Callable[[], float],
        view: Callable[[], ClusterView],
        faults: Callable[[], Sequence[str]],
    ) -> None:
        self._file = MetricsFile(path)
        self._meter = meter
        self._now_s = now_s
        self._view = view
        self._faults = faults
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)
        self.sends: dict[Outcome, int] = {"ok": 0, "info": 0, "fail": 0}
        self.records = 0
        self.ok_per_s = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Write the remaining counts and end."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._file.close()

    def _run(self) -> None:
        due_s = time.monotonic()
        while not self._stopping.is_set():
            due_s = max(due_s + _INTERVAL_S, time.monotonic())
            self._stopping.wait(due_s - time.monotonic())
            self._write(self._meter.take())

    def _write(self, counts: Counts) -> None:
        for outcome, count in counts.sends.items():
            self.sends[outcome] += count
        self.records += counts.records
        self.ok_per_s = counts.sends["ok"]
        self._file.write(self._now_s(), counts, self._view(), self._faults())
