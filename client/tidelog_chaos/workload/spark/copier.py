"""The client of a run that is a Spark query: it copies, is killed now and then, and starts again where it was."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from tidelog_chaos.history import SPARK
from tidelog_chaos.workload.client import Client, Shared
from tidelog_chaos.workload.spark.copy_query import CopyQuery
from tidelog_chaos.workload.spark.processes import KILLS
from tidelog_foundation.errors import ConfigError

_LOOK_S: Final = 0.1
_AGAIN_S: Final = 1.0
_ENDS_THE_DRIVER: Final = ("driver", "jvm", "all")
_HASTE: Final = 0.2
"""The share of kills that do not wait until the query has committed a batch since its start."""


class Copier(Client):
    """Starts the query again whenever it has ended, until :meth:`stop`. A crash kills some of its processes."""

    def __init__(self, query: CopyQuery, shared: Shared, seed: int) -> None:
        super().__init__("copier", {}, shared)
        self._query = query
        self._dice = random.Random(seed)
        self._lock = threading.Lock()
        self._position: tuple[int, Mapping[str, int]] = (-1, {})
        self._starts = 0

    @property
    def copied(self) -> Mapping[str, int]:
        """The end of the last committed batch in each input partition."""
        with self._lock:
            return self._position[1]

    def _run(self) -> None:
        try:
            super()._run()
        finally:
            self._query.end()

    def _live(self) -> None:
        """Run the query from one start to its end."""
        self._starts += 1
        self._query.start()
        self._note("started")
        first, killed = self._position[0], False
        while self._query.is_running and not self._stopping.is_set():
            is_at_work = self._position[0] > first
            if self._crashing.is_set() and (is_at_work or self._dice.random() < _HASTE):
                kind = self._dice.choice(KILLS)
                count = self._query.kill(kind, self._dice)
                self._note("killed", kind=kind, processes=count)
                killed = killed or (count > 0 and kind in _ENDS_THE_DRIVER)
            self._crashing.clear()
            self._look()
            self._stopping.wait(_LOOK_S)
        self._look()
        if not (killed or self._stopping.is_set()):
            self._failed()

    def _failed(self) -> None:
        reason = self._query.failure()
        if self._query.is_hopeless:
            raise ConfigError(f"the query of the workload spark cannot run: {reason}")
        self._note("failed", error=reason)
        self._stopping.wait(_AGAIN_S)

    def _look(self) -> None:
        """Note a new batch."""
        batch, ends = self._query.position()
        if batch != self._position[0]:
            with self._lock:
                self._position = batch, ends
            self._note("committed", batch=batch, ends=ends)

    def _note(self, f: str, **members: Any) -> None:
        self._history.note(f, {"start": self._starts, **members}, process=SPARK)


def wait_copied(copier: Copier, ends: Mapping[str, int], deadline_s: float) -> dict[str, list[int]]:
    """Wait until the query has copied up to the given ends; return what it has not, as [copied, end], by partition."""
    while True:
        copied = copier.copied
        behind = {key: [copied.get(key, 0), end] for key, end in ends.items() if copied.get(key, 0) < end}
        if not behind or time.monotonic() > deadline_s or copier.error is not None:
            return behind
        time.sleep(_LOOK_S)
