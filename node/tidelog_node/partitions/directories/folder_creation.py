"""Creation of the folders of new replicas in threads, many at once (see ``log.directory.partition_folder``).

A folder takes several flushes of the disk, and the event loop must not wait for them. The node creates folders in the
background, or immediately for replicas that are about to receive their first records.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from tidelog_foundation.errors import TidelogError
from tidelog_node.partitions.partition import Partition

_DELAY_S = 1.0
_BATCH = 50


class FolderCreation:
    """The queue of new replicas without a folder; ``run`` is a task of the node.

    ``on_failure`` receives each replica whose folder the disk refused.
    """

    def __init__(self, on_failure: Callable[[Partition, TidelogError], None]) -> None:
        self._on_failure = on_failure
        self._waiting: deque[Partition] = deque()
        self._has_work = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, partition: Partition) -> None:
        """Queue a new replica."""
        self._waiting.append(partition)
        self._has_work.set()

    async def run(self) -> None:
        """Create folders until cancelled, a second after the first replica is queued."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            await asyncio.sleep(_DELAY_S)
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(_BATCH, len(self._waiting)))]
                for partition, error in await asyncio.to_thread(_create, batch):
                    self._on_failure(partition, error)


async def create_folders(partitions: Iterable[Partition]) -> None:
    """Create the missing folders, several at a time; a disk error appears again in the append, which reports it."""
    missing = [partition.create_folder() for partition in partitions if not partition.log.has_folder]
    if missing:
        await asyncio.gather(*missing, return_exceptions=True)


def _create(partitions: Sequence[Partition]) -> list[tuple[Partition, TidelogError]]:
    failures = []
    for partition in partitions:
        if partition.log.failure is not None:
            continue
        try:
            partition.log.create_folder()
        except TidelogError as error:
            failures.append((partition, error))
    return failures
