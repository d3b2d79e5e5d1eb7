"""Makes the folders of new replicas in threads, where many were created at once (see ``log.founding``).

In the background, and at once for those that are about to get their first records: making a folder takes several
flushes of the disk, for which the event loop must not wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from tidelog_foundation.errors import TidelogError
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


async def found_all(partitions: Iterable[Partition]) -> None:
    """Make the folders of those that have none, several at a time; what a disk refuses, the append says."""
    unfounded = [partition.found() for partition in partitions if not partition.log.is_founded]
    if unfounded:
        await asyncio.gather(*unfounded, return_exceptions=True)


def _complete(partitions: Sequence[Partition]) -> list[tuple[Partition, TidelogError]]:
    failures = []
    for partition in partitions:
        if partition.log.failure is not None:
            continue
        try:
            partition.log.complete_founding()
        except TidelogError as error:
            failures.append((partition, error))
    return failures
