"""The log cleaner as a job with changeable settings: it is stopped in order and restarted with new ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from tidelog_node.partitions.cleaning import CleanerSettings
from tidelog_node.server.config import NodeConfig


class CleanerJob:
    """The compaction task of a node, which restarts with each change of its settings.

    ``clean`` compacts with the given settings until it is cancelled.
    """

    def __init__(self, config: NodeConfig, clean: Callable[[CleanerSettings], Coroutine[None, None, None]]) -> None:
        self._settings = cleaner_settings(config)
        self._clean = clean
        self._changed = asyncio.Event()

    def change(self, config: NodeConfig) -> None:
        """Restart the cleaner if its settings have changed."""
        settings = cleaner_settings(config)
        if settings != self._settings:
            self._settings = settings
            self._changed.set()

    async def run(self) -> None:
        """Compact until cancelled."""
        while True:
            self._changed.clear()
            cleaning = asyncio.create_task(self._clean(self._settings), name="log-cleaner-run")
            changed = asyncio.create_task(self._changed.wait(), name="log-cleaner-settings")
            try:
                await asyncio.wait((cleaning, changed), return_when=asyncio.FIRST_COMPLETED)
            finally:
                cleaning.cancel()
                changed.cancel()
                await asyncio.wait((cleaning, changed))
            if not cleaning.cancelled():
                cleaning.result()


def cleaner_settings(config: NodeConfig) -> CleanerSettings:
    """Return a node's ``log.cleaner.*`` settings."""
    return CleanerSettings(
        threads=config.log_cleaner_threads,
        dedupe_buffer_bytes=config.log_cleaner_dedupe_buffer_size,
        load_factor=config.log_cleaner_io_buffer_load_factor,
        io_buffer_bytes=config.log_cleaner_io_buffer_size,
        max_bytes_per_second=config.log_cleaner_io_max_bytes_per_second,
        backoff_ms=config.log_cleaner_backoff_ms,
    )
