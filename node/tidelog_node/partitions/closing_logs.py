"""Closes the logs of replicas that went offline, in the background."""

from __future__ import annotations

import asyncio
import contextlib

from tidelog_foundation.errors import TidelogError
from tidelog_node.log import PartitionLog
from tidelog_node.partitions.loading import close_offline


class ClosingLogs:
    """Owned by the registry, on the event loop; files are closed in threads."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, log: PartitionLog, error: TidelogError, lock: asyncio.Lock | None = None) -> None:
        """Close the files of a log in a thread, when the holder of ``lock`` is done with it."""

        async def close() -> None:
            async with lock or contextlib.nullcontext():
                await asyncio.to_thread(close_offline, log, error)

        task = asyncio.get_running_loop().create_task(close(), name=f"close-offline-{log.directory.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def wait(self) -> None:
        """Wait until no file is being closed."""
        while self._tasks:
            await asyncio.wait(self._tasks)
