"""One consumer that assigns: it reads new records, crashes now and then, and reads everything at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from tidelog.message import OFFSET_BEGINNING, OFFSET_INVALID, TopicPartition
from tidelog_chaos.workload.client import Poller, Shared
from tidelog_chaos.workload.keys import key_of, partition_of
from tidelog_chaos.workload.library import RunConsumer

_AT_MOST = 500
_AT_MOST_IN_THE_END = 2_000
_STALLED_S = 60.0


class Reader(Poller):
    """Reads new records in its thread until :meth:`stop`. Call :meth:`read_everything` after that."""

    def __init__(self, name: str, config: Mapping[str, Any], shared: Shared) -> None:
        super().__init__(name, {**config, "auto.offset.reset": "error"}, shared)
        self._assigned: list[str] = []

    def read_everything(self, ends: Mapping[str, int]) -> list[str]:
        """Return as a new consumer, assign everything, seek to the beginning and poll to the given end of each key.

        Return the keys whose end was not reached before a minute passed without a new record.
        """
        with self._library.consumer(self._config) as consumer:
            self._assign(consumer, sorted(ends), seek_to_beginning=True)
            behind = {key: end for key, end in ends.items() if end > 0}
            progress_s = time.monotonic()
            while behind and time.monotonic() - progress_s < _STALLED_S:
                if self._poll(consumer, _AT_MOST_IN_THE_END):
                    progress_s = time.monotonic()
                positions = consumer.position([TopicPartition(*partition_of(key)) for key in behind])
                for at in positions:
                    if at.offset != OFFSET_INVALID and at.offset >= behind[key_of(at.topic, at.partition)]:
                        del behind[key_of(at.topic, at.partition)]
        self._crash()
        return sorted(behind)

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
