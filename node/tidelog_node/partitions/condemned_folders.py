"""The folders of deleted and moved replicas, until their space is given back.

A folder that cannot be renamed yet keeps the place of its replica. A new replica of that name, which must not inherit
the records, waits for it.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from tidelog.errors import TidelogError
from tidelog_node.partitions.clock import Clock
from tidelog_node.partitions.loading import PartitionKey
from tidelog_node.partitions.log_directories import LogDirectories

logger = logging.getLogger(__name__)

_INTERVAL_S = 1.0


class CondemnedFolders:
    """Folders that are renamed to ``-delete``; ``run`` is the task that removes them. All on the event loop.

    What is left at a stop is removed by the next start.
    """

    def __init__(self, directories: LogDirectories, clock: Clock) -> None:
        self._directories = directories
        self._clock = clock
        self._due_ms: dict[Path, int] = {}
        self._refused: dict[PartitionKey, tuple[Path, int]] = {}

    def add(self, path: Path, delay_ms: int) -> None:
        """Remove a folder after ``file.delete.delay.ms``."""
        self._due_ms[path] = self._clock.monotonic_ms() + delay_ms

    def refuse(self, key: PartitionKey, directory: Path, delay_ms: int) -> None:
        """Note that the folder of a deleted replica, in this log directory, could not be renamed."""
        self._refused[key] = directory, delay_ms

    def refused(self) -> list[PartitionKey]:
        """Return the partitions whose folders could not be renamed."""
        return list(self._refused)

    def place_of(self, key: PartitionKey) -> Path:
        """Return the log directory that has the folder of one of :meth:`refused`."""
        return self._refused[key][0]

    async def retry(self, key: PartitionKey) -> None:
        """Rename the folder of one of :meth:`refused`; does nothing for another.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, it cannot be renamed now either.
        """
        path, delay_ms = self._refused.get(key, (None, 0))
        directory = next((d for d in self._directories.online if d.path == path), None)
        if directory is not None:
            self.add(await asyncio.to_thread(self._directories.condemn, directory, key), delay_ms)
        self._refused.pop(key, None)

    async def run(self) -> None:
        """Remove what is due, in a thread, until cancelled; what a disk refuses is left to the next start."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            now_ms = self._clock.monotonic_ms()
            for path in [p for p, due_ms in self._due_ms.items() if due_ms <= now_ms]:
                del self._due_ms[path]
                if path.parent in self._directories.failures:
                    continue
                try:
                    await asyncio.to_thread(self._directories.remove_condemned, path)
                except TidelogError as error:
                    logger.error("A deleted replica is removed by the next start only: %s", error.message)
