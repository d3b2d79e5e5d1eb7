"""A sample partition with every kind of content that a log can have, written by the node's own log."""

from __future__ import annotations

from pathlib import Path

from tidelog_foundation.records import CODECS, ControlType, RecordBatchBuilder, assign_offsets, control_batch
from tidelog_node.log import LogConfig, PartitionLog

NOW_MS = 1_700_000_000_000
IDEMPOTENT, COMMITTING, ABORTING, OPEN = 11, 22, 33, 44
CONFIG = LogConfig(segment_bytes=8 * 1024, index_interval_bytes=512, max_message_bytes=4 * 1024)


def write_sample_partition(directory: Path) -> int:
    """Write a closed partition's directory, and return its log end offset.

    It has every codec, keys and values of text, bytes and null, headers, idempotent batches with wrapping sequences,
    transactions that commit, abort and stay open, gaps, two leader epochs, and several segments.
    """
    log = PartitionLog.open(directory, CONFIG)
    try:
        for round_number in range(4):
            for codec in CODECS:
                _append(log, _data(codec, round_number), epoch=round_number // 2)
            _append(log, _data("none", round_number, IDEMPOTENT, 2**31 - 25 + 10 * round_number), round_number // 2)
        for number in range(3):
            _transaction(log, COMMITTING, number, ControlType.COMMIT)
            _transaction(log, ABORTING, number, ControlType.ABORT)
            _append(log, _data("lz4", number), epoch=3, gap=number)
        _append(log, _data("zstd", 9, OPEN, 0, is_transactional=True), epoch=4)
        for number in range(20):
            _append(log, _data("snappy", number), epoch=4)
        return log.log_end_offset
    finally:
        log.close()


def _transaction(log: PartitionLog, producer_id: int, number: int, end: ControlType) -> None:
    _append(log, _data("gzip", number, producer_id, 10 * number, is_transactional=True), epoch=3)
    _append(log, bytearray(control_batch(end, producer_id, 0, 5 + number, NOW_MS + number)), epoch=3)


def _data(
    codec: str, number: int, producer_id: int = -1, sequence: int = -1, *, is_transactional: bool = False
) -> bytearray:
    builder = RecordBatchBuilder(compression=codec)
    for record in range(10):
        key = None if record % 3 == 0 else f"key {record}".encode()
        value = None if record % 7 == 5 else f"{codec} {number} record {record} {'tide ' * record}".encode()
        headers = [("trace", b"\x01"), ("empty", None)] if record == 4 else ()
        builder.append(key, value, headers, timestamp_ms=NOW_MS + 1000 * number + record % 4)
    is_known = producer_id >= 0
    return bytearray(
        builder.build(
            producer_id=producer_id,
            producer_epoch=0 if is_known else -1,
            base_sequence=sequence % 2**31 if is_known else -1,
            is_transactional=is_transactional,
        )
    )


def _append(log: PartitionLog, batch: bytearray, epoch: int, gap: int = 0) -> None:
    assign_offsets(batch, log.log_end_offset + gap, epoch)
    log.append_as_follower(batch)
