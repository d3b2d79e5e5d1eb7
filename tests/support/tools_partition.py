"""Partition directories written manually in the file formats, without the node's log."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from tidelog_foundation.records import ControlType, RecordBatchBuilder, assign_offsets, control_batch, parse_header
from tidelog_node.log.producers.entries import ProducerEntry
from tidelog_node.log.producers.snapshot_format import encode_snapshot
from tidelog_node.log.segments.transaction_index import AbortedTransaction, encode_aborted

NOW_MS = 1_700_000_000_000


def data_batch(
    base_offset: int,
    count: int = 2,
    *,
    epoch: int = 0,
    timestamp_ms: int = NOW_MS,
    producer_id: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    compression: str = "none",
    value: bytes = b"value",
) -> bytes:
    builder = RecordBatchBuilder(compression=compression)
    for record in range(count):
        builder.append(b"key", value, [("trace", b"1")], timestamp_ms=timestamp_ms + record)
    batch = bytearray(
        builder.build(
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=sequence,
            is_transactional=transactional,
        )
    )
    assign_offsets(batch, base_offset, epoch)
    return bytes(batch)


def marker_batch(base_offset: int, kind: ControlType, producer_id: int, *, epoch: int = 0) -> bytes:
    batch = bytearray(control_batch(kind, producer_id, 0, 7, NOW_MS))
    assign_offsets(batch, base_offset, epoch)
    return bytes(batch)


def write_segment(directory: Path, base_offset: int, batches: Sequence[bytes]) -> Path:
    """Write a segment with an index entry for every batch but the first."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{base_offset:020d}.log"
    path.write_bytes(b"".join(batches))
    offsets, times, position, greatest = b"", b"", 0, -1
    for batch in batches:
        header = parse_header(batch)
        if position:
            offsets += struct.pack(">ii", header.last_offset - base_offset, position)
        if header.max_timestamp > greatest:
            greatest = header.max_timestamp
            times += struct.pack(">qi", greatest, header.last_offset - base_offset)
        position += len(batch)
    path.with_suffix(".index").write_bytes(offsets)
    path.with_suffix(".timeindex").write_bytes(times)
    return path


def write_partition(directory: Path) -> Path:
    """Write a valid partition: offsets 0 to 11 with a gap, two segments, two epochs, an aborted transaction."""
    first = [
        data_batch(0),
        data_batch(2, 3, timestamp_ms=NOW_MS + 10),
        data_batch(5, 1, producer_id=9, sequence=0, transactional=True, timestamp_ms=NOW_MS + 20),
        marker_batch(6, ControlType.ABORT, 9),
    ]
    second = [
        data_batch(8, epoch=1, compression="gzip"),
        data_batch(10, epoch=1, compression="zstd", timestamp_ms=NOW_MS + 30),
    ]
    path = write_segment(directory, 0, first)
    path.with_suffix(".txnindex").write_bytes(encode_aborted(AbortedTransaction(9, 5, 6, 7)))
    write_segment(directory, 7, second)
    entry = ProducerEntry(9, 0, 0, 5, 0, NOW_MS + 20, 7, -1)
    (directory / f"{7:020d}.snapshot").write_bytes(encode_snapshot([entry]))
    (directory / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n1 7\n")
    (directory / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    return directory
