"""The leader-epoch cache of a partition and its file ``leader-epoch-checkpoint`` (KIP-101, KIP-279).

Entries are (epoch, start_offset), both strictly increasing. An entry that starts below the log's end is the epoch of
the batch at that offset. At most one entry starts at the end itself: the epoch of a leader that has not appended yet.

Changes happen in memory; :meth:`LeaderEpochCache.flush` writes them to the file. Callers flush before they publish a
recovery point, and before they seal a segment that begins below a published one. The file is then right about batches
below a recovery point and may be wrong about the rest: recovery reads the segment of the recovery point and all later
ones, and prefers the epochs of the batches to the file's. So a leader's epoch costs no write before its first batch is
flushed, and an epoch without a batch is never written. Entries that a truncation removed stay in the file until the
next flush; they begin at the log's end or later, where recovery ignores the file, or in a part that recovery reads.
(Kafka writes an epoch before its first batch, and since 3.8 truncations in the background: KAFKA-16541.)
"""

from __future__ import annotations

import bisect
import logging
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.ids import NO_EPOCH, UNKNOWN_OFFSET, LeaderEpoch
from tidelog_node.log.directory.offset_checkpoint_file import format_checkpoint, parse_checkpoint
from tidelog_node.log.disk.files import Files, read_file, replace_file, storage_errors

logger = logging.getLogger(__name__)

EPOCH_CHECKPOINT = "leader-epoch-checkpoint"


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """A leader epoch and the offset of its first record."""

    epoch: LeaderEpoch
    start_offset: int


class LeaderEpochCache:
    """The leaders of a log and the offsets at which each began; one per :class:`PartitionLog`, on its thread.

    :meth:`flush` may run in another thread, one call at a time. ``damaged`` means that the file was missing or
    unreadable at the open, so that the entries must come from the batches.
    """

    __slots__ = ("_directory", "_entries", "_files", "_saved", "damaged")

    def __init__(self, files: Files, directory: Path, *, exists: bool = True) -> None:
        self._files = files
        self._directory = directory
        entries = _read(files, self._path) if exists else None
        self.damaged = entries is None
        # Both tuples are replaced and never changed, so a flush in another thread sees a consistent snapshot.
        self._entries: tuple[EpochEntry, ...] = tuple(entries or ())
        self._saved = self._entries

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return self._entries

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The newest epoch, or -1."""
        return self._entries[-1].epoch if self._entries else NO_EPOCH

    def epoch_at(self, offset: int) -> LeaderEpoch:
        """Return the epoch of the record at ``offset``, which is below the log's end; -1 when unknown."""
        entries = self._entries
        if entries and offset >= entries[-1].start_offset:
            return entries[-1].epoch
        index = bisect.bisect_right(self._entries, offset, key=lambda entry: entry.start_offset) - 1
        return self._entries[index].epoch if index >= 0 else NO_EPOCH

    def assign(self, epoch: LeaderEpoch, start_offset: int) -> None:
        """Record that ``epoch`` begins at ``start_offset``; do nothing if it already is the latest.

        Entries of later epochs, or that start there or later, are removed: epochs only grow along a log. If the same
        epoch is then the latest, its entry stays.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset}: neither may be negative")
        if self._entries and epoch == self._entries[-1].epoch and start_offset >= self._entries[-1].start_offset:
            return
        kept = tuple(e for e in self._entries if e.epoch <= epoch and e.start_offset < start_offset)
        is_going_on = bool(kept) and kept[-1].epoch == epoch
        self._entries = kept if is_going_on else (*kept, EpochEntry(epoch, start_offset))

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the entries that start at ``end_offset`` or later."""
        self._entries = self._below(end_offset)

    def forget_beyond(self, end_offset: int) -> None:
        """Remove the entries that start above the log's end, which belong to a failed append."""
        self._entries = self._below(end_offset + 1)

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the entries before ``start_offset``; the epoch that covers it then starts there."""
        older = [entry for entry in self._entries if entry.start_offset <= start_offset]
        if older:
            self._entries = (EpochEntry(older[-1].epoch, start_offset), *self._entries[len(older) :])

    def clear(self) -> None:
        """Remove all entries."""
        self._entries = ()

    def restore(self, entries: Iterable[EpochEntry]) -> None:
        """Replace all entries."""
        self._entries = tuple(entries)

    def is_saved(self, end_offset: int) -> bool:
        """Return whether the file and the entries agree on the offsets below ``end_offset``."""
        saved = tuple(entry for entry in self._saved if entry.start_offset < end_offset)
        return _are_alike(saved, self._below(end_offset))

    def flush(self, end_offset: int) -> None:
        """Write the entries below the log's end to the file, durably; no write if the file has them already.

        Entries before the first one may stay in the file: opening the log removes them.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the file has its old content or the new one.
        """
        entries = self._below(end_offset)
        if _are_alike(self._saved, entries) and (not self.damaged or not entries):
            return
        data = format_checkpoint((entry.epoch, entry.start_offset) for entry in entries)
        with storage_errors("Writing", self._path):
            replace_file(self._files, self._path, data)
        self._saved = entries
        self.damaged = False

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[LeaderEpoch, int]:
        """Return the largest epoch not above ``epoch`` and its end offset (LeaderEpochFileCache.endOffsetFor).

        The end of the latest epoch is the log's end. For an epoch older than all entries, return that epoch and the
        start of the first entry. Return (-1, -1) if it is newer than all, or -1.
        """
        if epoch == NO_EPOCH:
            return NO_EPOCH, UNKNOWN_OFFSET
        if epoch == self.latest_epoch:
            return LeaderEpoch(epoch), log_end_offset
        higher = bisect.bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if higher == len(self._entries):
            return NO_EPOCH, UNKNOWN_OFFSET
        floor = self._entries[higher - 1].epoch if higher else LeaderEpoch(epoch)
        return floor, self._entries[higher].start_offset

    def check_invariants(self) -> None:
        """Assert that epochs and start offsets both increase strictly."""
        for earlier, later in pairwise(self._entries):
            assert earlier.epoch < later.epoch, self._entries
            assert earlier.start_offset < later.start_offset, self._entries

    @property
    def _path(self) -> Path:
        return self._directory / EPOCH_CHECKPOINT

    def _below(self, end_offset: int) -> tuple[EpochEntry, ...]:
        entries = self._entries
        if not entries or entries[-1].start_offset < end_offset:
            return entries
        return tuple(entry for entry in entries if entry.start_offset < end_offset)


def _are_alike(saved: Sequence[EpochEntry], entries: Sequence[EpochEntry]) -> bool:
    """Return whether a file with the ``saved`` entries matches ``entries`` from the first of these on."""
    if not entries:
        return not saved
    older = len(saved) - len(entries)
    if older < 0 or saved[older].epoch != entries[0].epoch or saved[older].start_offset > entries[0].start_offset:
        return False
    return saved[older + 1 :] == entries[1:]


def _read(files: Files, path: Path) -> list[EpochEntry] | None:
    with storage_errors("Reading", path):
        data = read_file(files, path)
    if data is None:
        return None
    try:
        return _ordered([EpochEntry(LeaderEpoch(int(e)), int(o)) for e, o in parse_checkpoint(data, fields=2)])
    except ValueError as cause:
        logger.warning("The leader epoch checkpoint %s is damaged and is rebuilt from the batches: %s", path, cause)
        return None


def _ordered(entries: list[EpochEntry]) -> list[EpochEntry]:
    for earlier, later in pairwise(entries):
        if earlier.epoch >= later.epoch or earlier.start_offset >= later.start_offset:
            raise ValueError(f"{later} comes after {earlier}")
    if entries and (entries[0].epoch < 0 or entries[0].start_offset < 0):
        raise ValueError(f"{entries[0]} is negative")
    return entries
