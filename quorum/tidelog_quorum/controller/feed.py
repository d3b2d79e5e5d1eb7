"""The feed of committed metadata to followers: entries, parts of large ones, and snapshots.

Rules:

1. A follower requests one response at a time. The feed looks its content up at that time, so a slow follower takes no
   memory beyond its position.
2. Followers share a tail of the log, bounded in entries and bytes. A follower that requests the beginning, or an entry
   that the tail has dropped, first gets an image as a snapshot, batch by batch, and then the entries after it.
3. Followers that need a snapshot at about the same time get the same one. It is valid while the tail continues from its
   end, and is dropped after a time without use.
4. An entry that is too large for a response is cut into parts. A follower that got the first part gets all of them,
   even if the tail drops the entry meanwhile.
5. Each follower gets the voters at first and whenever they change, with the next response or in one of its own.
6. A follower with nothing new waits, and gets an empty response after an interval, so that it detects a dead
   controller. Every response names the committed offset and the leader.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias, assert_never

from tidelog_foundation.dataclass import dataclass
from tidelog_quorum.metadata.batches import MAX_BATCH_BYTES, cut_batch
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.raft.core.voters import VoterSet
from tidelog_quorum.raft.protocol import CommittedEntry

_MAX_ENTRIES_PER_RESPONSE = 1_000
_SNAPSHOT_KEPT_MS = 30_000


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """Bounds of the tail and of a response."""

    max_entries: int = 10_000
    max_bytes: int = 16 * 1024 * 1024
    max_response_bytes: int = MAX_BATCH_BYTES


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """An entry, a part of one that ``is_continued``, or a batch of a snapshot."""

    offset: int
    epoch: int
    batch: bytes
    is_continued: bool = False


@dataclass(frozen=True, slots=True)
class FeedResponse:
    """One response. ``leader_id`` is -1 for no leader; ``voters`` is None if the follower knows them."""

    entries: Sequence[FeedEntry]
    committed_offset: int
    leader_id: int
    voters: VoterSet | None = None
    snapshot_begin: bool = False
    snapshot_end: bool = False


@dataclass(frozen=True, slots=True)
class Joined:
    """A follower joined. It wants all committed entries from an offset on."""

    follower_id: int
    from_offset: int


@dataclass(frozen=True, slots=True)
class Left:
    """A follower left."""

    follower_id: int


@dataclass(frozen=True, slots=True)
class Ready:
    """A follower is ready for one more response."""

    follower_id: int


@dataclass(frozen=True, slots=True)
class Waited:
    """A follower waited for an idle interval."""

    follower_id: int


@dataclass(frozen=True, slots=True)
class BatchEncoded:
    """A batch of a snapshot is encoded; the answer to ``EncodeBatch``."""

    follower_id: int
    batch: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class Published:
    """Entries were committed, with their resulting image."""

    entries: Sequence[CommittedEntry]
    image: MetadataImage


@dataclass(frozen=True, slots=True)
class Restored:
    """A snapshot replaced the image. The entries before it are not available here."""

    image: MetadataImage


@dataclass(frozen=True, slots=True)
class LeaderAnnounced:
    """The leader changed; -1 for none."""

    leader_id: int


@dataclass(frozen=True, slots=True)
class VotersAnnounced:
    """The voters changed."""

    voters: VoterSet


@dataclass(frozen=True, slots=True)
class Respond:
    """Send a response to a follower."""

    follower_id: int
    response: FeedResponse


@dataclass(frozen=True, slots=True)
class KeepImage:
    """Keep an image for the encoding of its batches."""

    image: MetadataImage


@dataclass(frozen=True, slots=True)
class EncodeBatch:
    """Encode a batch of an image, named by its offset, for a follower. Answered by ``BatchEncoded``."""

    follower_id: int
    offset: int
    index: int


@dataclass(frozen=True, slots=True)
class DropImage:
    """Drop the image of an offset."""

    offset: int


Event: TypeAlias = (
    Joined | Left | Ready | Waited | BatchEncoded | Published | Restored | LeaderAnnounced | VotersAnnounced
)
Command: TypeAlias = Respond | KeepImage | EncodeBatch | DropImage


class _Phase(enum.Enum):
    """The event that a follower waits for."""

    BUSY = enum.auto()
    """``Ready``: the follower has a response, or has just joined."""
    ENCODING = enum.auto()
    """``BatchEncoded``."""
    IDLE = enum.auto()
    """Any new content, or ``Waited``."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    offset: int
    epoch: int


@dataclass(slots=True)
class _Follower:
    """Progress of a follower.

    ``position`` is the next offset to send, ``parts`` the rest of the entry before it, and
    ``known_voters`` the voters that it knows. During a snapshot, ``batches`` is the number of sent batches.
    """

    follower_id: int
    position: int
    phase: _Phase = _Phase.BUSY
    known_voters: VoterSet | None = None
    parts: tuple[FeedEntry, ...] = ()
    snapshot: _Snapshot | None = None
    batches: int = 0


@dataclass(frozen=True, slots=True)
class _Entry:
    offset: int
    parts: tuple[FeedEntry, ...]
    size: int


class MetadataFeed:
    """The feed of a process, for its whole life."""

    def __init__(self, limits: FeedLimits | None = None) -> None:
        self.voters = VoterSet()
        self._limits = limits or FeedLimits()
        self._tail: list[_Entry] = []
        self._tail_bytes = 0
        self._tail_start = 0
        self._image = MetadataImage()
        self._leader_id = -1
        self._followers: dict[int, _Follower] = {}
        self._snapshot: _Snapshot | None = None
        self._snapshot_used_ms = 0
        self._kept: set[int] = set()
        self._commands: list[Command] = []

    def step(self, event: Event, now_ms: int) -> list[Command]:
        """Process an event and return the commands in order."""
        self._commands = []
        match event:
            case Joined(follower_id, from_offset):
                self._followers[follower_id] = _Follower(follower_id, from_offset)
            case Left(follower_id):
                del self._followers[follower_id]
                self._drop_images()
            case Ready(follower_id):
                follower = self._followers[follower_id]
                assert follower.phase is _Phase.BUSY, follower
                self._send_next(follower)
            case Waited(follower_id):
                self._end_wait(self._followers[follower_id], now_ms)
            case BatchEncoded(follower_id, batch, is_last):
                self._send_batch(self._followers[follower_id], batch, is_last, now_ms)
            case Published(entries, image):
                self._publish(entries, image)
            case Restored(image):
                self._restore(image)
            case LeaderAnnounced(leader_id):
                self._leader_id = leader_id
            case VotersAnnounced(voters):
                self.voters = voters
                self._wake()
            case _:
                assert_never(event)
        return self._commands

    def check_invariants(self) -> None:
        """Assert what holds between any two events."""
        offsets = [entry.offset for entry in self._tail]
        assert offsets == list(range(self._tail_start, self._image.offset + 1))[-len(offsets) :] or not offsets
        assert not offsets or offsets[-1] == self._image.offset
        assert len(self._tail) <= self._limits.max_entries
        assert self._tail_bytes == sum(entry.size for entry in self._tail) <= self._limits.max_bytes
        for follower in self._followers.values():
            assert follower.snapshot is None or follower.snapshot.offset in self._kept
            assert not (follower.snapshot is not None and follower.parts)
            if follower.phase is _Phase.IDLE:
                assert follower.position > self._image.offset, follower
                assert follower.known_voters == self.voters, follower
                assert not follower.parts, follower

    def _publish(self, entries: Sequence[CommittedEntry], image: MetadataImage) -> None:
        for entry in entries:
            self._add(entry)
        self._image = image
        self._wake()

    def _add(self, entry: CommittedEntry) -> None:
        size, limits = len(entry.payload), self._limits
        batches = cut_batch(entry.payload, limits.max_response_bytes) if size > limits.max_response_bytes else ()
        parts = [FeedEntry(entry.index, entry.term, batch, is_continued=True) for batch in batches]
        last = replace(parts.pop(), is_continued=False) if parts else FeedEntry(entry.index, entry.term, entry.payload)
        self._tail.append(_Entry(entry.index, (*parts, last), size))
        self._tail_bytes += size
        dropped = 0
        while len(self._tail) - dropped > limits.max_entries or self._tail_bytes > limits.max_bytes:
            self._tail_start = self._tail[dropped].offset + 1
            self._tail_bytes -= self._tail[dropped].size
            dropped += 1
        del self._tail[:dropped]

    def _restore(self, image: MetadataImage) -> None:
        """Restart from an image. Followers that are not beyond it get it as a snapshot."""
        self._tail.clear()
        self._tail_bytes = 0
        self._tail_start = image.offset + 1
        self._image = image
        self._snapshot = None
        self._drop_images()
        self._wake()

    def _wake(self) -> None:
        for follower in self._followers.values():
            if follower.phase is _Phase.IDLE:
                self._send_next(follower)

    def _end_wait(self, follower: _Follower, now_ms: int) -> None:
        if self._snapshot is not None and now_ms - self._snapshot_used_ms > _SNAPSHOT_KEPT_MS:
            self._snapshot = None
            self._drop_images()
        if follower.phase is _Phase.IDLE:
            self._respond(follower, ())

    def _send_next(self, follower: _Follower) -> None:
        """Send a follower its next content, or let it wait."""
        if follower.parts:
            part, *rest = follower.parts
            follower.parts = tuple(rest)
            self._respond(follower, (part,))
        elif follower.snapshot is not None:
            self._encode_next(follower, follower.snapshot)
        elif follower.position > self._image.offset:
            if follower.known_voters == self.voters:
                follower.phase = _Phase.IDLE
            else:
                self._respond(follower, ())
        elif follower.position <= 0 or follower.position < self._tail_start:
            self._begin_snapshot(follower)
        else:
            self._send_entries(follower)

    def _send_entries(self, follower: _Follower) -> None:
        """Send the next entries. A large entry is sent alone, in several responses."""
        index = bisect_left(self._tail, follower.position, key=lambda e: e.offset)
        first, *rest = self._tail[index].parts
        if rest:
            follower.parts = tuple(rest)
            follower.position = first.offset + 1
            self._respond(follower, (first,))
            return
        entries: list[FeedEntry] = []
        size = 0
        for entry in self._tail[index : index + _MAX_ENTRIES_PER_RESPONSE]:
            size += entry.size
            if len(entry.parts) > 1 or (entries and size > self._limits.max_response_bytes):
                break
            entries += entry.parts
        follower.position = entries[-1].offset + 1
        self._respond(follower, entries)

    def _begin_snapshot(self, follower: _Follower) -> None:
        if self._snapshot is None or self._snapshot.offset + 1 < self._tail_start:
            self._snapshot = _Snapshot(self._image.offset, self._image.epoch)
            if self._snapshot.offset not in self._kept:
                self._kept.add(self._snapshot.offset)
                self._commands.append(KeepImage(self._image))
            self._drop_images()
        follower.snapshot, follower.batches = self._snapshot, 0
        self._encode_next(follower, self._snapshot)

    def _encode_next(self, follower: _Follower, snapshot: _Snapshot) -> None:
        follower.phase = _Phase.ENCODING
        self._commands.append(EncodeBatch(follower.follower_id, snapshot.offset, follower.batches))

    def _send_batch(self, follower: _Follower, batch: bytes, is_last: bool, now_ms: int) -> None:
        snapshot = follower.snapshot
        assert follower.phase is _Phase.ENCODING, follower
        assert snapshot is not None
        is_first = follower.batches == 0
        follower.batches += 1
        self._snapshot_used_ms = now_ms
        if is_last:
            follower.position, follower.snapshot = snapshot.offset + 1, None
            self._drop_images()
        entry = FeedEntry(snapshot.offset, snapshot.epoch, batch)
        self._respond(follower, (entry,), snapshot_begin=is_first, snapshot_end=is_last)

    def _respond(
        self,
        follower: _Follower,
        entries: Sequence[FeedEntry],
        *,
        snapshot_begin: bool = False,
        snapshot_end: bool = False,
    ) -> None:
        voters = None if follower.known_voters == self.voters else self.voters
        follower.known_voters, follower.phase = self.voters, _Phase.BUSY
        response = FeedResponse(entries, self._image.offset, self._leader_id, voters, snapshot_begin, snapshot_end)
        self._commands.append(Respond(follower.follower_id, response))

    def _drop_images(self) -> None:
        """Drop the images that are neither the current snapshot nor in use by a follower."""
        used = {f.snapshot.offset for f in self._followers.values() if f.snapshot is not None}
        if self._snapshot is not None:
            used.add(self._snapshot.offset)
        for offset in sorted(self._kept - used):
            self._kept.remove(offset)
            self._commands.append(DropImage(offset))
