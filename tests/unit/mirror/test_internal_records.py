"""The records of internal topics have Kafka's bytes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_mirror.internal_records import (
    Checkpoint,
    MalformedRecordError,
    OffsetSync,
    decode_checkpoint,
    decode_offset_sync,
    decode_position,
    encode_fence,
    encode_heartbeat,
    encode_position,
)
from tidelog_mirror.positions import partition_of

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(0, 2**31 - 1)
NAMES = st.text(max_size=50)


def test_bytes_are_those_of_kafkas_schemas() -> None:
    assert OffsetSync("t1", 2, 3, 4).encode() == (
        bytes.fromhex("0002 7431 00000002"),
        bytes.fromhex("0000000000000003 0000000000000004"),
    )
    assert Checkpoint("g", "A.t", 1, 5, 6, "m").encode() == (
        bytes.fromhex("0001 67 0003 412e74 00000001"),
        bytes.fromhex("0000 0000000000000005 0000000000000006 0001 6d"),
    )
    assert encode_heartbeat("A", "B", 7) == (bytes.fromhex("0001 41 0001 42"), bytes.fromhex("0000 0000000000000007"))


def test_positions_are_those_of_connects_workers() -> None:
    key, value = encode_position("A", "orders", 3, 41)
    assert key == b'["MirrorSourceConnector",{"cluster":"A","partition":3,"topic":"orders"}]'
    assert value == b'{"offset":41}'
    assert decode_position("A", key, value) == ("orders", 3, 41)
    assert decode_position("A", key, None) == ("orders", 3, None)
    assert decode_position("C", key, value) is None
    assert decode_position("A", b'["MirrorCheckpointConnector",{}]', value) is None
    assert decode_position("A", b"\xff", value) is None


@pytest.mark.parametrize(
    ("key", "expected"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_partitions_of_positions_are_those_of_javas_producer(key: bytes, expected: int) -> None:
    # The hashes of Kafka's UtilsTest.testMurmur2.
    assert partition_of(key, 2**31) == expected & 0x7FFFFFFF


@given(NAMES, INT32, INT64, INT64)
def test_offset_syncs_round_trip(topic: str, partition: int, upstream: int, downstream: int) -> None:
    sync = OffsetSync(topic, partition, upstream, downstream)
    assert decode_offset_sync(*sync.encode()) == sync


@given(NAMES, NAMES, INT32, INT64, INT64, NAMES)
def test_checkpoints_round_trip(group: str, topic: str, partition: int, upstream: int, down: int, text: str) -> None:
    checkpoint = Checkpoint(group, topic, partition, upstream, down, text)
    assert decode_checkpoint(*checkpoint.encode()) == checkpoint


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_other_bytes_are_refused(key: bytes, value: bytes) -> None:
    for decode in (decode_offset_sync, decode_checkpoint):
        with contextlib.suppress(MalformedRecordError):
            assert decode(key, value) is not None


def test_fence_is_json_of_another_connector() -> None:
    key, value = encode_fence("A")
    assert (key, value) == (b'["tidelog-mirror",{"cluster":"A"}]', b"{}")
    assert decode_position("A", key, value) is None
