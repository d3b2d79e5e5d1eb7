"""Runs the blocking writes of a replica's storage in one thread, with group commit.

While a write is synced, further ones queue; they then share the next sync. The thread is a daemon, so that a disk that
never answers cannot keep the process from ending. Such a disk is an error after a while: a leader that only waits for
it would stay in office forever, because its heartbeats need no disk, and could commit nothing.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.unexpected import report_unexpected
from tidelog_quorum.raft.core.commands import StoreChunk
from tidelog_quorum.raft.storage.raft_storage import RaftStorage, Write, Written
from tidelog_quorum.raft.storage.stored_log import StoredState

logger = logging.getLogger(__name__)
_CLOSE_TIMEOUT_S = 10
_WATCH_INTERVAL_S = 1.0
_MAX_SILENT_INTERVALS = 30
_MAX_QUEUED_CHUNK_BYTES = 8 * 1024 * 1024


class StorageWriter:
    """The owner of the storage from :meth:`open` to :meth:`close`; the callbacks run on the event loop.

    Each sync calls ``on_written``. After ``on_error`` nothing more is written.
    """

    def __init__(self, on_written: Callable[[Written], None], on_error: Callable[[TidelogError], None]) -> None:
        self._on_written = on_written
        self._on_error = on_error
        self._queue: queue.SimpleQueue[Write | None] = queue.SimpleQueue()
        self._chunk_bytes_in = 0
        self._chunk_bytes_out = 0
        self._writes_begun = 0
        self._is_writing = False
        self._watch: asyncio.TimerHandle | None = None
        self._closing = False
        self._closed: asyncio.Future[None] | None = None

    async def open(self, open_storage: Callable[[], tuple[RaftStorage, StoredState]]) -> StoredState:
        """Open the storage and return its content.

        Raises:
            TidelogError: see :func:`tidelog_quorum.raft.storage.raft_storage.open_storage`.
        """
        loop = asyncio.get_running_loop()
        storage, state = await loop.run_in_executor(None, open_storage)
        self._closed = loop.create_future()
        threading.Thread(target=self._run, args=(storage, loop), name="raft-storage", daemon=True).start()
        self._watch = loop.call_later(_WATCH_INTERVAL_S, self._on_watch, loop, 0, 0)
        return state

    def submit(self, write: Write) -> None:
        """Queue a write."""
        if isinstance(write, StoreChunk):
            self._chunk_bytes_in += len(write.chunk)
        self._queue.put(write)

    @property
    def accepts_chunks(self) -> bool:
        """True if there is space for snapshot chunks. Unwritten chunks stay in memory."""
        return self._chunk_bytes_in - self._chunk_bytes_out < _MAX_QUEUED_CHUNK_BYTES

    async def close(self) -> None:
        """Finish the current write, drop the queued ones, and release the folder."""
        self._closing = True
        if self._watch is not None:
            self._watch.cancel()
        self._queue.put(None)
        if self._closed is None:
            return
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await self._closed
        except TimeoutError:
            logger.error("the disk of the metadata log has not answered for %s s", _CLOSE_TIMEOUT_S)

    def _on_watch(self, loop: asyncio.AbstractEventLoop, write: int, silent_intervals: int) -> None:
        """Count the intervals that one write takes; a clock would also run while the process is stopped."""
        if self._closing:
            return
        is_same = self._is_writing and self._writes_begun == write
        silent_intervals = silent_intervals + 1 if is_same else 0
        if silent_intervals >= _MAX_SILENT_INTERVALS:
            waited_s = silent_intervals * _WATCH_INTERVAL_S
            text = f"the disk of the metadata log has not answered for {waited_s:g} s"
            self._on_error(error_for(ErrorCode.KAFKA_STORAGE_ERROR, text))
            return
        self._watch = loop.call_later(_WATCH_INTERVAL_S, self._on_watch, loop, self._writes_begun, silent_intervals)

    def _run(self, storage: RaftStorage, loop: asyncio.AbstractEventLoop) -> None:
        error: TidelogError | None = None
        while True:
            writes = self._take()
            if self._closing:
                break
            if error is not None:
                continue
            self._writes_begun += 1
            self._is_writing = True
            try:
                written = storage.write(writes)
                self._chunk_bytes_out += sum(len(w.chunk) for w in writes if isinstance(w, StoreChunk))
            except TidelogError as raised:
                error = raised
            except Exception as raised:  # noqa: BLE001  # logged
                error = report_unexpected(logger, raised, "the Raft storage failed unexpectedly")
            else:
                _call(loop, self._on_written, written)
            self._is_writing = False
            if error is not None:
                _call(loop, self._on_error, error)
        self._close(storage, loop)

    def _take(self) -> list[Write]:
        """Wait for a write and return it with all writes queued behind it."""
        writes = [self._queue.get()]
        while not self._queue.empty():
            writes.append(self._queue.get_nowait())
        return [write for write in writes if write is not None]

    def _close(self, storage: RaftStorage, loop: asyncio.AbstractEventLoop) -> None:
        try:
            storage.close()
        except TidelogError as error:
            # Nothing depends on it: everything acknowledged is on disk, the rest never will be.
            logger.error("%s", error)
        _call(loop, self._note_closed)

    def _note_closed(self) -> None:
        assert self._closed is not None
        if not self._closed.done():
            self._closed.set_result(None)


def _call(loop: asyncio.AbstractEventLoop, callback: Callable[..., None], *arguments: object) -> None:
    try:
        loop.call_soon_threadsafe(callback, *arguments)
    except RuntimeError:
        # The loop has closed: a stop did not wait for a disk that hangs.
        logger.warning("the event loop closed before the metadata log's disk answered")
