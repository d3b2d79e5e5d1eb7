"""Delivers committed entries to the listener, in order and in slices, and pauses while a snapshot is restored.

A few entries are delivered at once. More of them, as after a start with a long log, are delivered in slices of a few
milliseconds with turns of the event loop in between, so that heartbeats and votes get through. A single large entry is
read in another thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from pathlib import Path

from tidelog_foundation.errors import TidelogError
from tidelog_quorum.raft.core.commands import Commit, ReadReady, RestoreSnapshot
from tidelog_quorum.raft.core.messages import Entry, Snapshot
from tidelog_quorum.raft.core.voters import VoterSet
from tidelog_quorum.raft.event_loop import call_in_thread
from tidelog_quorum.raft.protocol import CommittedEntry, RaftListener
from tidelog_quorum.raft.storage.snapshot_files import read_snapshot

_SLICE_S = 0.01
_MAX_ENTRIES_AT_ONCE = 8
_MAX_BYTES_AT_ONCE = 16 * 1024
_LARGE_ENTRY_BYTES = 32 * 1024
"""Some thousand metadata records, or five milliseconds."""
_NEWER_SNAPSHOT_S = 10.0
"""The maximum time from the replacement of a snapshot's file until the core names its successor."""


class Delivery:
    """The delivery to one listener, from the engine's start to its stop, on the event loop.

    ``position`` is the (index, term) of the last delivered entry or snapshot; ``voters`` are those in force there;
    ``bytes_since_snapshot`` is the size of the payloads since the last snapshot. ``restored`` is set except while the
    listener's state is being replaced. ``on_delivered`` is called after a delivery of entries, ``on_read`` when
    everything that a read covers was delivered. Exceptions of the listener or the disk that occur after
    :meth:`deliver` returned go to ``on_error``.
    """

    def __init__(
        self,
        directory: Path,
        listener: RaftListener,
        voters: VoterSet,
        on_delivered: Callable[[], None],
        on_read: Callable[[int, int], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self.position = (0, 0)
        self.voters = voters
        self.bytes_since_snapshot = 0
        self._directory = directory
        self._listener = listener
        self._on_delivered = on_delivered
        self._on_read = on_read
        self._on_error = on_error
        self._waiting: deque[Entry | RestoreSnapshot | ReadReady] = deque()
        self._task: asyncio.Task[None] | None = None
        self.restored = asyncio.Event()
        self.restored.set()
        self._snapshot_came = asyncio.Event()

    def deliver(self, item: Commit | RestoreSnapshot | ReadReady) -> None:
        """Deliver the item, now or after the pending ones."""
        if isinstance(item, Commit):
            self._waiting.extend(item.entries)
        else:
            self._waiting.append(item)
            self._snapshot_came.set()
        if self._task is not None:
            return
        self._deliver_slice()
        if self._waiting:
            self._task = asyncio.get_running_loop().create_task(self._deliver_rest(), name="raft-deliver")

    async def stop(self) -> None:
        """Stop all deliveries."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _deliver_rest(self) -> None:
        try:
            while self._waiting:
                # Let other tasks run first: a slice was just delivered.
                await asyncio.sleep(0)
                await self._deliver_in_thread()
                self._deliver_slice()
            self._task = None
        except Exception as error:  # noqa: BLE001  # the engine fails with it
            # Nothing may follow an entry that was not delivered.
            self._on_error(error)
        finally:
            self.restored.set()

    def _deliver_slice(self) -> None:
        """Deliver entries that need no thread, for the time of a slice."""
        now_s = asyncio.get_running_loop().time
        end_s = now_s() + _SLICE_S
        while self._waiting and now_s() < end_s:
            item = self._waiting[0]
            match item:
                case ReadReady(request_id, index):
                    self._waiting.popleft()
                    self._on_read(request_id, index)
                case RestoreSnapshot():
                    return
                case _ if self._reader_of(item) is not None:
                    return
                case _:
                    self._commit(self._take_entries())

    async def _deliver_in_thread(self) -> None:
        """Deliver the first pending item if it needs a thread."""
        item = self._waiting[0]
        if isinstance(item, RestoreSnapshot):
            self._waiting.popleft()
            await self._restore(item.snapshot)
        elif isinstance(item, Entry) and (read := self._reader_of(item)) is not None:
            self._waiting.popleft()
            apply = await call_in_thread("raft-read-entry", read)
            apply()
            self._note_delivered([item])

    def _reader_of(self, entry: Entry) -> Callable[[], Callable[[], None]] | None:
        is_large = len(entry.payload) > _LARGE_ENTRY_BYTES
        return self._listener.reader_of(_committed(entry)) if is_large else None

    def _take_entries(self) -> list[Entry]:
        """Remove and return the first pending entries: a few small ones, or one large one."""
        entries: list[Entry] = []
        size = 0
        while self._waiting and len(entries) < _MAX_ENTRIES_AT_ONCE:
            entry = self._waiting[0]
            if not isinstance(entry, Entry):
                break
            size += len(entry.payload)
            if entries and size > _MAX_BYTES_AT_ONCE:
                break
            self._waiting.popleft()
            entries.append(entry)
        return entries

    def _commit(self, entries: list[Entry]) -> None:
        self._listener.on_commit([_committed(entry) for entry in entries])
        self._note_delivered(entries)

    def _note_delivered(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.voters = entry.voters or self.voters
            self.bytes_since_snapshot += len(entry.payload)
        self.position = entries[-1].index, entries[-1].term
        self._on_delivered()

    async def _restore(self, snapshot: Snapshot) -> None:
        self.restored.clear()
        try:
            apply = await call_in_thread("raft-restore", self._read, snapshot)
        except TidelogError as error:
            if not isinstance(error.__cause__, FileNotFoundError) or not await self._is_replaced(snapshot):
                raise
            return
        apply()
        self.position = snapshot.last_index, snapshot.last_term
        self.voters = snapshot.voters
        self.bytes_since_snapshot = 0
        self.restored.set()

    async def _is_replaced(self, snapshot: Snapshot) -> bool:
        """Wait for the snapshot that replaced this one on disk; it is restored next.

        The newer snapshot includes the entries between the two; reads that wait for the older one are answered after
        it.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_NEWER_SNAPSHOT_S):
                while not (newer := [i for i in self._waiting if _is_newer(i, snapshot)]):
                    self._snapshot_came.clear()
                    await self._snapshot_came.wait()
            position = self._waiting.index(newer[0])
            passed = [self._waiting.popleft() for _ in range(position)]
            reads = [item for item in passed if isinstance(item, ReadReady)]
            self._waiting = deque([self._waiting[0], *reads, *list(self._waiting)[1:]])
            return True
        return False

    def _read(self, snapshot: Snapshot) -> Callable[[], None]:
        chunks = read_snapshot(self._directory, snapshot)
        return self._listener.read_snapshot(snapshot.last_index, snapshot.last_term, chunks)


def _is_newer(item: Entry | RestoreSnapshot | ReadReady, snapshot: Snapshot) -> bool:
    return isinstance(item, RestoreSnapshot) and item.snapshot.last_index > snapshot.last_index


def _committed(entry: Entry) -> CommittedEntry:
    return CommittedEntry(entry.index, entry.term, entry.payload)
