"""Takes snapshots of the listener's state, and reads chunks of the latest one for other replicas."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidelog_quorum.raft.core.commands import SendSnapshot
from tidelog_quorum.raft.core.config import SnapshotConfig
from tidelog_quorum.raft.core.messages import Snapshot, SnapshotRequest
from tidelog_quorum.raft.delivery import Delivery
from tidelog_quorum.raft.event_loop import call_in_thread
from tidelog_quorum.raft.protocol import RaftListener
from tidelog_quorum.raft.storage.snapshot_files import SnapshotReader, write_snapshot

logger = logging.getLogger(__name__)
_STOP_TIMEOUT_S = 5


class SnapshotTaker:
    """Starts snapshots by :class:`SnapshotConfig` and writes one at a time in a thread.

    ``on_taken`` gets each snapshot once its file is on disk; exceptions of the listener or the disk go to ``on_error``.
    """

    def __init__(
        self,
        directory: Path,
        config: SnapshotConfig,
        listener: RaftListener,
        delivery: Delivery,
        on_taken: Callable[[Snapshot], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._directory = directory
        self._config = config
        self._listener = listener
        self._delivery = delivery
        self._on_taken = on_taken
        self._on_error = on_error
        self._last_index = 0
        self._task: asyncio.Task[None] | None = None
        self._age_timer: asyncio.TimerHandle | None = None
        self._stopping = False

    def start(self, snapshot: Snapshot | None) -> None:
        """Start with the latest snapshot on disk."""
        if snapshot is not None:
            self._last_index = snapshot.last_index
        self._restart_age()

    def installed(self, snapshot: Snapshot) -> None:
        """Record a snapshot that came from another replica."""
        self._last_index = max(self._last_index, snapshot.last_index)
        self._restart_age()

    def note_delivered(self) -> None:
        """Take a snapshot if enough bytes were delivered since the last one."""
        if self._delivery.bytes_since_snapshot >= self._config.max_bytes_between:
            self._begin()

    async def take(self) -> None:
        """Wait for a snapshot of everything delivered to the listener before the call."""
        wanted = self._delivery.position[0]
        while self._last_index < wanted and not self._stopping:
            await self._delivery.restored.wait()
            self._begin()
            if self._task is not None:
                await asyncio.wait([self._task])

    def give_up(self) -> None:
        """Take no more snapshots; one that is being written ends soon."""
        self._stopping = True
        if self._age_timer is not None:
            self._age_timer.cancel()

    async def stop(self) -> None:
        """Take no more snapshots, and wait until nothing is being written."""
        self.give_up()
        task = self._task
        if task is not None:
            await asyncio.wait([task], timeout=_STOP_TIMEOUT_S)
            task.cancel()

    def _begin(self) -> None:
        if self._task is not None or self._stopping or not self._delivery.restored.is_set():
            return
        if self._delivery.position[0] > self._last_index:
            self._task = asyncio.get_running_loop().create_task(self._write(), name="raft-take-snapshot")

    async def _write(self) -> None:
        (index, term), voters = self._delivery.position, self._delivery.voters
        self._delivery.bytes_since_snapshot = 0
        try:
            chunks = self._listener.capture()
            written = await call_in_thread(
                "raft-snapshot", write_snapshot, self._directory, index, term, chunks, lambda: self._stopping
            )
            if written is not None:
                size, checksum = written
                logger.info("took a snapshot of the metadata up to offset %s, %s bytes", index, size)
                self._last_index = max(self._last_index, index)
                self._on_taken(Snapshot(index, term, voters, size, checksum))
        except Exception as error:  # noqa: BLE001  # the engine fails with it
            self._stopping = True
            self._on_error(error)
        finally:
            self._task = None
            self._restart_age()

    def _restart_age(self) -> None:
        if self._age_timer is not None:
            self._age_timer.cancel()
            self._age_timer = None
        if self._config.max_interval_ms and not self._stopping:
            loop = asyncio.get_running_loop()
            self._age_timer = loop.call_later(self._config.max_interval_ms / 1000, self._on_age)

    def _on_age(self) -> None:
        self._begin()
        if self._task is None:
            self._restart_age()


class SnapshotSender:
    """Reads chunks in one thread, one at a time for each receiver. ``send`` is called with them on the event loop."""

    def __init__(
        self,
        node_id: int,
        directory: Path,
        chunk_bytes: int,
        send: Callable[[int, SnapshotRequest], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._node_id = node_id
        self._chunk_bytes = chunk_bytes
        self._send = send
        self._on_error = on_error
        self._reader = SnapshotReader(directory)
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="raft-snapshot-read")
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def send_chunk(self, command: SendSnapshot) -> None:
        """Send a chunk, unless one for the same receiver is being read; the receiver then asks again."""
        if command.to not in self._tasks:
            loop = asyncio.get_running_loop()
            self._tasks[command.to] = loop.create_task(self._read(command), name=f"raft-chunk-{command.to}")

    async def stop(self) -> None:
        """Stop sending and close the files."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._executor.submit(self._reader.close)
        self._executor.shutdown(wait=False)

    async def _read(self, command: SendSnapshot) -> None:
        snapshot, position = command.snapshot, command.position
        try:
            loop = asyncio.get_running_loop()
            chunk = await loop.run_in_executor(self._executor, self._reader.read, snapshot, position, self._chunk_bytes)
        except Exception as error:  # noqa: BLE001  # the engine fails with it
            self._on_error(error)
            return
        finally:
            del self._tasks[command.to]
        if chunk is not None:
            self._send(command.to, SnapshotRequest(self._node_id, command.term, snapshot, position, chunk))
