"""Read-only access to a log: its bounds, its records, searches by epoch and timestamp, and its invariants."""

from __future__ import annotations

from pathlib import Path

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import LeaderEpoch
from tidelog_foundation.records import RecordBatchHeader
from tidelog_node.log.disk.files import storage_errors
from tidelog_node.log.epochs import EpochEntry, LeaderEpochCache
from tidelog_node.log.local_log import LocalLog
from tidelog_node.log.producer_replay import ProducerReplay
from tidelog_node.log.producers.entries import ProducerEntry
from tidelog_node.log.segments.batch_file import UncachedBytes
from tidelog_node.log.segments.indexes import NO_TIMESTAMP
from tidelog_node.log.segments.segment import Segment
from tidelog_node.log.segments.transaction_index import AbortedTransaction
from tidelog_node.log.timestamps import (
    Candidate,
    TimestampSearch,
    newest_timestamp,
    next_candidate,
    search_greatest,
    search_timestamp,
)

_RECENT_BYTES = 4 << 20
"""The end of a log that is taken to be in the system's memory, since it was written a moment ago."""


class LogReader:
    """The reading half of a :class:`PartitionLog`, which passes its parts. Any method raises KAFKA_STORAGE_ERROR."""

    __slots__ = ("__weakref__", "_epochs", "_local", "_log_start_offset", "_producers", "directory")

    def __init__(
        self, local: LocalLog, epochs: LeaderEpochCache, producers: ProducerReplay, log_start_offset: int
    ) -> None:
        self.directory: Path = local.directory
        self._local = local
        self._epochs = epochs
        self._producers = producers
        self._log_start_offset = log_start_offset

    @property
    def failure(self) -> TidelogError | None:
        """The error that took the log offline; None while it is online."""
        return self._local.failure

    @property
    def log_start_offset(self) -> int:
        """The offset of the first readable record; it may lie inside the first segment."""
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._local.log_end_offset

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on the disk."""
        return self._local.recovery_point

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The newest leader epoch in the cache, or -1."""
        return self._epochs.latest_epoch

    @property
    def epoch_entries(self) -> tuple[EpochEntry, ...]:
        """The leader epochs and their start offsets, oldest first."""
        return self._epochs.entries

    @property
    def size_in_bytes(self) -> int:
        """The size of all batches in bytes."""
        return self._local.segments.size_in_bytes

    @property
    def segment_count(self) -> int:
        """The number of segments."""
        return len(self._local.segments)

    @property
    def active_base_offset(self) -> int:
        """The base offset of the active segment."""
        return self._local.segments.active.base_offset

    def sealed_segments(self) -> tuple[Segment, ...]:
        """Return all segments but the active one, oldest first; their files do not change while they are in the log."""
        return self._local.segments.sealed()

    def read(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        """Return whole batches from the first one that ends above ``offset``, all of them below ``end_offset``.

        Returns at most ``max_bytes``, but at least one batch, and all from one segment. Empty at the end of the log.

        Raises:
            TidelogError: OFFSET_OUT_OF_RANGE; KAFKA_STORAGE_ERROR.
        """
        local = self._local
        local.check_online()
        if not self._log_start_offset <= offset <= local.log_end_offset:
            raise error_for(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.directory.name} is not between log start {self._log_start_offset}"
                f" and log end {local.log_end_offset}",
            )
        return local.read(offset, max_bytes, end_offset) if offset < min(end_offset, local.log_end_offset) else b""

    def is_far_behind(self, offset: int) -> bool:
        """Return whether the records at an offset may have left the system's memory: many bytes, by their average size,
        follow them.
        """
        start, end, size = self._log_start_offset, self._local.log_end_offset, self._local.segments.size_in_bytes
        return start <= offset < end and (end - offset) * size > _RECENT_BYTES * (end - start)

    def uncached(self, offset: int, max_bytes: int) -> UncachedBytes | None:
        """Return the bytes of :meth:`read` that it would wait for the disk for, or those to read ahead, or None.

        The offset is that of a reader that :meth:`is_far_behind`. Errors are those of the read itself.
        """
        return self._local.uncached(offset, max_bytes)

    def end_offset_for_epoch(self, epoch: int) -> tuple[LeaderEpoch, int]:
        """Return the largest epoch not above ``epoch`` and its end offset; (-1, -1) if unknown (KIP-101)."""
        return self._epochs.end_offset_for(epoch, self.log_end_offset)

    def search_timestamp(self, timestamp_ms: int) -> TimestampSearch:
        """Search for the first record, by offset, whose timestamp is at least ``timestamp_ms``."""
        return search_timestamp(self._next_candidate, timestamp_ms, self._log_start_offset)

    def search_max_timestamp(self) -> TimestampSearch:
        """Search for the first record with the log's largest timestamp (KIP-734)."""
        self._local.check_online()
        with storage_errors("Searching", self.directory):
            newest = newest_timestamp(self._local.segments, self._log_start_offset)
        return search_greatest(self._next_candidate, newest, self._log_start_offset)

    def _next_candidate(self, timestamp_ms: int, min_offset: int) -> Candidate | None:
        self._local.check_online()
        with storage_errors("Searching", self.directory):
            return next_candidate(self._local.segments, timestamp_ms, min_offset)

    def advance_high_watermark(self, high_watermark: int) -> None:
        """Forget the transactions whose markers are replicated: their records are stable."""
        self._producers.snapshots.state.advance_high_watermark(high_watermark)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset below which every transaction is decided and replicated (KIP-98)."""
        self.advance_high_watermark(high_watermark)
        unstable = self._producers.snapshots.state.first_unstable_offset
        return high_watermark if unstable is None else min(high_watermark, max(unstable, self._log_start_offset))

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions with records in [start_offset, end_offset), all of them decided."""
        self._local.check_online()
        aborted: list[AbortedTransaction] = []
        with storage_errors("Searching", self.directory):
            # A marker may come later than the records that it ends, so an index states whether later ones have more.
            for segment in self._local.segments.from_offset(start_offset):
                found, is_complete = segment.transaction_index.aborted(start_offset, end_offset)
                aborted += found
                if is_complete:
                    break
        return aborted

    def active_producers(self) -> list[ProducerEntry]:
        """Return the known idempotent producers, in no particular order."""
        return self._producers.snapshots.state.entries()

    @property
    def deleted_file_count(self) -> int:
        """The number of deleted files that wait for :meth:`remove_deleted_files`."""
        return len(self._local.deleted_files)

    def check_invariants(self) -> None:
        """Assert the invariants of the log; see :func:`check_log`."""
        check_log(self._local, self._epochs, self._log_start_offset)
        self._producers.snapshots.check_invariants()


def check_log(local: LocalLog, epochs: LeaderEpochCache, log_start_offset: int) -> None:
    """Assert ascending offsets, correct indexes, a log start within the log, and epochs that match the batches."""
    local.segments.check_invariants()
    for segment in local.segments:
        check_segment(segment)
    assert local.segments.active.next_offset == local.log_end_offset, local.log_end_offset
    assert 0 <= local.recovery_point <= local.log_end_offset, (local.recovery_point, local.log_end_offset)
    epochs.check_invariants()
    first, end = local.segments.first.base_offset, local.log_end_offset
    assert first <= log_start_offset <= end, (first, log_start_offset, end)
    for segment in local.segments:
        for _, header in segment.headers():
            if header.next_offset > log_start_offset:
                epoch = epochs.epoch_at(max(header.base_offset, log_start_offset))
                assert epoch == header.partition_leader_epoch, (header, epochs.entries)
    ahead = [entry for entry in epochs.entries if entry.start_offset >= end]
    assert len(ahead) <= 1, ahead


def check_segment(segment: Segment) -> None:
    """Assert that batches are whole and in order, and that the indexes point to them."""
    positions: dict[int, RecordBatchHeader] = {}
    end = segment.base_offset
    for position, header in segment.headers():
        assert header.base_offset >= end, (segment.path, header, end)
        positions[position] = header
        end = header.next_offset
    assert end <= segment.next_offset, (segment.path, end, segment.next_offset)
    for offset, position in segment.indexes.lookup()[0].entries():
        assert positions[position].last_offset == offset, (segment.path, offset, position)
    last_offsets = {header.last_offset: header for header in positions.values()}
    for timestamp, offset in segment.indexes.lookup()[1].entries():
        assert last_offsets[offset].max_timestamp == timestamp, (segment.path, offset, timestamp)
    newest = max((header.max_timestamp for header in positions.values()), default=NO_TIMESTAMP)
    assert newest == segment.max_timestamp, (segment.path, newest, segment.max_timestamp)
