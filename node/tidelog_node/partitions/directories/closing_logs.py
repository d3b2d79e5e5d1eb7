"""Closes the logs of offline replicas, in threads or directly."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from tidelog_foundation.errors import TidelogError
from tidelog_node.log import PartitionLog

logger = logging.getLogger(__name__)


class ClosingLogs:
    """The closing logs of a registry, on the event loop; threads close the files."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, log: PartitionLog, error: TidelogError, lock: asyncio.Lock | None = None) -> None:
        """Close the files of a log in a thread, once ``lock`` is free."""

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


def close_offline(log: PartitionLog, failure: TidelogError) -> None:
    """Close the files of a log in an offline directory and ignore disk errors."""
    log.go_offline(failure)
    try:
        log.close()
    except TidelogError as error:
        logger.debug("Closing %s: %s", log.directory, error)
