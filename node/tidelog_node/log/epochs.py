"""The leader-epoch cache of a partition and its file ``leader-epoch-checkpoint`` (KIP-101, KIP-279).

Entries are (epoch, start_offset), both strictly increasing. An entry whose start is below the log's end is
the epoch of the batch at that offset; at most one entry starts at the end itself: the epoch of a leader that
has not appended yet. The file is replaced durably before the memory changes, so it never lacks an entry for
a batch that is on the disk; entries beyond the end are cut when the log is opened.
"""

from __future__ import annotations

import bisect
import logging
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tidelog.ids import NO_EPOCH, UNKNOWN_OFFSET, LeaderEpoch
from tidelog_node.log.checkpoints import format_checkpoint, parse_checkpoint
from tidelog_node.log.files import Files, read_file, replace_file, storage_errors

logger = logging.getLogger(__name__)

EPOCH_CHECKPOINT = "leader-epoch-checkpoint"


@dataclass(frozen=True, slots=True)
class EpochEntry:
    """A leader epoch and the offset of its first record."""

    epoch: LeaderEpoch
    start_offset: int


class LeaderEpochCache:
    """Answers which leader wrote which part of the log; one per :class:`PartitionLog`, on its thread.

    ``damaged`` says that the file was missing or unreadable when it was opened, so that the entries must be
    taken from the batches.
    """

    def __init__(self, files: Files, directory: Path) -> None:
        self._files = files
        self._path = directory / EPOCH_CHECKPOINT
        entries = _read(files, self._path)
        self.damaged = entries is None
        self._entries: list[EpochEntry] = entries or []

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The newest epoch, or -1."""
        return self._entries[-1].epoch if self._entries else NO_EPOCH

    def epoch_at(self, offset: int) -> LeaderEpoch:
        """Return the epoch of the record at ``offset``, which is below the log's end; -1 when unknown."""
        index = bisect.bisect_right(self._entries, offset, key=lambda entry: entry.start_offset) - 1
        return self._entries[index].epoch if index >= 0 else NO_EPOCH

    def assign(self, epoch: LeaderEpoch, start_offset: int) -> None:
        """Note that ``epoch`` begins at ``start_offset``; nothing changes when it is the latest already.

        Entries of later epochs, or that start there or later, are removed: epochs only grow along a log. Where
        the same epoch is then the latest, it goes on.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the cache is as it was.
        """
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"epoch {epoch} at offset {start_offset}: neither may be negative")
        if self._entries and epoch == self._entries[-1].epoch and start_offset >= self._entries[-1].start_offset:
            return
        kept = [e for e in self._entries if e.epoch <= epoch and e.start_offset < start_offset]
        is_going_on = bool(kept) and kept[-1].epoch == epoch
        self.replace(kept if is_going_on else [*kept, EpochEntry(epoch, start_offset)])

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the entries that start at ``end_offset`` or later. Raises as :meth:`assign`."""
        if self._entries and self._entries[-1].start_offset >= end_offset:
            self.replace([entry for entry in self._entries if entry.start_offset < end_offset])

    def forget_beyond(self, end_offset: int) -> None:
        """Remove the entries that start above the log's end, of a batch that could not be appended.

        In memory alone, for the disk may be full: the file loses them with the next change, or when it is opened.
        """
        self._entries = [entry for entry in self._entries if entry.start_offset <= end_offset]

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget what is before ``start_offset``; the epoch that covers it now starts there.

        The file follows with the next change: what it says too much is cut when the log is opened.
        """
        older = [entry for entry in self._entries if entry.start_offset <= start_offset]
        if older:
            self._entries = [EpochEntry(older[-1].epoch, start_offset), *self._entries[len(older) :]]

    def clear(self) -> None:
        """Remove all entries. Raises as :meth:`assign`."""
        if self._entries:
            self.replace([])

    def replace(self, entries: list[EpochEntry]) -> None:
        """Put these entries in place of all, on the disk first. Raises as :meth:`assign`."""
        data = format_checkpoint((entry.epoch, entry.start_offset) for entry in entries)
        with storage_errors("Writing", self._path):
            replace_file(self._files, self._path, data)
        self._entries = entries
        self.damaged = False

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[LeaderEpoch, int]:
        """Return the largest epoch that is not above ``epoch`` and its end offset (LeaderEpochFileCache.endOffsetFor).

        The end of the latest epoch is the log's end. For an epoch older than all the answer is that epoch with
        the start of the first one; (-1, -1) when it is newer than all, or -1.
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
