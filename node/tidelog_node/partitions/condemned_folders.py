"""The folders of deleted and moved replicas, until their space is given back."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from tidelog.errors import TidelogError
from tidelog_node.partitions.clock import Clock
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

    def add(self, path: Path, delay_ms: int) -> None:
        """Remove a folder after ``file.delete.delay.ms``."""
        self._due_ms[path] = self._clock.monotonic_ms() + delay_ms

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
