"""Records of internal topics as ``tidelog log dump`` decodes them; kafka-dump-log is compared in tests/compat."""

from __future__ import annotations

import pytest

from tidelog_node.groups.consumer_protocol import encode_assignment
from tidelog_node.groups.records import ConsumerGroupMemberMetadataKey, GroupMetadataKey, OffsetCommitKey, encode_key
from tidelog_node.groups.value_formats import GroupMetadataMember, GroupMetadataValue
from tidelog_node.tools.coordinator_records import DELETED, RecordDecoder, decode_record
from tidelog_node.tools.findings import Value
from tidelog_node.transactions.record_format import encode_key as transaction_key
from tidelog_node.transactions.record_format import encode_value
from tidelog_node.transactions.states import Producer, TransactionMetadata, TransactionState

OFFSETS, TRANSACTIONS = RecordDecoder.OFFSETS, RecordDecoder.TRANSACTIONS
OFFSET_KEY = encode_key(OffsetCommitKey("g", "t", 1))
TOPIC_HEX = bytes(range(16)).hex()
TOPIC = "AAECAwQFBgcICQoLDA0ODw"


def payload(decoder: RecordDecoder, key: bytes, value: bytes) -> Value:
    _, decoded = decode_record(decoder, 5, key, value)
    assert isinstance(decoded, dict)
    assert decoded["version"] == str(int.from_bytes(value[:2], "big"))
    return decoded["data"]


@pytest.mark.parametrize("version", [0, 1])
def test_transaction_is_decoded_in_both_versions(version: int) -> None:
    metadata = TransactionMetadata(
        Producer(7, 3),
        TransactionState.ONGOING,
        60_000,
        2,
        1,
        frozenset({("t", 1), ("t", 0), ("a", 2)}),
        previous_producer_id=6,
        next_producer=Producer(8, 4),
        last_producer_epoch=2,
        client_version=2,
    )
    key = transaction_key("pay")
    shown_key, _ = decode_record(TRANSACTIONS, 5, key, None)
    assert shown_key == {"type": "0", "data": {"transactionalId": "pay"}}
    tagged = {"previousProducerId": 6, "nextProducerId": 8, "nextProducerEpoch": 4, "clientTransactionVersion": 2}
    assert payload(TRANSACTIONS, key, encode_value(metadata, version)) == {
        "producerId": 7,
        "producerEpoch": 3,
        "transactionTimeoutMs": 60_000,
        "transactionStatus": 1,
        "transactionPartitions": [{"topic": "a", "partitionIds": [2]}, {"topic": "t", "partitionIds": [0, 1]}],
        "transactionLastUpdateTimestampMs": 2,
        "transactionStartTimestampMs": 1,
        **({**tagged, "lastProducerEpoch": 2} if version else {}),
    }


@pytest.mark.parametrize(
    ("value_hex", "fields"),
    [
        ("0000 0000000000000001 0001 6d 0000000000000002", {}),
        ("0001 0000000000000001 0001 6d 0000000000000002 0000000000000003", {"expireTimestamp": 3}),
        ("0003 0000000000000001 00000005 0001 6d 0000000000000002", {"leaderEpoch": 5}),
        (
            f"0004 0000000000000001 00000005 02 6d 0000000000000002 01 00 10 {TOPIC_HEX}",
            {"leaderEpoch": 5, "topicId": TOPIC},
        ),
    ],
)
def test_committed_offset_has_the_fields_of_its_version(value_hex: str, fields: dict[str, Value]) -> None:
    common = {"offset": 1, "metadata": "m", "commitTimestamp": 2}
    assert payload(OFFSETS, OFFSET_KEY, bytes.fromhex(value_hex)) == {**common, **fields}


@pytest.mark.parametrize(
    ("protocol_type", "shown"),
    [
        (
            "consumer",
            {"assignedPartitions": [{"topic": "t", "partitions": [0, 1]}], "userData": None},
        ),
        ("connect", "AAAAAAABAAF0AAAAAgAAAAAAAAAB/////w=="),
    ],
)
def test_assignment_of_a_classic_member_is_decoded_in_groups_of_consumers(protocol_type: str, shown: Value) -> None:
    assignment = encode_assignment([("t", 0), ("t", 1)], 0)
    member = GroupMetadataMember("m", None, "c", "h", 300, 200, b"not a subscription", assignment)
    group = GroupMetadataValue(protocol_type, 1, "range", "m", 9, (member,))
    data = payload(OFFSETS, encode_key(GroupMetadataKey("g")), group.encode())
    assert isinstance(data, dict)
    [found] = data["members"]
    assert (found["subscription"], found["assignment"]) == ("bm90IGEgc3Vic2NyaXB0aW9u", shown)


def test_topics_of_a_group_that_coordinators_ignore_are_decoded() -> None:
    value = bytes.fromhex(f"0000 02 {TOPIC_HEX} 02 74 00000001 02 00000000 02 02 72 00 00 00")
    partition = {"partition": 0, "racks": ["r"]}
    topic = {"topicId": TOPIC, "topicName": "t", "numPartitions": 1, "partitionMetadata": [partition]}
    assert payload(OFFSETS, bytes.fromhex("0004 0001 67"), value) == {"topics": [topic]}


def test_deleted_record_has_a_key_alone() -> None:
    key, decoded = decode_record(OFFSETS, 5, encode_key(ConsumerGroupMemberMetadataKey("g", "m")), None)
    assert key == {"type": "5", "data": {"groupId": "g", "memberId": "m"}}
    assert decoded == DELETED


def test_record_of_a_later_release_is_named_and_skipped() -> None:
    found = decode_record(OFFSETS, 5, bytes.fromhex("000b 0001 67"), b"anything")
    assert found == ("Unknown record type 11 at offset 5, skipping.", None)
    found = decode_record(OFFSETS, 5, OFFSET_KEY, bytes.fromhex("0009"))
    assert found == ("Unknown version 9 of record type 1 at offset 5, skipping.", None)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b""),
        (b"k", b"v"),
        (OFFSET_KEY, b"\0\3short"),
        (OFFSET_KEY + b"more", None),
        (OFFSET_KEY, bytes.fromhex("0000 0000000000000001 0001 6d 0000000000000002 ff")),
    ],
)
def test_damaged_record_is_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(ValueError, match=r"has a key|bytes (expected|follow)"):
        decode_record(OFFSETS, 5, key, value)
