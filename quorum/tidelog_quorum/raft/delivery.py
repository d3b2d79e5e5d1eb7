"""Gives the listener what is committed, in order, and holds back while a snapshot is put in its place."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path

from tidelog_quorum.raft.core import Entry, EntryKind
from tidelog_quorum.raft.core.commands import Commit, ReadReady, RestoreSnapshot
from tidelog_quorum.raft.core.messages import Snapshot
from tidelog_quorum.raft.core.voters import VoterSet
from tidelog_quorum.raft.protocol import CommittedEntry, RaftListener
from tidelog_quorum.raft.snapshots import read_snapshot
from tidelog_quorum.raft.threads import call_in_thread

Item = Commit | RestoreSnapshot | ReadReady


class Delivery:
    """From the engine's start to its stop, on the event loop.

    ``position`` is the (index, term) of the last entry that the listener has been given, or of the snapshot; ``voters``
    are those in force there; ``bytes_since_snapshot`` the payloads since :meth:`snapshot_taken`. ``on_read`` is called
    when all that a read covers was given; what the listener or the disk raises while a snapshot is restored goes to
    ``on_error``.
    """

    def __init__(
        self,
        directory: Path,
        listener: RaftListener,
        voters: VoterSet,
        on_read: Callable[[int, int], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self.position = (0, 0)
        self.voters = voters
        self.bytes_since_snapshot = 0
        self._directory = directory
        self._listener = listener
        self._on_read = on_read
        self._on_error = on_error
        self._waiting: deque[Item] = deque()
        self._restoring: asyncio.Task[None] | None = None

    @property
    def is_restoring(self) -> bool:
        """Whether the listener's state is being replaced."""
        return self._restoring is not None

    def deliver(self, item: Item) -> None:
        """Do what the item says, now or when the snapshot before it is in its place."""
        if self._restoring is not None:
            self._waiting.append(item)
            return
        match item:
            case Commit(entries):
                self._commit(entries)
            case ReadReady(request_id, index):
                self._on_read(request_id, index)
            case RestoreSnapshot(snapshot):
                loop = asyncio.get_running_loop()
                self._restoring = loop.create_task(self._restore(snapshot), name="raft-restore-snapshot")

    def snapshot_taken(self) -> None:
        """Begin to count the bytes anew."""
        self.bytes_since_snapshot = 0

    async def wait_restored(self) -> None:
        """Wait until the listener is given entries as they come."""
        while self._restoring is not None and not self._restoring.done():
            await asyncio.wait([self._restoring])

    async def stop(self) -> None:
        """Give the listener nothing more."""
        self._waiting.clear()
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])

    def _commit(self, entries: tuple[Entry, ...]) -> None:
        committed = []
        for entry in entries:
            # What is the engine's own means nothing to the listener.
            payload = entry.payload if entry.kind is EntryKind.DATA else b""
            committed.append(CommittedEntry(entry.index, entry.term, payload))
            self.bytes_since_snapshot += len(payload)
            if entry.kind is EntryKind.VOTERS:
                self.voters = VoterSet.decode(entry.payload)
        last = entries[-1]
        self.position = last.index, last.term
        self._listener.on_commit(committed)

    async def _restore(self, snapshot: Snapshot) -> None:
        try:
            apply = await call_in_thread("raft-restore", self._read, snapshot)
            apply()
            self.position = snapshot.last_index, snapshot.last_term
            self.voters = snapshot.voters
            self.bytes_since_snapshot = 0
            self._restoring = None
            while self._waiting and self._restoring is None:
                self.deliver(self._waiting.popleft())
        except Exception as error:  # noqa: BLE001  # the engine fails with it
            # Nothing may follow what is not in its place.
            self._on_error(error)

    def _read(self, snapshot: Snapshot) -> Callable[[], None]:
        chunks = read_snapshot(self._directory, snapshot)
        return self._listener.read_snapshot(snapshot.last_index, snapshot.last_term, chunks)
