"""The queue workload: consumers assign the partitions that are written to; each reads all of them."""

from __future__ import annotations

from collections.abc import Sequence

from tidelog_chaos.workload.reader import Reader
from tidelog_chaos.workload.workload import Workload

_CONSUMERS = 2


class QueueWorkload(Workload):
    """The readers of the fault phase also read everything at the end."""

    def _make_readers(self) -> Sequence[Reader]:
        consumers = self._settings.consumers or _CONSUMERS
        config = {**self._clients_servers, **self._settings.consumer}
        self._assigning = [
            Reader(f"reader {n}", self._library, config, self.keys, self._history, self._meter, self._new_process)
            for n in range(consumers)
        ]
        return self._assigning

    def _final_readers(self) -> Sequence[Reader]:
        return self._assigning
