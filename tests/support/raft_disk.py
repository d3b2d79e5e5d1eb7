"""The disk of a simulated replica with its losses in a crash, and the state that its entries build."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field

from raft_properties import PropertyViolatedError, require

from tidelog_quorum.raft.core.commands import CompactLog, InstallSnapshot, Persist, StoreChunk
from tidelog_quorum.raft.core.messages import Entry, HardState, Snapshot
from tidelog_quorum.raft.core.voters import Voter, VoterSet


@dataclass(slots=True)
class ReplicaState:
    """The replicated state machine: a hash of all applied entries, and the voters in force at ``index``."""

    voters: VoterSet
    index: int = 0
    term: int = 0
    digest: int = 0

    def apply(self, entry: Entry) -> None:
        """Apply the next entry."""
        self.digest = digest_after(self.digest, entry)
        self.index, self.term = entry.index, entry.term
        self.voters = entry.voters or self.voters

    def capture(self) -> tuple[Snapshot, bytes]:
        """Return a snapshot and its bytes, equal for equal states. The number of bytes depends on the index."""
        content = b"%020d%010d" % (self.index, self.digest) + bytes(self.index * 7 % 90)
        return Snapshot(self.index, self.term, self.voters, len(content), zlib.crc32(content)), content

    def restore(self, snapshot: Snapshot, content: bytes) -> None:
        """Restore the state of a snapshot."""
        index, digest = int(content[:20]), int(content[20:30])
        require(index == snapshot.last_index, "SnapshotContent", f"bytes of {index} in {snapshot}")
        self.voters, self.index, self.term, self.digest = snapshot.voters, index, snapshot.last_term, digest


def voter(voter_id: int, directory_id: bytes = b"") -> Voter:
    """Return a voter with made-up addresses."""
    return Voter.at(voter_id, f"controller-{voter_id}", 9093, directory_id, listener="L0")


def digest_after(digest: int, entry: Entry) -> int:
    """Return the state's hash after one more entry."""
    return zlib.crc32(f"{entry.index}:{entry.term}:{entry.voters}:".encode() + entry.payload, digest)


Write = Persist | CompactLog | InstallSnapshot


@dataclass(slots=True)
class SimulatedDisk:
    """The durable state, and the writes that a crash may take: any suffix of the unsynced ones.

    ``log_start`` is the index and term of the entry before ``entries``. ``files`` are complete snapshots, ``received``
    is one still being received, which no crash leaves.
    """

    hard_state: HardState = field(default_factory=HardState)
    entries: list[Entry] = field(default_factory=list)
    pending: list[Write] = field(default_factory=list)
    directory_id: bytes = b""
    log_start: tuple[int, int] = (0, 0)
    snapshot: Snapshot | None = None
    files: dict[Snapshot, bytes] = field(default_factory=dict)
    damaged: list[tuple[int, Snapshot]] = field(default_factory=list)
    _received: bytearray = field(default_factory=bytearray)
    _receiving: Snapshot | None = None
    _is_damaging: bool = False
    _complete: dict[int, bytes] = field(default_factory=dict)

    @property
    def last_index(self) -> int:
        """The last index that a crash now would leave."""
        return self.log_start[0] + len(self.entries)

    def term_at(self, index: int) -> int | None:
        """Return the term of a synced entry, or None if it does not exist or was compacted."""
        start, start_term = self.log_start
        if index > start:
            return self.entries[index - start - 1].term if index <= start + len(self.entries) else None
        return start_term if index == start else None

    def holds(self, index: int, term: int) -> bool:
        """Return whether a crash now would leave this entry, or a snapshot that covers it."""
        covered = self.snapshot is not None and index <= self.snapshot.last_index
        return covered or self.term_at(index) == term

    def write(self, write: Write) -> None:
        """Accept a write that a crash may lose until it is synced."""
        if isinstance(write, InstallSnapshot):
            whole = self._receiving == write.snapshot
            self._complete[write.sequence] = bytes(self._received) if whole else b""
        self.pending.append(write)

    def store_chunk(self, command: StoreChunk) -> None:
        """Store a chunk in the file that is being received."""
        if command.position == 0:
            self._received, self._receiving = bytearray(), command.snapshot
        same = self._receiving == command.snapshot and len(self._received) == command.position
        require(same, "ChunkOutOfPlace", f"a chunk for {command.position}, {len(self._received)} bytes are there")
        self._received += command.chunk
        if self._is_damaging and self._received:
            self._received[-1] ^= 1
            self._is_damaging = False

    def damage_next_chunk(self) -> None:
        """Flip a bit of the next received snapshot chunk."""
        self._is_damaging = True

    def keep_file(self, snapshot: Snapshot, content: bytes) -> None:
        """Store a complete, synced snapshot file that the log does not refer to yet."""
        self.files[snapshot] = content

    def sync(self, count: int | None = None) -> int | None:
        """Sync the first ``count`` pending writes (None: all), and return the last valid one's sequence.

        Snapshots with corrupt bytes are not written but appear in ``damaged``.
        """
        count = len(self.pending) if count is None else count
        done, self.pending = self.pending[:count], self.pending[count:]
        last = None
        for write in done:
            if self._apply(write):
                last = write.sequence
        return last

    def lose_power(self, keep: int) -> None:
        """Crash: the first ``keep`` pending writes survive, a snapshot being received does not."""
        self.sync(keep)
        self.pending.clear()
        self.damaged.clear()
        self._complete.clear()
        self._received, self._receiving = bytearray(), None
        # The start removes files that no write refers to: those completed before the write that names them.
        self.files = {s: content for s, content in self.files.items() if s == self.snapshot}

    def _apply(self, write: Write) -> bool:
        match write:
            case Persist():
                self._append(write)
            case CompactLog():
                self._compact(write)
            case InstallSnapshot():
                return self._install(write)
        return True

    def _append(self, write: Persist) -> None:
        if write.truncate_from is not None:
            position = write.truncate_from - self.log_start[0] - 1
            if position < 0:
                raise PropertyViolatedError("CompactedEntryDropped", f"{write} of a log from {self.log_start}")
            del self.entries[position:]
        if write.entries:
            if write.entries[0].index != self.last_index + 1:
                raise PropertyViolatedError("GapInLog", f"{write} after {self.last_index}")
            self.entries += write.entries
        self._set_hard_state(write.hard_state)

    def _set_hard_state(self, new: HardState | None) -> None:
        old = self.hard_state
        if new is None:
            return
        if new.term < old.term or (new.term == old.term and old.voted_for not in (None, new.voted_for)):
            raise PropertyViolatedError("VoteForgotten", f"{old} becomes {new}")
        self.hard_state = new

    def _compact(self, write: CompactLog) -> None:
        snapshot, start = write.snapshot, self.log_start[0]
        require(snapshot in self.files, "SnapshotMissing", f"{snapshot} is not on disk")
        require(start < write.first_index <= snapshot.last_index + 1, "CompactedTooFar", f"{write} of {start}")
        newer = self.snapshot is None or self.snapshot.last_index < snapshot.last_index
        require(newer, "SnapshotWentBack", f"{snapshot} after {self.snapshot}")
        term = self.term_at(write.first_index - 1)
        require(term is not None, "CompactedTooFar", f"{write} of a log that ends at {self.last_index}")
        assert term is not None
        del self.entries[: write.first_index - 1 - start]
        self.log_start = (write.first_index - 1, term)
        self._name(snapshot)

    def _install(self, write: InstallSnapshot) -> bool:
        snapshot, content = write.snapshot, self._complete.pop(write.sequence)
        if len(content) != snapshot.size or zlib.crc32(content) != snapshot.checksum:
            self.damaged.append((write.sequence, snapshot))
            return False
        newer = self.snapshot is None or self.snapshot.last_index < snapshot.last_index
        require(newer, "SnapshotWentBack", f"{snapshot} after {self.snapshot}")
        self.entries = []
        self.log_start = (snapshot.last_index, snapshot.last_term)
        self.files[snapshot] = content
        self._name(snapshot)
        return True

    def _name(self, snapshot: Snapshot) -> None:
        older = [s for s in self.files if s.last_index < snapshot.last_index and s != self.snapshot]
        for s in older:
            del self.files[s]
        self.snapshot = snapshot
