"""The markers of control batches, with bytes as Kafka writes them."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_node.log.producers.entries import EndTransactionMarker, read_marker

ABORT_KEY, COMMIT_KEY, LEADER_CHANGE_KEY = (bytes.fromhex("0000000" + kind) for kind in "012")


def control_batch(key: bytes | None, value: bytes | None, attributes: int = 0x30) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(key, value, timestamp_ms=1000)
    batch = bytearray(builder.build(producer_id=7, producer_epoch=2))
    struct.pack_into(">h", batch, 21, attributes)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


@pytest.mark.parametrize(("key", "is_commit"), [(ABORT_KEY, False), (COMMIT_KEY, True)])
@pytest.mark.parametrize("value", ["00000000002a", "00010000002aff"])
def test_marker_tells_its_kind_and_the_coordinators_epoch(key: bytes, is_commit: bool, value: str) -> None:
    batch = control_batch(key, bytes.fromhex(value))
    assert read_marker(b"front" + batch, 5) == EndTransactionMarker(is_commit, 42)


@pytest.mark.parametrize(
    "batch",
    [control_batch(COMMIT_KEY, b"\0" * 6, attributes=0x10), control_batch(LEADER_CHANGE_KEY, b"")],
    ids=["data", "another kind"],
)
def test_marker_is_none_for_other_batches(batch: bytes) -> None:
    assert read_marker(batch) is None


def test_marker_is_none_when_it_was_compacted_away() -> None:
    batch = bytearray(control_batch(COMMIT_KEY, b"\0" * 6)[:61])
    struct.pack_into(">i", batch, 8, 49)
    struct.pack_into(">i", batch, 57, 0)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    assert read_marker(batch) is None


@pytest.mark.parametrize(
    ("key", "value"), [(None, b""), (b"\0\0", b"\0" * 6), (COMMIT_KEY, b"\0\0\0\0\0"), (ABORT_KEY, None)]
)
def test_marker_that_is_too_short_is_corrupt(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(CorruptRecordError):
        read_marker(control_batch(key, value))
