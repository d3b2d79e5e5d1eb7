"""The bytes of __consumer_offsets are Kafka's; the expected ones are derived by hand from its schemas."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_node.groups.consumer_value_formats import ClassicMemberMetadata, TopicPartitions
from tidelog_node.groups.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    Key,
    OffsetCommitKey,
    OffsetCommitValue,
    Value,
    decode,
    decode_key,
    encode,
    encode_key,
)
from tidelog_node.groups.value_formats import GroupMetadataMember
from tidelog_node.shards.events import ShardRecord
from tidelog_node.shards.store import owner_of

TOPIC = bytes(range(16))
TOPIC_HEX = TOPIC.hex()

GOLDEN: list[tuple[Key, Value, str, str]] = [
    (
        OffsetCommitKey("g", "topic", 7),
        OffsetCommitValue(258, 3, "m", 1_000),
        "0001 0001 67 0005 746f706963 00000007",
        "0003 0000000000000102 00000003 0001 6d 00000000000003e8",
    ),
    (
        OffsetCommitKey("g", "t", 0),
        OffsetCommitValue(1, -1, "", 2, expire_timestamp=3),
        "0001 0001 67 0001 74 00000000",
        "0001 0000000000000001 0000 0000000000000002 0000000000000003",
    ),
    (
        GroupMetadataKey("g"),
        GroupMetadataValue("consumer", 5, None, None, -1, ()),
        "0002 0001 67",
        "0003 0008 636f6e73756d6572 00000005 ffff ffff ffffffffffffffff 00000000",
    ),
    (
        GroupMetadataKey("g"),
        GroupMetadataValue("c", 1, "range", "m", 9, (GroupMetadataMember("m", "i", "c", "h", 300, 200, b"s", b""),)),
        "0002 0001 67",
        "0003 0001 63 00000001 0005 72616e6765 0001 6d 0000000000000009 00000001"
        "0001 6d 0001 69 0001 63 0001 68 0000012c 000000c8 00000001 73 00000000",
    ),
    (ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(4), "0003 0001 67", "0000 00000004 00"),
    (
        ConsumerGroupMetadataKey("g"),
        ConsumerGroupMetadataValue(4, 5, 6),
        "0003 0001 67",
        "0000 00000004 02 00 08 0000000000000005 01 08 0000000000000006",
    ),
    (ConsumerGroupPartitionMetadataKey("g"), ConsumerGroupPartitionMetadataValue(), "0004 0001 67", "0000 01 00"),
    (
        ConsumerGroupMemberMetadataKey("g", "m"),
        ConsumerGroupMemberMetadataValue("i", None, "c", "h", ("a", "b"), None, 300, "range"),
        "0005 0001 67 0001 6d",
        "0000 02 69 00 02 63 02 68 03 02 61 02 62 00 0000012c 06 72616e6765 00",
    ),
    (
        ConsumerGroupMemberMetadataKey("g", "m"),
        ConsumerGroupMemberMetadataValue(
            None, None, "c", "h", (), None, 300, None, ClassicMemberMetadata(200, (("range", b"s"),))
        ),
        "0005 0001 67 0001 6d",
        "0000 00 00 02 63 02 68 01 00 0000012c 00 01 00 10 01 000000c8 02 06 72616e6765 02 73 00 00",
    ),
    (
        ConsumerGroupTargetAssignmentMetadataKey("g"),
        ConsumerGroupTargetAssignmentMetadataValue(3, 7),
        "0006 0001 67",
        "0000 00000003 01 00 08 0000000000000007",
    ),
    (
        ConsumerGroupTargetAssignmentMemberKey("g", "m"),
        ConsumerGroupTargetAssignmentMemberValue((TopicPartitions(TOPIC, (0, 1)),)),
        "0007 0001 67 0001 6d",
        f"0000 02 {TOPIC_HEX} 03 00000000 00000001 00 00",
    ),
    (
        ConsumerGroupCurrentMemberAssignmentKey("g", "m"),
        ConsumerGroupCurrentMemberAssignmentValue(4, 3, 1, (TopicPartitions(TOPIC, (2,), (4,)),), ()),
        "0008 0001 67 0001 6d",
        f"0000 00000004 00000003 01 02 {TOPIC_HEX} 02 00000002 01 00 05 02 00000004 01 00",
    ),
    (
        ConsumerGroupRegularExpressionKey("g", "a.*"),
        ConsumerGroupRegularExpressionValue(("ab",), 2, 3),
        "0010 0001 67 0003 612e2a",
        "0000 02 03 6162 0000000000000002 0000000000000003 00",
    ),
]


@pytest.mark.parametrize(("key", "value", "key_hex", "value_hex"), GOLDEN, ids=lambda item: type(item).__name__)
def test_record_has_kafkas_bytes(key: Key, value: Value, key_hex: str, value_hex: str) -> None:
    record = encode(key, value)
    assert record.key == bytes.fromhex(key_hex)
    assert record.value == bytes.fromhex(value_hex)
    assert decode(record) == (key, value)
    assert decode(ShardRecord(record.key, None)) == (key, None)
    assert owner_of(record.key) == key.group


@pytest.mark.parametrize(
    ("value_hex", "value"),
    [
        ("0000 0000000000000001 0001 6d 0000000000000002", OffsetCommitValue(1, -1, "m", 2)),
        ("0002 0000000000000001 0001 6d 0000000000000002", OffsetCommitValue(1, -1, "m", 2)),
        ("0004 0000000000000001 00000005 02 6d 0000000000000002 00", OffsetCommitValue(1, 5, "m", 2)),
        (
            f"0004 0000000000000001 00000005 02 6d 0000000000000002 01 00 10 {TOPIC_HEX}",
            OffsetCommitValue(1, 5, "m", 2, topic_id=TOPIC),
        ),
    ],
)
def test_committed_offsets_of_other_versions_are_read(value_hex: str, value: OffsetCommitValue) -> None:
    for key_hex in ("0000 0001 67 0001 74 00000001", "0001 0001 67 0001 74 00000001"):
        record = ShardRecord(bytes.fromhex(key_hex), bytes.fromhex(value_hex))
        assert decode(record) == (OffsetCommitKey("g", "t", 1), value)


@pytest.mark.parametrize(
    ("version", "member_hex", "instance_id", "rebalance_ms", "since_ms"),
    [
        (0, "0001 6d 0001 63 0001 68 000000c8 00000001 73 00000001 61", None, 200, -1),
        (1, "0001 6d 0001 63 0001 68 0000012c 000000c8 00000001 73 00000001 61", None, 300, -1),
        (2, "0001 6d 0001 63 0001 68 0000012c 000000c8 00000001 73 00000001 61", None, 300, 9),
        (4, "02 6d 02 69 02 63 02 68 0000012c 000000c8 02 73 02 61 00", "i", 300, 9),
    ],
)
def test_classic_groups_of_other_versions_are_read(
    version: int, member_hex: str, instance_id: str | None, rebalance_ms: int, since_ms: int
) -> None:
    flexible = version == 4
    head = "02 63 00000001 02 72 02 6d" if flexible else "0001 63 00000001 0001 72 0001 6d"
    since = "0000000000000009" if version >= 2 else ""
    count = "02" if flexible else "00000001"
    value = bytes.fromhex(f"{version:04x} {head} {since} {count} {member_hex} {'00' if flexible else ''}")
    member = GroupMetadataMember("m", instance_id, "c", "h", rebalance_ms, 200, b"s", b"a")
    expected = GroupMetadataValue("c", 1, "r", "m", since_ms, (member,))
    assert decode(ShardRecord(encode_key(GroupMetadataKey("g")), value)) == (GroupMetadataKey("g"), expected)


def test_unknown_tagged_fields_are_passed_over() -> None:
    value = bytes.fromhex("0000 00000004 01 63 03 616263")
    key = ConsumerGroupMetadataKey("g")
    assert decode(ShardRecord(encode_key(key), value)) == (key, ConsumerGroupMetadataValue(4))


@pytest.mark.parametrize("key_hex", ["000b 0001 67", "0011 0001 67", "7fff 0001 67 ff"])
def test_records_of_unknown_types_are_passed_over(key_hex: str) -> None:
    key = bytes.fromhex(key_hex)
    assert decode_key(key) is None
    assert decode(ShardRecord(key, b"anything")) is None
    assert owner_of(key) == "g"


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, value, *_ in GOLDEN])
def test_values_of_later_versions_are_passed_over(key: Key, value: Value) -> None:
    assert decode(ShardRecord(encode_key(key), b"\x00\x63" + value.encode()[2:])) is None


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, value, *_ in GOLDEN])
def test_torn_records_are_refused(key: Key, value: Value) -> None:
    record = encode(key, value)
    assert record.value is not None
    for size in range(len(record.key)):
        with pytest.raises(ValueError, match="bytes expected"):
            decode_key(record.key[:size])
    if isinstance(value, ConsumerGroupPartitionMetadataValue):
        return
    with pytest.raises(ValueError, match=r"expected|cannot be in"):
        decode(ShardRecord(record.key, record.value[: len(record.value) // 2]))


def test_names_that_are_too_long_are_refused() -> None:
    with pytest.raises(ValueError, match="32768 bytes, at most 32767"):
        encode_key(GroupMetadataKey("g" * 32_768))


def test_null_where_a_string_is_expected_is_refused() -> None:
    with pytest.raises(ValueError, match="null before byte 4"):
        decode_key(bytes.fromhex("0002 ffff"))


@given(st.text(max_size=20), st.integers(-(2**63), 2**63 - 1), st.text(max_size=300), st.binary(max_size=300))
def test_what_is_written_is_read(name: str, number: int, text: str, data: bytes) -> None:
    member = GroupMetadataMember(text, name, name, text, 1, 2, data, data)
    records: list[tuple[Key, Value]] = [
        (OffsetCommitKey(name, text, 1), OffsetCommitValue(number, 1, text, number)),
        (GroupMetadataKey(name), GroupMetadataValue(name, 1, text, None, number, (member,) * 3)),
        (
            ConsumerGroupMemberMetadataKey(name, text),
            ConsumerGroupMemberMetadataValue(None, text, name, text, (name,) * 200, text, 1, None),
        ),
    ]
    for key, value in records:
        assert decode(encode(key, value)) == (key, value)
