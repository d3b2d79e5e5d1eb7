"""The log of one partition replica: appends, reads, truncations, over segments and the leader-epoch cache.

Owns what is in the log, not what may be read of it: the high watermark is its caller's. Properties it upholds:
offsets are contiguous from ``log_start_offset`` to ``log_end_offset``; a batch is visible whole or not at all; what
a failed append leaves is cut off, and when that fails too the log is offline; all below ``recovery_point`` is
on the disk; every truncation is on the disk before it returns, so records that were cut never come back after a crash.
"""

from __future__ import annotations

import bisect
import contextlib
from collections.abc import Iterator
from pathlib import Path

from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.ids import NO_EPOCH, LeaderEpoch
from tidelog.records import RecordBatchHeader, assign_offsets, parse_header
from tidelog_node.log.appends import NO_APPEND_TIME, AppendInfo, check_produced, replicated_headers
from tidelog_node.log.config import LOG_APPEND_TIME, LogConfig
from tidelog_node.log.deletion import delete_directory
from tidelog_node.log.epochs import EpochEntry, LeaderEpochCache
from tidelog_node.log.files import OS_FILES, Files, storage_error, storage_errors
from tidelog_node.log.recovery import RecoveryReport, load_segments
from tidelog_node.log.segment import Segment, TimestampAndOffset


class PartitionLog:
    """One replica's log: opened once, used by one thread at a time, closed or deleted once.

    :meth:`flush` alone may run on another thread beside appends and reads, not beside truncations, close or delete.
    Any method raises KAFKA_STORAGE_ERROR, with path and reason, when the disk refuses. After a failure that leaves the
    disk's content unknown (a flush, a truncation) the log is offline: ``failure`` says why and every call raises it.
    """

    def __init__(
        self,
        directory: Path,
        config: LogConfig,
        files: Files,
        epochs: LeaderEpochCache,
        segments: list[Segment],
        recovery: RecoveryReport,
    ) -> None:
        self.directory = directory
        self.config = config
        self.recovery = recovery
        self.failure: TidelogError | None = None
        self._files = files
        self._epochs = epochs
        self._segments = segments
        self._log_end_offset = segments[-1].next_offset
        self._recovery_point = self._log_end_offset
        self._rewritten_below = 0
        self._is_directory_dirty = True
        self._is_closed = False

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        files: Files = OS_FILES,
        clean: bool = False,
        recovery_point: int = 0,
    ) -> PartitionLog:
        """Open the log in a directory, which is created when missing, and repair what a crash left.

        ``clean`` says that the log was closed and its directory's clean-shutdown marker found; otherwise every batch
        from ``recovery_point`` on is checked. ``recovery`` then tells what was cut.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, the disk refuses.
        """
        with storage_errors("Opening the log", directory):
            files.mkdir(directory)
            files.fsync_directory(directory.parent)
            epochs = LeaderEpochCache(files, directory)
            segments, report = load_segments(
                files, directory, config, epochs, clean=clean, recovery_point=recovery_point
            )
        log = cls(directory, config, files, epochs, segments, report)
        if not clean:
            log._recovery_point = min(recovery_point, log.log_end_offset)
            log._rewritten_below = recovery_point if recovery_point > log.log_end_offset else 0
        return log

    @property
    def log_start_offset(self) -> int:
        """The offset of the first record that is there."""
        return self._segments[0].base_offset

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._log_end_offset

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on the disk."""
        return self._recovery_point

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The newest leader epoch in the cache, or -1."""
        return self._epochs.latest_epoch

    @property
    def epoch_entries(self) -> tuple[EpochEntry, ...]:
        """The leader epochs and where each begins, oldest first."""
        return self._epochs.entries

    @property
    def size_in_bytes(self) -> int:
        """The bytes of all batches."""
        return sum(segment.size for segment in self._segments)

    @property
    def segment_count(self) -> int:
        """How many segments there are."""
        return len(self._segments)

    def append_as_leader(self, records: bytes | bytearray | memoryview, leader_epoch: int, now_ms: int) -> AppendInfo:
        """Append one batch from a producer; it gets the next offsets and the leader's epoch.

        Raises:
            CorruptRecordError: the batch is torn or changed.
            TidelogError: MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE; INVALID_RECORD, INVALID_TIMESTAMP or
                UNSUPPORTED_COMPRESSION_TYPE for a batch that no client may write; FENCED_LEADER_EPOCH when the log has
                records of a later epoch; KAFKA_STORAGE_ERROR. The log is then as it was.
        """
        self._check_online()
        check_produced(records, self.config)
        self._check_epoch(leader_epoch)
        has_append_time = self.config.message_timestamp_type == LOG_APPEND_TIME
        batch = bytearray(records)
        assign_offsets(batch, self._log_end_offset, leader_epoch, now_ms if has_append_time else None)
        headers = [parse_header(batch)]
        self._append(batch, headers)
        return AppendInfo.of(headers, now_ms if has_append_time else NO_APPEND_TIME)

    def append_as_follower(self, records: bytes | bytearray | memoryview) -> AppendInfo:
        """Append whole batches as the leader has them; the first must begin at ``log_end_offset``.

        All are checked before the first is written. Where a segment ends between them, an error of the disk can
        leave the earlier ones appended.

        Raises:
            CorruptRecordError: a batch is torn or changed, not contiguous, or of an epoch before its predecessor's;
                nothing is appended.
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        self._check_online()
        end_offset = self._log_end_offset
        epoch = self._epochs.epoch_at(end_offset - 1) if end_offset > self.log_start_offset else NO_EPOCH
        headers = replicated_headers(records, end_offset, epoch)
        self._append(records, headers)
        return AppendInfo.of(headers)

    def read(self, offset: int, max_bytes: int, end_offset: int) -> bytes:
        """Return whole batches from the one that contains ``offset``, all of them below ``end_offset``.

        At most ``max_bytes``, but at least one batch; not beyond the end of a segment. Empty at the end.

        Raises:
            TidelogError: OFFSET_OUT_OF_RANGE; KAFKA_STORAGE_ERROR.
        """
        self._check_online()
        if not self.log_start_offset <= offset <= self._log_end_offset:
            raise error_for(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.directory.name} is not from log start {self.log_start_offset}"
                f" to log end {self._log_end_offset}",
            )
        if offset >= min(end_offset, self._log_end_offset):
            return b""
        segment = self._segment_of(offset)
        with storage_errors("Reading", segment.path):
            return segment.read(offset, max_bytes, end_offset)

    def truncate_to(self, offset: int) -> None:
        """Remove the records from ``offset`` on; a batch that contains it goes whole.

        An offset below ``log_start_offset`` empties the log and starts it there. Epochs that begin at the new end
        or later are forgotten, also when no record is removed.
        """
        self._check_online()
        if offset < self.log_start_offset:
            self.truncate_fully_and_start_at(offset)
            return
        with self._offline_on_failure("Truncating"):
            if offset < self._log_end_offset:
                self._remove_segments(from_offset=offset)
                if offset < self._segments[-1].next_offset:
                    self._segments[-1].truncate_to(offset)
                self._end_moved_back()
            self._epochs.truncate_from_end(self._log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records and epochs; the next record gets ``offset``."""
        self._check_online()
        if offset < 0:
            raise ValueError(f"a log cannot start at {offset}")
        with self._offline_on_failure("Truncating"):
            for segment in reversed(self._segments):
                segment.remove()
                self._files.fsync_directory(self.directory)
            self._segments = [Segment.create(self._files, self.directory, offset, self.config)]
            self._files.fsync_directory(self.directory)
            self._end_moved_back()
            self._recovery_point = offset
            self._epochs.clear()

    def end_offset_for_epoch(self, epoch: int) -> tuple[LeaderEpoch, int]:
        """Return the largest epoch that is not above ``epoch``, and its end offset; (-1, -1) when unknown (KIP-101)."""
        return self._epochs.end_offset_for(epoch, self._log_end_offset)

    def assign_epoch_start(self, epoch: int, offset: int) -> None:
        """Note that ``epoch`` begins at ``offset``, as a new leader does at its log's end before it appends.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the epochs are as they were.
        """
        self._check_online()
        self._epochs.assign(LeaderEpoch(epoch), offset)

    def find_by_timestamp(self, timestamp_ms: int) -> TimestampAndOffset | None:
        """Return the first record, by offset, whose timestamp is at least ``timestamp_ms``; None when there is none.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        self._check_online()
        with storage_errors("Searching", self.directory):
            for segment in self._segments:
                if segment.max_timestamp >= timestamp_ms:
                    found = segment.find_by_timestamp(timestamp_ms, self.log_start_offset)
                    if found is not None:
                        return found
        return None

    def find_max_timestamp(self) -> TimestampAndOffset | None:
        """Return the first record with the log's largest timestamp; None when no record has one (KIP-734).

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        self._check_online()
        with storage_errors("Searching", self.directory):
            return max(self._segments, key=lambda segment: segment.max_timestamp).find_max_timestamp()

    def flush(self) -> int:
        """Put all that is appended by now on the disk and return the new recovery point: the log's end at the call.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the log is offline, since what the disk holds is no longer known.
        """
        self._check_online()
        end_offset, segments = self._log_end_offset, list(self._segments)
        with self._offline_on_failure("Flushing"):
            for segment in segments:
                if segment.next_offset >= self._recovery_point:
                    segment.fsync()
                    if segment is not segments[-1] and segment.has_unsaved_indexes:
                        segment.save_indexes()
                        self._is_directory_dirty = True
            if self._is_directory_dirty:
                self._is_directory_dirty = False
                self._files.fsync_directory(self.directory)
        self._recovery_point = end_offset
        if end_offset >= self._rewritten_below:
            self._rewritten_below = 0
        return end_offset

    def close(self) -> None:
        """Flush, write the indexes and close the files; a second call does nothing.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the files are closed, but the log was not closed cleanly, which is so
                for every log that is offline.
        """
        if self._is_closed:
            return
        try:
            self.flush()
            self._save_indexes()
        finally:
            self._close_files()

    def delete(self) -> None:
        """Close the files and remove the directory.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        self._close_files()
        delete_directory(self._files, self.directory)

    def check_invariants(self) -> None:
        """Assert what the module says: contiguous offsets, right indexes, epochs as the batches have them."""
        expected = self.log_start_offset
        epochs: list[EpochEntry] = []
        for segment in self._segments:
            assert segment.base_offset == expected, (segment.path, expected)
            segment.check_invariants()
            expected = segment.next_offset
            for _, header in segment.headers(0):
                if not epochs or header.partition_leader_epoch != epochs[-1].epoch:
                    epochs.append(EpochEntry(LeaderEpoch(header.partition_leader_epoch), header.base_offset))
        assert expected == self._log_end_offset, (expected, self._log_end_offset)
        assert 0 <= self._recovery_point <= self._log_end_offset, (self._recovery_point, self._log_end_offset)
        self._epochs.check_invariants()
        ahead = [entry for entry in self._epochs.entries if entry.start_offset >= self._log_end_offset]
        assert [*epochs, *ahead] == list(self._epochs.entries), (epochs, self._epochs.entries)
        assert len(ahead) <= 1, ahead

    def _check_online(self) -> None:
        if self.failure is not None:
            raise error_for(self.failure.code, f"the log {self.directory} is offline: {self.failure.message}")
        if self._is_closed:
            raise error_for(ErrorCode.KAFKA_STORAGE_ERROR, f"the log {self.directory} is closed")

    def _check_epoch(self, leader_epoch: int) -> None:
        if leader_epoch < self.latest_epoch:
            raise error_for(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"append to {self.directory.name} in leader epoch {leader_epoch}, the log has {self.latest_epoch}",
            )

    def _append(self, data: bytes | bytearray | memoryview, headers: list[RecordBatchHeader]) -> None:
        """Write batches to the active segment, rolling it where they do not fit or the leader epoch changes."""
        position, done = 0, 0
        while done < len(headers):
            segment, group = self._place(headers, done)
            size = sum(header.size_in_bytes for header in group)
            self._epochs.assign(LeaderEpoch(group[0].partition_leader_epoch), self._log_end_offset)
            part = data if size == len(data) else memoryview(data)[position : position + size]
            try:
                segment.append(part, group)
            except OSError as cause:
                self._undo_append(segment)
                raise storage_error("Appending to", segment.path, cause) from cause
            self._log_end_offset = segment.next_offset
            position, done = position + size, done + len(group)

    def _place(self, headers: list[RecordBatchHeader], first: int) -> tuple[Segment, list[RecordBatchHeader]]:
        """Return the segment for the next batches and those that go there in one write: of one leader epoch."""
        head = headers[first]
        segment = self._segment_for(head)
        group, size = [head], head.size_in_bytes
        for header in headers[first + 1 :]:
            size += header.size_in_bytes
            is_same_epoch = header.partition_leader_epoch == head.partition_leader_epoch
            is_too_large = size > self.config.segment_bytes
            if is_too_large or not is_same_epoch or not segment.has_room_for(size, header.last_offset):
                break
            group.append(header)
        return segment, group

    def _segment_for(self, header: RecordBatchHeader) -> Segment:
        active = self._segments[-1]
        if active.has_room_for(header.size_in_bytes, header.last_offset):
            return active
        if active.base_offset < self._rewritten_below:
            with self._offline_on_failure("Flushing"):
                active.fsync()
        with storage_errors("Rolling a segment of", self.directory):
            segment = Segment.create(self._files, self.directory, self._log_end_offset, self.config)
        active.seal()
        self._segments.append(segment)
        self._is_directory_dirty = True
        return segment

    def _save_indexes(self) -> None:
        with self._offline_on_failure("Writing the indexes of"):
            self._segments[-1].save_indexes()
            for segment in self._segments:
                if segment.has_unsaved_indexes:
                    segment.save_indexes()
            self._files.fsync_directory(self.directory)

    def _close_files(self) -> None:
        self._is_closed = True
        for segment in self._segments:
            segment.close()

    def _undo_append(self, segment: Segment) -> None:
        try:
            segment.cut_excess()
        except OSError as cause:
            self.failure = storage_error("Cutting off what a failed append left in", segment.path, cause)

    def _segment_of(self, offset: int) -> Segment:
        return self._segments[bisect.bisect_right(self._segments, offset, key=lambda s: s.base_offset) - 1]

    def _remove_segments(self, from_offset: int) -> None:
        """Remove the segments that begin at an offset or later, the newest first; the log's first one stays."""
        while len(self._segments) > 1 and self._segments[-1].base_offset >= from_offset:
            self._segments[-1].remove()
            self._files.fsync_directory(self.directory)
            self._segments.pop()

    def _end_moved_back(self) -> None:
        """After a truncation.

        A recovery point that was handed out may lie beyond the new end and be checkpointed still. Segments that begin
        below it are therefore synced when they are rolled, so that recovery from there finds all before it intact.
        """
        self._log_end_offset = self._segments[-1].next_offset
        self._rewritten_below = max(self._rewritten_below, self._recovery_point)
        self._recovery_point = min(self._recovery_point, self._log_end_offset)
        self._is_directory_dirty = True

    @contextlib.contextmanager
    def _offline_on_failure(self, action: str) -> Iterator[None]:
        try:
            with storage_errors(action, self.directory):
                yield
        except TidelogError as error:
            self.failure = error
            raise
