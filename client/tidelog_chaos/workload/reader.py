"""One consumer that assigns: it reads new records, crashes now and then, and reads everything at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.message import OFFSET_BEGINNING, OFFSET_INVALID, TopicPartition
from tidelog_chaos.background import BackgroundThread
from tidelog_chaos.workload.client import Poller, Shared
from tidelog_chaos.workload.keys import key_of, partition_of
from tidelog_chaos.workload.library import RunConsumer

_AT_MOST = 500
AT_MOST_IN_THE_END = 2_000
_STALLED_S = 60.0
_MARGIN_S = 30.0
_LOOK_S = 0.25


class Reader(Poller):
    """Reads new records in its thread until :meth:`stop`. Call :meth:`read_everything` after that."""

    def __init__(self, name: str, config: Mapping[str, Any], shared: Shared) -> None:
        super().__init__(name, {**config, "auto.offset.reset": "error"}, shared)
        self._assigned: list[str] = []
        self.progress_s = time.monotonic()
        """The time of the latest progress of :meth:`read_everything`, on the monotonic clock."""

    def read_everything(self, ends: Mapping[str, int]) -> list[str]:
        """Return as a new consumer, assign everything, seek to the beginning and poll to the given end of each key.

        A consumer that fails is replaced by a new one. Return the keys whose end was not reached before a minute passed
        without a new record.
        """
        self.progress_s = time.monotonic()
        while True:
            self._crashing.clear()
            with self._library.consumer(self._config) as consumer:
                self._assign(consumer, sorted(ends), seek_to_beginning=True)
                behind = self._read_to(consumer, ends)
            self._crash()
            if not behind or self._is_stalled:
                return sorted(behind)
            time.sleep(_LOOK_S)

    def _read_to(self, consumer: RunConsumer, ends: Mapping[str, int]) -> set[str]:
        """Poll until the end of each key is reached or the consumer fails; return the keys that are left."""
        behind = {key: end for key, end in ends.items() if end > 0}
        while behind and not (self._is_stalled or self._crashing.is_set()):
            if self._poll(consumer, AT_MOST_IN_THE_END):
                self.progress_s = time.monotonic()
            positions = consumer.position([TopicPartition(*partition_of(key)) for key in behind])
            for at in positions:
                if at.offset != OFFSET_INVALID and at.offset >= behind[key_of(at.topic, at.partition)]:
                    del behind[key_of(at.topic, at.partition)]
        return set(behind)

    @property
    def _is_stalled(self) -> bool:
        return time.monotonic() - self.progress_s > _STALLED_S

    def _live(self) -> None:
        """Read with one consumer, from the beginning of the current keys."""
        with self._library.consumer(self._config) as consumer:
            while self._goes_on:
                keys = self._keys.read
                if keys != self._assigned:
                    self._assign(consumer, keys, seek_to_beginning=False)
                self._poll(consumer, _AT_MOST)
        self._crash()

    def _assign(self, consumer: RunConsumer, keys: Sequence[str], *, seek_to_beginning: bool) -> None:
        """Assign keys: those that were assigned keep their positions, the others begin at the beginning."""
        invocation = self._history.invoke(self._process, "assign", list(keys), seek_to_beginning=seek_to_beginning)
        gone = [TopicPartition(*partition_of(key)) for key in self._assigned if key not in keys]
        new = [TopicPartition(*partition_of(key), OFFSET_BEGINNING) for key in keys if key not in self._assigned]
        consumer.incremental_unassign(gone)
        consumer.incremental_assign(new)
        self._assigned = list(keys)
        self._history.complete(invocation, "ok")

    def _crash(self) -> None:
        super()._crash()
        self._assigned = []


class FinalRead(BackgroundThread):
    """A reader's :meth:`~Reader.read_everything` in a thread, so that a call that does not end leaves the run alone."""

    def __init__(self, reader: Reader, ends: Mapping[str, int]) -> None:
        super().__init__("final read")
        self._reader = reader
        self._ends = ends
        self._behind: list[str] | None = None
        self._error: Exception | None = None

    def finish(self) -> list[str]:
        """Return the keys whose end was not reached; all if the reader makes no progress and does not end.

        Raises:
            TidelogError: The reader failed.
        """
        while self._thread.is_alive():
            self._thread.join(_LOOK_S)
            if time.monotonic() - self._reader.progress_s > _STALLED_S + _MARGIN_S:
                return sorted(self._ends)
        if self._error is not None:
            raise self._error
        return self._behind or []

    def _run(self) -> None:
        try:
            self._behind = self._reader.read_everything(self._ends)
        except Exception as error:  # noqa: BLE001  # the outermost loop of the thread: finish() raises it
            self._error = error
