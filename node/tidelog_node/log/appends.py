"""What may be appended to a log, and what an append tells: no state, no disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidelog.errors import CorruptRecordError, ErrorCode, error_for
from tidelog.ids import LeaderEpoch
from tidelog.records import RecordBatchHeader, validate_batch, validate_produced
from tidelog_node.log.config import LogConfig

NO_APPEND_TIME = -1


@dataclass(frozen=True, slots=True)
class AppendInfo:
    """What an append did: ``first_offset`` to ``last_offset``, both inclusive.

    ``log_append_time_ms`` is -1 unless the topic's timestamps are LogAppendTime.
    """

    first_offset: int
    last_offset: int
    max_timestamp: int
    log_append_time_ms: int
    size_in_bytes: int
    last_leader_epoch: LeaderEpoch

    @classmethod
    def of(cls, headers: Sequence[RecordBatchHeader], log_append_time_ms: int = NO_APPEND_TIME) -> AppendInfo:
        """Return what the append of these batches, at least one, did."""
        return cls(
            first_offset=headers[0].base_offset,
            last_offset=headers[-1].last_offset,
            max_timestamp=max(header.max_timestamp for header in headers),
            log_append_time_ms=log_append_time_ms,
            size_in_bytes=sum(header.size_in_bytes for header in headers),
            last_leader_epoch=LeaderEpoch(headers[-1].partition_leader_epoch),
        )


def check_produced(records: bytes | bytearray | memoryview, config: LogConfig) -> None:
    """Check a batch from a producer: its size against the topic's limits, then all that a leader asks of it.

    Raises:
        CorruptRecordError: the batch is torn or changed.
        TidelogError: MESSAGE_TOO_LARGE or RECORD_LIST_TOO_LARGE; INVALID_RECORD, INVALID_TIMESTAMP or
            UNSUPPORTED_COMPRESSION_TYPE.
    """
    size = len(records)
    if size > config.max_message_bytes:
        text = f"the batch has {size} bytes, max.message.bytes allows {config.max_message_bytes}"
        raise error_for(ErrorCode.MESSAGE_TOO_LARGE, text)
    if size > config.segment_bytes:
        text = f"the batch has {size} bytes, segment.bytes allows {config.segment_bytes}"
        raise error_for(ErrorCode.RECORD_LIST_TOO_LARGE, text)
    validate_produced(records)


def replicated_headers(
    records: bytes | bytearray | memoryview, offset: int, epoch: LeaderEpoch
) -> list[RecordBatchHeader]:
    """Return the headers of batches that a follower appends at ``offset`` behind a record of ``epoch`` (-1: none).

    Raises:
        CorruptRecordError: there is no batch, or one is torn, changed, not contiguous or of an earlier epoch.
    """
    headers: list[RecordBatchHeader] = []
    position, expected_offset, least_epoch = 0, offset, max(epoch, 0)
    while position < len(records) or not headers:
        header = validate_batch(records, position)
        if header.base_offset != expected_offset or header.partition_leader_epoch < least_epoch:
            raise CorruptRecordError(
                f"the log expects offset {expected_offset} of leader epoch {least_epoch} or later, the batch has offset"
                f" {header.base_offset} and leader epoch {header.partition_leader_epoch}"
            )
        headers.append(header)
        position += header.size_in_bytes
        expected_offset, least_epoch = header.next_offset, LeaderEpoch(header.partition_leader_epoch)
    return headers
