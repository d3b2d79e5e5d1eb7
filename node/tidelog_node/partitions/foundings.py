"""Makes the folders of new replicas in the background, where many were created at once (see ``log.founding``)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from tidelog.errors import TidelogError
from tidelog_node.partitions.partition import Partition

_DELAY_S = 1.0
_BATCH = 50


class Foundings:
    """Owned by the registry; ``run`` is a task of the node. ``on_failure`` is told a replica whose disk refused."""

    def __init__(self, on_failure: Callable[[Partition, TidelogError], None]) -> None:
        self._on_failure = on_failure
        self._waiting: deque[Partition] = deque()
        self._has_work = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, partition: Partition) -> None:
        """Take on a new replica."""
        self._waiting.append(partition)
        self._has_work.set()

    async def run(self) -> None:
        """Work until cancelled; whoever created many replicas is left alone for a second."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            await asyncio.sleep(_DELAY_S)
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
                for partition, error in await asyncio.to_thread(_complete, batch):
                    self._on_failure(partition, error)


def _complete(partitions: Sequence[Partition]) -> list[tuple[Partition, TidelogError]]:
    failures = []
    for partition in partitions:
        try:
            partition.log.complete_founding()
        except TidelogError as error:
            failures.append((partition, error))
    return failures
