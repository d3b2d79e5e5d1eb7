"""Rules for appending batches to a log, and the results of appends. Pure: no state, no disk."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from tidelog_foundation.config.topic import LOG_APPEND_TIME, PRODUCER_COMPRESSION
from tidelog_foundation.errors import CorruptRecordError, ErrorCode, KafkaError, TidelogError, error_for
from tidelog_foundation.ids import LeaderEpoch
from tidelog_foundation.records import (
    CODECS,
    HEADER_SIZE,
    MAX_EXPANSION,
    OversizedRecordsError,
    ProducedBatch,
    RecordBatchHeader,
    assign_offsets,
    check_timestamps,
    compress_records,
    encode_batch,
    inspect_produced,
    keyless_records,
    parse_header,
    records_outside,
    validate_batch,
)
from tidelog_node.log.config import LogConfig
from tidelog_node.log.disk.files import Buffer
from tidelog_node.log.producers.entries import Duplicate

NO_APPEND_TIME = -1
_ASSIGNED = struct.Struct(">qii")
_CODEC_POSITION, _CODEC_MASK = 22, 0x07
_MAX_NAMED = 100
"""The maximum number of records that an error names; a batch may have tens of thousands."""


class RecordError(NamedTuple):
    """The reason why a record makes its batch invalid; ``batch_index`` is the record's place in the batch, from 0."""

    batch_index: int
    message: str


class RefusedRecordsError(TidelogError):
    """A batch is refused because of some of its records; ``records`` has the first 100 of them."""

    def __init__(self, error: KafkaError, records: tuple[RecordError, ...] = ()) -> None:
        super().__init__(error)
        self.records = records


class AppendInfo(NamedTuple):
    """The result of an append of ``first_offset`` to ``last_offset``, both inclusive.

    ``log_append_time_ms`` is -1 unless the topic's timestamps are LogAppendTime. ``is_duplicate`` means that the log
    already had the batch of an idempotent producer: the offsets are those of the first append, and nothing was written.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    size_in_bytes: int
    last_leader_epoch: LeaderEpoch
    is_duplicate: bool = False

    @classmethod
    def of(cls, headers: Sequence[RecordBatchHeader]) -> AppendInfo:
        """Return the result of appending these batches, of which there is at least one."""
        if len(headers) == 1:
            [only] = headers
            base, epoch = only.base_offset, LeaderEpoch(only.partition_leader_epoch)
            return cls(
                base, base + only.last_offset_delta, only.max_timestamp, NO_APPEND_TIME, only.size_in_bytes, epoch
            )
        return cls(
            first_offset=headers[0].base_offset,
            last_offset=headers[-1].last_offset,
            max_timestamp=max([header.max_timestamp for header in headers]),
            log_append_time_ms=NO_APPEND_TIME,
            size_in_bytes=sum([header.size_in_bytes for header in headers]),
            last_leader_epoch=LeaderEpoch(headers[-1].partition_leader_epoch),
        )


class AssignedBatch(NamedTuple):
    """A batch in the form that a leader writes: the concatenation of ``parts``."""

    parts: tuple[Buffer, ...]
    size: int
    base_offset: int
    last_offset: int
    max_timestamp: int


class CheckedBatch(NamedTuple):
    """A producer's batch that a leader may append: its header, and its bytes in the topic's codec.

    ``max_timestamp`` is the largest timestamp of its records; the header's may differ. ``plain_size`` is the size of
    its records after decompression, in bytes.
    """

    header: RecordBatchHeader
    records: Buffer
    max_timestamp: int
    plain_size: int


class ProduceRules:
    """Validation of a producer's batch by the topic's settings (Kafka's LogValidator).

    It reads every batch record by record, compressed or not. Immutable: :meth:`check` may run in a thread.
    ``max_plain_bytes`` limits the decompressed size of a batch's records.
    """

    __slots__ = (
        "_after_max_ms",
        "_before_max_ms",
        "_codec",
        "_codec_id",
        "_config",
        "_has_append_time",
        "_is_compacted",
        "_level",
        "_max_bytes",
        "compresses",
        "max_plain_bytes",
        "plain_limits",
    )

    def __init__(self, config: LogConfig) -> None:
        self._config = config
        self.max_plain_bytes = MAX_EXPANSION * config.max_message_bytes
        self._max_bytes = min(config.max_message_bytes, config.segment_bytes)
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._has_append_time = config.message_timestamp_type == LOG_APPEND_TIME
        self._is_compacted = config.is_compacted
        compression = "none" if config.compression_type == "uncompressed" else config.compression_type
        self._codec = None if compression == PRODUCER_COMPRESSION else compression
        self._codec_id = None if self._codec is None else CODECS.index(self._codec)
        self._level = config.compression_level
        self.compresses = self._codec_id not in (None, 0)
        """True if an uncompressed batch must be compressed before it can be appended."""
        takes_as_it_is = not self._has_append_time and not self.compresses
        limits = self._max_bytes, self._before_max_ms, self._after_max_ms, self._is_compacted
        self.plain_limits = limits if takes_as_it_is else None
        """The limits of a batch that is appended uncompressed and with its own timestamps, None if no batch is.

        They are its size in bytes, the age and the lead of its timestamps in milliseconds, and whether it needs keys.
        """

    def must_convert(self, records: Buffer) -> bool:
        """Return whether a batch must be decompressed or compressed before it can be appended."""
        return self.compresses or _codec_id_of(records) != 0

    def check(self, records: Buffer, now_ms: int, plain_limit: int | None = None) -> CheckedBatch:
        """Validate a producer's batch and return it in the form to append.

        Its records may decompress to ``MAX_EXPANSION`` times ``max.message.bytes``, or to ``plain_limit`` bytes if that
        is less; the caller sets ``plain_limit`` by the time that it can spend.

        Raises:
            OversizedRecordsError: the records decompress to more than ``plain_limit``.
            CorruptRecordError: the batch is truncated or altered.
            RefusedRecordsError: INVALID_RECORD or INVALID_TIMESTAMP for some of the records.
            TidelogError: MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE; INVALID_RECORD, INVALID_TIMESTAMP or
                UNSUPPORTED_COMPRESSION_TYPE for the batch.
        """
        if len(records) > self._max_bytes:
            self._check_size(len(records))
        most = self.max_plain_bytes
        try:
            produced = inspect_produced(records, most if plain_limit is None else min(plain_limit, most))
        except OversizedRecordsError as error:
            if error.limit == plain_limit:
                raise
            raise self._oversized(error.limit) from error
        header, summary, plain = produced
        if self._is_compacted and summary.has_keyless:
            raise _keyless_error(produced)
        if not self._has_append_time:
            try:
                check_timestamps(produced, now_ms, self._before_max_ms, self._after_max_ms)
            except TidelogError as error:
                raise _time_error(error, produced, now_ms, self._before_max_ms, self._after_max_ms) from error
        plain_size = len(plain)
        if self._codec is not None and _codec_id_of(records) != self._codec_id:
            header, packed = compress_records(header, plain, self._codec, self._level)
            # Check before copying: the records may be 64 times as large as the limit.
            self._check_size(HEADER_SIZE + len(packed))
            records = encode_batch(header, packed)
            header = parse_header(records)
        return tuple.__new__(CheckedBatch, (header, records, summary.max_timestamp, plain_size))

    def assign(self, checked: CheckedBatch, base_offset: int, leader_epoch: int, now_ms: int) -> AssignedBatch:
        """Return the batch with its offsets, its leader epoch and, with LogAppendTime, the time of the append.

        The CRC covers neither offset nor epoch, so only the first bytes change. A max timestamp that differs from the
        records' is corrected. A writable memoryview is changed in place; of any other buffer only the changed part is
        copied.
        """
        header, records, max_timestamp, _ = checked
        size, last_offset = len(records), base_offset + header.last_offset_delta
        own = records if isinstance(records, memoryview) and not records.readonly else None
        if self._has_append_time:
            max_timestamp = now_ms
        if self._has_append_time or max_timestamp != header.max_timestamp:
            batch = bytearray(records) if own is None else own
            append_time_ms = now_ms if self._has_append_time else None
            assign_offsets(batch, base_offset, leader_epoch, append_time_ms, max_timestamp)
            return AssignedBatch((batch,), size, base_offset, last_offset, max_timestamp)
        if own is not None:
            assign_offsets(own, base_offset, leader_epoch)
            return AssignedBatch((own,), size, base_offset, last_offset, max_timestamp)
        assigned = _ASSIGNED.pack(base_offset, header.batch_length, leader_epoch)
        parts = (assigned, memoryview(records)[_ASSIGNED.size :])
        return AssignedBatch(parts, size, base_offset, last_offset, max_timestamp)

    def describe(self, batch: AssignedBatch, leader_epoch: int) -> AppendInfo:
        """Return the result of appending a batch."""
        _, size, base_offset, last_offset, max_timestamp = batch
        append_time = max_timestamp if self._has_append_time else NO_APPEND_TIME
        return AppendInfo(base_offset, last_offset, max_timestamp, append_time, size, LeaderEpoch(leader_epoch))

    def describe_duplicate(self, duplicate: Duplicate, size: int, leader_epoch: int) -> AppendInfo:
        """Return the result for a batch that the log already has."""
        return AppendInfo(
            duplicate.base_offset,
            duplicate.last_offset,
            duplicate.timestamp_ms,
            duplicate.timestamp_ms if self._has_append_time else NO_APPEND_TIME,
            size,
            LeaderEpoch(leader_epoch),
            is_duplicate=True,
        )

    def _oversized(self, limit: int) -> TidelogError:
        text = f"the decompressed records exceed {limit} bytes: at most {MAX_EXPANSION} times max.message.bytes"
        text += f" ({self._config.max_message_bytes}) are allowed"
        return error_for(ErrorCode.MESSAGE_TOO_LARGE, text)

    def _check_size(self, size: int) -> None:
        limit = self._config.max_message_bytes
        if size > limit:
            raise error_for(
                ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, max.message.bytes allows {limit}"
            )
        limit = self._config.segment_bytes
        if size > limit:
            raise error_for(
                ErrorCode.RECORD_LIST_TOO_LARGE, f"the batch has {size} bytes, segment.bytes allows {limit}"
            )


def assigned_header(header: RecordBatchHeader, batch: AssignedBatch, leader_epoch: int) -> RecordBatchHeader:
    """Return a batch's header as the log stores it, except for the CRC, which is the producer's."""
    return header._replace(
        base_offset=batch.base_offset,
        partition_leader_epoch=leader_epoch,
        max_timestamp=batch.max_timestamp,
    )


def replicated_headers(records: Buffer, offset: int, epoch: LeaderEpoch) -> list[RecordBatchHeader]:
    """Return the headers of batches that a follower appends at ``offset`` or above, behind a record of ``epoch``.

    Raises:
        CorruptRecordError: there is no batch; or one is truncated or altered, or its offset or epoch is below that of
            the batch before.
    """
    headers: list[RecordBatchHeader] = []
    position, least_offset, least_epoch = 0, offset, max(epoch, 0)
    while position < len(records) or not headers:
        header = validate_batch(records, position)
        if header.base_offset < least_offset or header.partition_leader_epoch < least_epoch:
            raise CorruptRecordError(
                f"expected offset {least_offset} or later and leader epoch {least_epoch} or later, the batch has"
                f" offset {header.base_offset} and leader epoch {header.partition_leader_epoch}"
            )
        headers.append(header)
        position += header.size_in_bytes
        least_offset, least_epoch = header.next_offset, LeaderEpoch(header.partition_leader_epoch)
    return headers


def _codec_id_of(records: Buffer) -> int:
    return records[_CODEC_POSITION] & _CODEC_MASK if len(records) > _CODEC_POSITION else 0


def _keyless_error(produced: ProducedBatch) -> RefusedRecordsError:
    """Return the error for a batch of a compacted topic that has records without a key."""
    text = "a record without a key, which a compacted topic does not take"
    found = tuple(RecordError(index, text) for index in keyless_records(produced, _MAX_NAMED))
    return RefusedRecordsError(KafkaError(ErrorCode.INVALID_RECORD, text), found)


def _time_error(
    error: TidelogError, produced: ProducedBatch, now_ms: int, before_max_ms: int, after_max_ms: int
) -> RefusedRecordsError:
    """Return ``error``, for a batch with records that are too old or too new, together with those records."""
    outside = records_outside(produced, now_ms - before_max_ms, now_ms + after_max_ms, _MAX_NAMED)
    limits = f"from {now_ms} - {before_max_ms} to {now_ms} + {after_max_ms}"
    found = tuple(RecordError(index, f"timestamp {time} is not {limits}") for index, time in outside)
    return RefusedRecordsError(error.error, found)
