"""Runs the blocking writes of a voter's storage in one thread, with group commit.

While a write is being synced, further ones queue up; they then share the next sync.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog_quorum.raft.core import Persist
from tidelog_quorum.raft.storage import RaftStorage, StoredState, open_storage

logger = logging.getLogger(__name__)


class StorageWriter:
    """Owns the storage from :meth:`open` to :meth:`close`; the callbacks run on the event loop.

    ``on_persisted`` gets the sequence of the last write of each sync. After ``on_error`` nothing more is written.
    """

    def __init__(self, on_persisted: Callable[[int], None], on_error: Callable[[TidelogError], None]) -> None:
        self._on_persisted = on_persisted
        self._on_error = on_error
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="raft-storage")
        self._storage: RaftStorage | None = None
        self._queue: list[Persist] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def open(self, directory: Path, cluster_id: str, node_id: int) -> StoredState:
        """Open the storage and return what it holds.

        Raises:
            TidelogError: see :func:`tidelog_quorum.raft.storage.open_storage`.
        """
        loop = asyncio.get_running_loop()
        try:
            opened = await loop.run_in_executor(self._executor, open_storage, directory, cluster_id, node_id)
        except BaseException:
            self._executor.shutdown(wait=False)
            raise
        self._storage, state = opened
        self._task = loop.create_task(self._run(self._storage), name="raft-storage")
        return state

    def submit(self, write: Persist) -> None:
        """Queue a write."""
        self._queue.append(write)
        self._wake.set()

    async def close(self) -> None:
        """Let the write under way finish, drop those that queue, and release the folder."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        if self._storage is not None:
            storage, self._storage = self._storage, None
            try:
                # The executor's one thread comes to this after the write under way.
                await asyncio.get_running_loop().run_in_executor(self._executor, storage.close)
            except TidelogError as error:
                # Nothing depends on it: what was acknowledged is on disk, the rest never will be.
                logger.error("%s", error)
        self._executor.shutdown(wait=False)

    async def _run(self, storage: RaftStorage) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wake.wait()
            self._wake.clear()
            writes, self._queue = self._queue, []
            try:
                await loop.run_in_executor(self._executor, storage.write, writes)
            except TidelogError as error:
                self._on_error(error)
                return
            except Exception as error:
                logger.exception("the Raft storage met a defect")
                self._on_error(error_for(ErrorCode.UNKNOWN_SERVER_ERROR, f"the Raft storage met a defect: {error!r}"))
                return
            self._on_persisted(writes[-1].sequence)
