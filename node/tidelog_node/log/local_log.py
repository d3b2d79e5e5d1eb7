"""The segments of one log on the disk: append, roll, flush, truncate, delete and swap (Kafka's LocalLog).

Owns durability and the state after a failure; knows nothing of leaders, producers or retention. It guarantees that a
batch is visible whole or not at all; that the remains of a failed append are cut off, and the log goes offline if that
fails too; that everything below ``recovery_point`` is on the disk; and that a truncation is on the disk before it
returns, so that truncated records never return after a crash.

Rolled segments follow each other without a gap, and a segment's index files are written only after its batches are on
the disk. A gap behind a segment without index files is therefore a tail that a crash lost.

A segment is rolled by size or by time (Kafka's LogSegment.shouldRoll). Time comes from the records if they have
timestamps: a segment ends when the next batch is more than ``segment.ms`` later than its first one. If the first batch
has no timestamp, the segment ends ``segment.ms`` after its creation. With compaction, ``max.compaction.lag.ms`` is a
limit too, because only sealed segments can be compacted (KIP-354). The jitter, a part of ``segment.jitter.ms`` that
differs for every segment, keeps partitions that started together from rolling together.
"""

from __future__ import annotations

import contextlib
import threading
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import RecordBatchHeader
from tidelog_node.log.config import LogConfig
from tidelog_node.log.directory.deletion import DelayedDeletion
from tidelog_node.log.disk.files import Buffer, Files, storage_error, storage_errors
from tidelog_node.log.epochs import LeaderEpochCache
from tidelog_node.log.segments.batch_file import UncachedBytes
from tidelog_node.log.segments.file_names import INDEX_SUFFIXES
from tidelog_node.log.segments.indexes import MAX_RELATIVE_OFFSET, NO_TIMESTAMP
from tidelog_node.log.segments.segment import Segment
from tidelog_node.log.segments.segment_list import Segments
from tidelog_node.log.segments.swap import swap_in


class LocalLog:
    """The segments of one :class:`PartitionLog`, on its thread; ``flush`` and ``deleted_files.remove`` also in another.

    ``epochs`` is only written, before a recovery point is published. ``is_untouched`` means that the log is as a clean
    stop left it. After a failure that leaves the disk's content unknown the log is offline, and ``failure`` has the
    error.
    """

    __slots__ = (
        "_epochs",
        "_files",
        "_flushed_to",
        "_flushing",
        "_is_closed",
        "_is_directory_dirty",
        "_lifetime_ms",
        "_rewritten_below",
        "_segment_bytes",
        "config",
        "deleted_files",
        "directory",
        "failure",
        "log_end_offset",
        "recovery_point",
        "segments",
    )

    def __init__(
        self,
        files: Files,
        directory: Path,
        config: LogConfig,
        segments: Sequence[Segment],
        epochs: LeaderEpochCache,
        checkpointed_point: int,
        is_untouched: bool,
    ) -> None:
        self.directory = directory
        self.segments = Segments(segments)
        self.deleted_files = DelayedDeletion(files)
        self.failure: TidelogError | None = None
        self.log_end_offset = self.segments.active.next_offset
        self.recovery_point = min(checkpointed_point, self.log_end_offset)
        self._files = files
        self._epochs = epochs
        self._rewritten_below = checkpointed_point if checkpointed_point > self.log_end_offset else 0
        self._is_directory_dirty = not is_untouched
        self._is_closed = False
        self._flushing = threading.Lock()
        self._flushed_to = 0
        self.change_config(config)

    def change_config(self, config: LogConfig) -> None:
        """Apply new settings; index settings apply from the next segment on."""
        self.config = config
        self._note_active()

    def check_online(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the log is offline or closed."""
        if self.failure is not None:
            raise error_for(self.failure.code, f"the log {self.directory} is offline: {self.failure.message}")
        if self._is_closed:
            raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"the log {self.directory} is closed")

    def must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Return whether batches of ``size`` bytes that end at ``last_offset`` need a new segment (shouldRoll)."""
        active = self.segments.active
        if not active.has_room_for(size, last_offset, self._segment_bytes):
            return True
        first_timestamp = active.first_timestamp
        if first_timestamp == NO_TIMESTAMP and active.size == 0:
            return False
        return waited_ms(first_timestamp, active.created_ms, max_timestamp, now_ms) > self._lifetime_ms

    def roll(self, first_offset: int, now_ms: int) -> None:
        """Start a new segment for a batch at ``first_offset``, which may be above the log's end.

        The segment starts at the log's end, unless the batch is out of its reach. In that case the old segment and its
        indexes are first put on the disk, which marks the gap as intended.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the log is unchanged.
        """
        active = self.segments.active
        base_offset = self.log_end_offset
        if active.size == 0 or first_offset - base_offset > MAX_RELATIVE_OFFSET:
            base_offset = first_offset
        is_below_recovery_point = active.base_offset < self._rewritten_below
        with self._offline_on_failure("Flushing"):
            if base_offset > self.log_end_offset or is_below_recovery_point:
                active.fsync()
            if base_offset > self.log_end_offset:
                active.indexes.save()
                self._files.fsync_directory(self.directory)
        if is_below_recovery_point:
            with self._flushing:
                self._epochs.flush(self.log_end_offset)
        with storage_errors("Rolling a segment of", self.directory):
            if active.seal() and self.log_end_offset <= max(self.recovery_point, self._flushed_to):
                # No later flush covers this segment, and recovery does not check data below the recovery point.
                active.fsync()
            segment = Segment.create(self._files, self.directory, base_offset, self.config)
            segment.created_ms = now_ms
        self.segments.add(segment)
        self.log_end_offset = base_offset
        self._is_directory_dirty = True
        self._note_active()

    def append(self, data: Buffer, headers: Sequence[RecordBatchHeader]) -> None:
        """Write whole batches to the active segment, which has room for them.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the log is unchanged.
        """
        segment = self.segments.active
        try:
            segment.append(data, headers)
        except OSError as cause:
            raise self._undo_append(segment, cause) from cause
        self.log_end_offset = segment.next_offset

    def append_batch(self, parts: Sequence[Buffer], size: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch that consists of several parts. Raise the errors of :meth:`append`."""
        segment = self.segments.active
        try:
            segment.append_batch(parts, size, last_offset, max_timestamp)
        except OSError as cause:
            raise self._undo_append(segment, cause) from cause
        self.log_end_offset = segment.next_offset

    def read(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        """Return whole batches of one segment, from the first that ends above ``offset``, all below ``end_offset``.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        for segment in self.segments.from_offset(offset):
            if segment.base_offset >= end_offset:
                break
            try:
                found = segment.read(offset, max_bytes, end_offset)
            except OSError as cause:
                raise storage_error("Reading", segment.path, cause) from cause
            if found is not None:
                return found
        return b""

    def uncached(self, offset: int, max_bytes: int) -> UncachedBytes | None:
        """Return the bytes of :meth:`read` that are not in the system's memory, or those to read ahead, or None.

        The bytes are of the segment with the offset, and None also if they cannot be read.
        """
        try:
            return next(iter(self.segments.from_offset(offset))).uncached(offset, max_bytes)
        except (OSError, TidelogError):
            # The read itself meets the error, and reports it.
            return None

    def truncate_to(self, offset: int) -> None:
        """Remove the batches that end above ``offset``, which is not below the first segment.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the log is offline.
        """
        with self._offline_on_failure("Truncating"):
            while len(self.segments) > 1 and self.segments.active.base_offset >= offset:
                self.segments.active.remove()
                self._files.fsync_directory(self.directory)
                self.segments.drop_last()
            self.segments.replace_active(self.segments.active.truncated_to(offset))
            self._end_moved_back()

    def truncate_fully_and_start_at(self, offset: int, now_ms: int = 0) -> None:
        """Remove all batches; the next one gets ``offset``. Raise the errors of :meth:`truncate_to`."""
        with self._offline_on_failure("Truncating"):
            for segment in reversed(list(self.segments)):
                segment.remove()
                self._files.fsync_directory(self.directory)
            segment = Segment.create(self._files, self.directory, offset, self.config)
            segment.created_ms = now_ms
            self.segments = Segments([segment])
            self._files.fsync_directory(self.directory)
            self._end_moved_back()
            self.recovery_point = offset

    def delete_oldest(self, count: int, now_ms: int) -> list[str]:
        """Schedule the ``count`` oldest segments, but never all, for deletion and return the names of their log files.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the segments before the one that failed are gone.
        """
        due_ms = now_ms + self.config.file_delete_delay_ms
        names = []
        for _ in range(count):
            segment = self.segments.first
            with storage_errors("Deleting", segment.path):
                self.deleted_files.add(segment.path, due_ms)
                self.segments.drop_first()
                names.append(segment.path.name)
                segment.close()
                self.deleted_files.extend(map(segment.file_path, INDEX_SUFFIXES), due_ms)
        self._is_directory_dirty = self._is_directory_dirty or count > 0
        return names

    def replace(self, cleaned: Segment, sources: Sequence[Segment], now_ms: int) -> bool:
        """Replace sealed segments with a cleaned one. Return False, and remove it, if they are no longer in the log.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the log is offline, and a restart completes the swap.
        """
        place = self.segments.place_of(sources)
        with self._offline_on_failure("Swapping segments of"):
            if place is None or cleaned.base_offset != sources[0].base_offset:
                cleaned.remove()
                return False
            assert cleaned.next_offset <= self.segments[place + len(sources)].base_offset, cleaned.path
            cleaned.fsync()
            cleaned.indexes.save()
            cleaned.set_modified_ms(sources[-1].last_modified_ms)
            self.segments.replace(place, len(sources), cleaned)
            due_ms = now_ms + self.config.file_delete_delay_ms
            swap_in(self._files, self.directory, cleaned, sources, self.deleted_files, due_ms)
            cleaned.indexes.release()
        return True

    def flush(self) -> int:
        """Put all appended batches on the disk and return the new recovery point: the log's end at the call.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR. The log is offline, because the disk's content is unknown, unless only
                the write of the leader epochs failed.
        """
        with self._flushing:
            end_offset = self.log_end_offset
            if end_offset <= self.recovery_point and not self._is_directory_dirty:
                return end_offset
            self._flushed_to = end_offset
            segments = self.segments.from_offset(self.recovery_point)
            with self._offline_on_failure("Flushing"):
                for segment in segments:
                    segment.fsync()
                    if segment is not segments[-1]:
                        self._save_sealed(segment)
                if self._is_directory_dirty:
                    self._is_directory_dirty = False
                    self._files.fsync_directory(self.directory)
            self._epochs.flush(end_offset)
            self.recovery_point = max(self.recovery_point, end_offset)
            if end_offset >= self._rewritten_below:
                self._rewritten_below = 0
            return end_offset

    def close(self) -> None:
        """Flush, write the indexes and close the files, even after an error. Call once.

        Raise the errors of :meth:`flush`.
        """
        try:
            self.check_online()
            active = self.segments.active
            with self._offline_on_failure("Trimming"):
                if active.seal():
                    active.fsync()
            self.flush()
            self._epochs.flush(self.log_end_offset)
            with self._offline_on_failure("Writing the indexes of"):
                self._save_indexes()
        finally:
            self.close_files()

    @property
    def is_closed(self) -> bool:
        """True if the files are closed."""
        return self._is_closed

    def close_files(self) -> None:
        """Close all files; the log cannot be used afterwards.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, the first of the disk's errors; all files are closed.
        """
        self._is_closed = True
        failure: TidelogError | None = None
        for segment in self.segments:
            try:
                with storage_errors("Closing", segment.path):
                    segment.close()
            except TidelogError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _save_indexes(self) -> None:
        unsaved = [segment for segment in self.segments if not segment.indexes.is_saved]
        for segment in unsaved:
            segment.indexes.save()
        if unsaved:
            self._files.fsync_directory(self.directory)

    def _save_sealed(self, segment: Segment) -> None:
        if not segment.indexes.is_saved:
            segment.indexes.save()
            self._is_directory_dirty = True
        segment.indexes.release()

    def _undo_append(self, segment: Segment, cause: OSError) -> TidelogError:
        try:
            segment.cut_excess()
        except OSError as other:
            self.failure = storage_error("Truncating a failed append to", segment.path, other)
            self.failure.__cause__ = other
        return storage_error("Appending to", segment.path, cause)

    def _end_moved_back(self) -> None:
        """Update the offsets after a truncation.

        A published recovery point may lie beyond the new end and still be in a checkpoint. A roll therefore syncs
        segments that begin below it, and the leader epochs, so that recovery from that point finds everything before it
        intact.
        """
        self.log_end_offset = self.segments.active.next_offset
        self._rewritten_below = max(self._rewritten_below, self.recovery_point)
        self.recovery_point = min(self.recovery_point, self.log_end_offset)
        self._is_directory_dirty = True
        self._note_active()

    def _note_active(self) -> None:
        jitter_ms = roll_jitter_ms(self.config, self.directory.name, self.segments.active.base_offset)
        self._lifetime_ms = lifetime_ms(self.config, jitter_ms)
        self._segment_bytes = self.config.segment_bytes

    @contextlib.contextmanager
    def _offline_on_failure(self, action: str) -> Iterator[None]:
        try:
            with storage_errors(action, self.directory):
                yield
        except TidelogError as error:
            self.failure = error
            raise


def roll_jitter_ms(config: LogConfig, name: str, base_offset: int) -> int:
    """Return the jitter by which a segment ends earlier: constant for the segment, below ``segment.jitter.ms``."""
    limit = min(config.segment_jitter_ms, config.segment_ms)
    return zlib.crc32(f"{name}/{base_offset}".encode()) % limit if limit else 0


def lifetime_ms(config: LogConfig, jitter_ms: int = 0) -> int:
    """Return the maximum lifetime of a segment."""
    longest = min(config.segment_ms, config.max_compaction_lag_ms) if config.is_compacted else config.segment_ms
    return longest - jitter_ms


def waited_ms(first_timestamp_ms: int, created_ms: int, batch_timestamp_ms: int, now_ms: int) -> int:
    """Return the age of a segment at the arrival of a batch with that largest timestamp (timeWaitedForRoll).

    A timestamp of -1 means none.
    """
    return batch_timestamp_ms - first_timestamp_ms if first_timestamp_ms >= 0 else now_ms - created_ms
