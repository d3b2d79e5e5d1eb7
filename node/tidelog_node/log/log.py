"""The log of one partition replica: appends, reads, truncations, deletions (Kafka's UnifiedLog).

Owns the content of the log; its caller owns the high watermark, which limits reads. :class:`LocalLog` has the segments
and their durability; this module has the leader epochs, the producers, the log's start and the rules of appends and
retention. It guarantees that offsets ascend from ``log_start_offset`` to ``log_end_offset``, with gaps only where
compaction left them; that every batch's leader epoch is in the cache before the batch is in the log; and that the
producers' state matches the batches.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import LeaderEpoch
from tidelog_foundation.records import RecordBatchHeader, parse_header
from tidelog_node.log import short_append
from tidelog_node.log.append_rules import AppendInfo, CheckedBatch, ProduceRules
from tidelog_node.log.appender import Appender
from tidelog_node.log.config import LogConfig
from tidelog_node.log.directory.deletion import delete_directory, rename_for_deletion
from tidelog_node.log.directory.partition_folder import NewFolder
from tidelog_node.log.disk.files import OS_FILES, Buffer, Files, storage_errors
from tidelog_node.log.epochs import EPOCH_CHECKPOINT, LeaderEpochCache
from tidelog_node.log.local_log import LocalLog
from tidelog_node.log.log_reader import LogReader
from tidelog_node.log.producer_replay import ProducerReplay
from tidelog_node.log.producers.snapshots import ProducerSnapshots
from tidelog_node.log.producers.verification import NO_GUARD
from tidelog_node.log.recovery import RecoveryInput, RecoveryReport, load_segments
from tidelog_node.log.retention import Reason, RetentionPoint, SegmentExtent, find_expired
from tidelog_node.log.segments.file_names import LOG_SUFFIX
from tidelog_node.log.segments.segment import Segment

logger = logging.getLogger(__name__)

PRODUCER_EXPIRATION_MS = 86_400_000


class PartitionLog(LogReader):
    """One replica's log: opened once, used by one thread at a time, closed or deleted once.

    :meth:`flush` and :meth:`remove_deleted_files` may run in another thread during appends and reads, but not during
    any other method. Any method raises KAFKA_STORAGE_ERROR, with path and reason, if the disk refuses. A failure that
    leaves the disk's content unknown (a flush, a truncation, a swap) takes the log offline: ``failure`` has the error,
    and every call raises it.
    """

    __slots__ = ("_appender", "_files", "_new_folder", "_unflushed_since_ms", "recovery")

    def __init__(
        self,
        local: LocalLog,
        epochs: LeaderEpochCache,
        producers: ProducerReplay,
        files: Files,
        recovery: RecoveryReport,
        log_start_offset: int,
        new_folder: NewFolder | None = None,
    ) -> None:
        super().__init__(local, epochs, producers, log_start_offset)
        self.recovery = recovery
        self._files = files
        self._new_folder = new_folder
        self._unflushed_since_ms: int | None = None
        self._appender = Appender(local, epochs, producers)

    @classmethod
    def open(
        cls,
        directory: Path,
        config: LogConfig,
        *,
        files: Files = OS_FILES,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        producer_id_expiration_ms: int = PRODUCER_EXPIRATION_MS,
        now_ms: int = 0,
        new_folder: NewFolder | None = None,
    ) -> PartitionLog:
        """Open the log in a directory, creating it if it is missing, and repair the damage of a crash.

        ``clean`` means that the log was closed and its directory's clean-shutdown marker found; otherwise every batch
        from ``recovery_point`` on is checked. ``recovery`` then reports what was cut off. ``log_start_offset`` comes
        from the checkpoint; a log that ends below it has no readable records and restarts there. With ``new_folder``
        there is no directory yet; :meth:`create_folder` creates it.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, the disk refuses.
        """
        is_new = new_folder is not None
        known = RecoveryInput(files, directory, config, clean, recovery_point, log_start_offset, now_ms, is_new)
        with storage_errors("Opening the log", directory):
            names = () if is_new else _names_in(files, directory)
            epochs = LeaderEpochCache(files, directory, exists=EPOCH_CHECKPOINT in names)
            producers = ProducerReplay(ProducerSnapshots(files, directory, producer_id_expiration_ms), now_ms)
            segments, report = load_segments(known, names, epochs, producers)
            active = segments[-1]
            is_untouched = clean and not report.checked_segments and active.indexes.is_saved
            point = active.next_offset if clean else recovery_point
            local = LocalLog(files, directory, config, segments, epochs, point, is_untouched)
            log_start = max(log_start_offset, segments[0].base_offset)
            log = cls(local, epochs, producers, files, report, log_start, new_folder)
            producers.snapshots.retain(local.segments.base_offsets)
        if log_start > log.log_end_offset:
            logger.warning(
                "%s ends at offset %d and restarts at its log start offset %d", directory, log.log_end_offset, log_start
            )
            log.truncate_fully_and_start_at(log_start)
        return log

    @property
    def config(self) -> LogConfig:
        """The settings, which may be changed while the log is open."""
        return self._local.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._local.change_config(config)
        self._appender.change_config(config)

    @property
    def produce_rules(self) -> ProduceRules:
        """The current rules for a producer's batch, for callers that check batches in a thread before the append."""
        return self._appender.rules

    def append_as_leader(
        self, batch: Buffer | CheckedBatch, leader_epoch: int, now_ms: int, guard: int = NO_GUARD
    ) -> AppendInfo:
        """Append one batch from a producer with the next offsets and the leader's epoch.

        The topic's settings apply, unless :attr:`produce_rules` has checked the batch already.

        A batch that is among the last five of its idempotent producer is not appended again: the call returns the
        result of the first append. The log writes the assigned fields into a writable memoryview; other buffers stay
        unchanged. A batch that begins a transaction needs the ``guard`` of :meth:`begin_verification`.

        Raises:
            CorruptRecordError: the batch is truncated or altered.
            TidelogError: MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE; INVALID_RECORD, INVALID_TIMESTAMP or
                UNSUPPORTED_COMPRESSION_TYPE for a batch that no client may write; OUT_OF_ORDER_SEQUENCE_NUMBER,
                INVALID_PRODUCER_EPOCH or INVALID_TXN_STATE; FENCED_LEADER_EPOCH if the log has records of a later
                epoch; KAFKA_STORAGE_ERROR. The log is then unchanged.
        """
        if self._new_folder is not None:
            self.create_folder()
        info = self._appender.append_as_leader(batch, leader_epoch, now_ms, guard)
        self._appended(now_ms)
        return info

    def needs_verification(self, header: RecordBatchHeader) -> bool:
        """Return whether a transactional batch would begin a transaction."""
        return self._producers.snapshots.state.needs_verification(header)

    def begin_verification(self, header: RecordBatchHeader, now_ms: int, *, begins_at_zero: bool) -> int:
        """Return the guard of a batch that would begin a transaction, or NO_GUARD (KIP-890).

        The caller asks the transaction coordinator whether the partition belongs to the transaction, and then appends
        the batch with the guard. ``begins_at_zero`` requires the first sequence of an unknown producer to be 0.

        Raises:
            TidelogError: INVALID_PRODUCER_EPOCH.
        """
        state = self._producers.snapshots.state
        return state.begin_verification(header, begins_at_zero=begins_at_zero, now_ms=now_ms)

    def append_marker(self, batch: Buffer, leader_epoch: int, now_ms: int, transaction_version: int) -> AppendInfo:
        """Append the marker of a transaction coordinator as the leader.

        ``transaction_version`` is the version of the client that ended the transaction.

        Raises:
            TidelogError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED; FENCED_LEADER_EPOCH if the log has
                records of a later epoch; KAFKA_STORAGE_ERROR. The log is then unchanged.
        """
        if self._new_folder is not None:
            self.create_folder()
        info = self._appender.append_marker(batch, leader_epoch, now_ms, transaction_version)
        self._appended(now_ms)
        return info

    def append_coordinated(self, batch: Buffer, leader_epoch: int, now_ms: int, guard: int) -> AppendInfo:
        """Append a transactional batch of this node's group coordinator as the leader. It has no sequence.

        Raises:
            TidelogError: INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE; FENCED_LEADER_EPOCH if the log has records of a
                later epoch; KAFKA_STORAGE_ERROR. The log is then unchanged.
        """
        if self._new_folder is not None:
            self.create_folder()
        info = self._appender.append_coordinated(batch, leader_epoch, now_ms, guard)
        self._appended(now_ms)
        return info

    def append_as_follower(self, records: Buffer, now_ms: int = 0) -> AppendInfo:
        """Append whole batches exactly as the leader has them; the first may begin above ``log_end_offset``.

        All are checked before the first is written. The first batch may begin below the start of an empty log. If they
        span segments, a disk error can leave the earlier ones appended. ``now_ms`` decides about rolling if batches
        have no timestamps.

        Raises:
            CorruptRecordError: a batch is truncated or altered, or its offset or epoch is below that of the batch
                before; nothing is appended.
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        if short := short_append.append_as_follower(self, records, now_ms):
            return short
        if self._new_folder is not None:
            self.create_folder()
        if self._log_start_offset == self.log_end_offset:
            info = self._append_first(records, now_ms)
        else:
            info = self._appender.append_as_follower(records, now_ms)
        self._appended(now_ms)
        return info

    @property
    def has_folder(self) -> bool:
        """True if the directory exists."""
        return self._new_folder is None

    def create_folder(self) -> None:
        """Create the directory of a new log, durably; safe in a thread. Appends call it first.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR.
        """
        new_folder = self._new_folder
        if new_folder is not None:
            new_folder.create(self._local.segments.active.make_file)
            self._new_folder = None

    def roll(self, now_ms: int) -> None:
        """Close the active segment, unless it is empty, and start another one.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the log is unchanged, or offline.
        """
        self._local.check_online()
        self.create_folder()
        if self._local.segments.active.size:
            self._appender.roll(self.log_end_offset, now_ms)

    def truncate_to(self, offset: int) -> None:
        """Remove the records from ``offset`` on, and the whole of a batch that contains it.

        An offset below the first segment empties the log and starts it there. Epochs that begin at the new end or later
        are removed, even if no record is.
        """
        self._local.check_online()
        if offset < self._local.segments.first.base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        start = min(self._log_start_offset, offset)
        with self._offline_on_failure():
            if offset < self.log_end_offset:
                self._local.truncate_to(offset)
                if self.log_end_offset < start:
                    # The batch that contained the log's start is gone; the start, which may be in a checkpoint, must
                    # not move back.
                    self.truncate_fully_and_start_at(start)
                    return
                self._log_start_offset = start
                with storage_errors("Reading the producers of", self.directory):
                    self._producers.load(list(self._local.segments), start, self.log_end_offset)
            self._epochs.truncate_from_end(self.log_end_offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Remove all records, epochs and producers; the next record gets ``offset``."""
        self._local.check_online()
        if offset < 0:
            raise ValueError(f"a log cannot start at {offset}")
        with self._offline_on_failure():
            self.create_folder()
            self._local.truncate_fully_and_start_at(offset)
            self._log_start_offset = offset
            self._epochs.clear()
            self._producers.snapshots.clear()

    def advance_log_start_offset(self, offset: int) -> bool:
        """Hide the records below ``offset``, which is not above the high watermark. Return False if they are hidden.

        :meth:`delete_expired` deletes the segments entirely below it.
        """
        self._local.check_online()
        if offset <= self._log_start_offset:
            return False
        if offset > self.log_end_offset:
            raise error_for(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.directory.name} cannot start at {offset}, above its end {self.log_end_offset}",
            )
        self._log_start_offset = offset
        self._epochs.truncate_from_start(offset)
        return True

    def delete_expired(self, now_ms: int, high_watermark: int) -> list[str]:
        """Delete the segments that expired or lie below the log's start, and return the names of their log files.

        Their files are renamed; :meth:`remove_deleted_files` removes them. An active segment is rolled before its
        deletion; on a full disk, without space for a new one, it stays until the other deletions have made space.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the oldest ones may be gone.
        """
        self._local.check_online()
        segments = self._local.segments
        point = RetentionPoint(self._log_start_offset, high_watermark, now_ms)
        with storage_errors("Looking for expired segments of", self.directory):
            reasons = self._find_expired(point)
        if not reasons:
            return []
        if len(reasons) == len(segments) and not self._has_successor(now_ms, is_needed=len(reasons) == 1):
            reasons.pop()
        for segment, reason in zip(segments, reasons, strict=False):
            logger.info("Segment %s of %s is deleted: %s", segment.path.name, self.directory.name, reason.value)
        start = segments[len(reasons)].base_offset
        self.advance_log_start_offset(start)
        names = self._local.delete_oldest(len(reasons), now_ms)
        self._producers.snapshots.delete_below(start)
        return names

    def remove_deleted_files(self, now_ms: int) -> int:
        """Remove deleted files whose ``file.delete.delay.ms`` is over and return their number; safe in a thread.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the next call tries them again.
        """
        return self._local.deleted_files.remove(now_ms)

    def replace_segments(self, cleaned: Segment, sources: Sequence[Segment], now_ms: int = 0) -> bool:
        """Replace segments with the cleaned segment made from them; the replacement is atomic across a crash.

        ``cleaned`` begins where the first source does and has the suffix ``.cleaned``. Return False, and remove it, if
        the sources are no longer consecutive sealed segments of this log. :meth:`remove_deleted_files` removes the old
        files.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the log is offline.
        """
        self._local.check_online()
        return self._local.replace(cleaned, sources, now_ms)

    def assign_epoch_start(self, epoch: int, offset: int) -> None:
        """Record that ``epoch`` begins at ``offset``; a new leader does so at its log's end before it appends.

        Nothing is written: an epoch is on the disk before a recovery point above its first batch is published.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, the log is offline.
        """
        self._local.check_online()
        self._epochs.assign(LeaderEpoch(epoch), offset)

    def expire_producers(self, now_ms: int) -> int:
        """Remove the producers that were idle for ``producer.id.expiration.ms`` and return their number."""
        return self._producers.snapshots.state.expire(now_ms)

    def needs_flush(self, now_ms: int) -> bool:
        """Return whether a flush is due: because of ``flush.ms``, or for a sealed segment that is not on the disk."""
        if self.log_end_offset <= self.recovery_point:
            return False
        if self.active_base_offset > self.recovery_point:
            return True
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms
        return now_ms - self._unflushed_since_ms >= self.config.flush_ms

    def flush(self) -> int:
        """Put all appended batches on the disk and return the new recovery point: the log's end at the call.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR. The log is offline, because the disk's content is unknown, unless only
                the write of the leader epochs failed. The recovery point is unchanged.
        """
        self._local.check_online()
        if self._new_folder is not None:
            return self.log_end_offset
        self._unflushed_since_ms = None
        recovery_point = self._local.flush()
        self._producers.snapshots.flush()
        return recovery_point

    def close(self) -> None:
        """Flush, write the indexes and the producers and close the files; a second call does nothing.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the files are closed, but not cleanly. An offline log always raises it.
        """
        if not self._local.is_closed:
            if self._new_folder is not None and self.failure is None:
                self._cancel_new_folder()
                self._local.close_files()
                return
            self._cancel_new_folder()
            self._local.close()
            if self.log_end_offset > self._local.segments.first.base_offset or len(self._producers.snapshots.state):
                self._producers.snapshots.take(self.log_end_offset, durable=True)

    def go_offline(self, error: TidelogError) -> None:
        """Refuse all further calls, as after a failure of this log, because the disk failed under another log."""
        if self._local.failure is None:
            self._local.failure = error

    def take_over(self, original: PartitionLog) -> None:
        """Copy settings, start, epochs and producers of another log of the same records; do not use it afterwards."""
        assert self.log_end_offset == original.log_end_offset, (self.directory, original.directory)
        self.config = original.config
        self.advance_log_start_offset(original.log_start_offset)
        for entry in original.epoch_entries:
            if entry.epoch > self.latest_epoch:
                self.assign_epoch_start(entry.epoch, entry.start_offset)
        self._producers.snapshots.take_over(original._producers.snapshots, self.log_end_offset)

    def rename_for_deletion(self) -> Path:
        """Close the files and rename the directory to ``topic-N.<uuid>-delete`` for a later removal."""
        self._cancel_new_folder()
        self._local.close_files()
        return rename_for_deletion(self._files, self.directory)

    def delete(self) -> None:
        """Close the files and remove the directory."""
        self._cancel_new_folder()
        self._local.close_files()
        delete_directory(self._files, self.directory)

    def _find_expired(self, point: RetentionPoint) -> list[Reason]:
        segments = self._local.segments
        ends = [*segments.base_offsets[1:], self.log_end_offset]
        extents = [SegmentExtent(end, segment.size) for end, segment in zip(ends, segments, strict=True)]
        return find_expired(extents, lambda index: segments[index].largest_timestamp, self.config, point)

    def _cancel_new_folder(self) -> None:
        if self._new_folder is not None:
            self._new_folder.cancel()

    def _appended(self, now_ms: int) -> None:
        if self._unflushed_since_ms is None:
            self._unflushed_since_ms = now_ms
        local = self._local
        if local.log_end_offset - local.recovery_point >= local.config.flush_messages:
            self.flush()

    def _append_first(self, records: Buffer, now_ms: int) -> AppendInfo:
        """Append to an empty log whose start may lie within the first batch, after a deletion of some of its records.

        Kafka's UnexpectedAppendOffsetException. The log's first segment begins at the batch, and its start is
        unchanged.
        """
        start, header = self._log_start_offset, parse_header(records)
        if not header.base_offset < start < header.next_offset:
            return self._appender.append_as_follower(records, now_ms)
        self.truncate_fully_and_start_at(header.base_offset)
        try:
            info = self._appender.append_as_follower(records, now_ms)
        except TidelogError:
            if self.failure is None and self.log_end_offset < start:
                self.truncate_fully_and_start_at(start)
            raise
        finally:
            self._log_start_offset = start
        self._epochs.truncate_from_start(start)
        return info

    @contextlib.contextmanager
    def _offline_on_failure(self) -> Iterator[None]:
        """Take the log offline after a partial truncation: its epochs and producers do not match its batches."""
        try:
            yield
        except TidelogError as error:
            self.go_offline(error)
            raise

    def _has_successor(self, now_ms: int, *, is_needed: bool) -> bool:
        """Roll the active segment. Return False if the disk refuses and ``is_needed`` is False."""
        try:
            self._appender.roll(self.log_end_offset, now_ms)
        except TidelogError:
            if is_needed or self.failure is not None:
                raise
            return False
        with storage_errors("Flushing", self.directory):
            self._files.fsync_directory(self.directory)
        return True


def _names_in(files: Files, directory: Path) -> Sequence[str]:
    """Return the content of a log's directory, creating it durably if it is missing."""
    try:
        names: Sequence[str] = files.listdir(directory)
    except FileNotFoundError:
        files.mkdir(directory)
        names = ()
    if not any(name.endswith(LOG_SUFFIX) for name in names):
        files.fsync_directory(directory.parent)
    return names
