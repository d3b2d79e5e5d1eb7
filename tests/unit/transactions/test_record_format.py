"""The records of __transaction_state."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_node.transactions.record_format import decode_key, decode_value, encode_key, encode_value
from tidelog_node.transactions.states import NO_PRODUCER, Producer, TransactionMetadata, TransactionState

PRODUCERS = st.builds(Producer, st.integers(0, 2**63 - 1), st.integers(0, 2**15 - 1))
PARTITIONS = st.frozensets(st.tuples(st.text(max_size=20), st.integers(0, 2**31 - 1)), max_size=8)


@st.composite
def metadata(draw: st.DrawFn) -> TransactionMetadata:
    state = draw(st.sampled_from([s for s in TransactionState if s is not TransactionState.DEAD]))
    return TransactionMetadata(
        draw(PRODUCERS),
        state,
        draw(st.integers(1, 2**31 - 1)),
        draw(st.integers(0, 2**62)),
        draw(st.integers(-1, 2**62)),
        frozenset() if state is TransactionState.EMPTY else draw(PARTITIONS),
        draw(st.integers(-1, 2**63 - 1)),
        draw(PRODUCERS | st.just(NO_PRODUCER)),
        draw(st.integers(-1, 2**15 - 1)),
        draw(st.integers(0, 2)),
    )


@given(metadata())
def test_value_of_version_1_has_everything(written: TransactionMetadata) -> None:
    assert decode_value(encode_value(written, 2)) == written


@given(metadata())
def test_value_of_version_0_has_kafkas_plain_fields(written: TransactionMetadata) -> None:
    read = decode_value(encode_value(written, 0))
    assert read == TransactionMetadata(
        written.producer,
        written.state,
        written.timeout_ms,
        written.updated_ms,
        written.started_ms,
        written.partitions,
    )


@given(st.text(max_size=100))
def test_key_has_the_transactional_id(transactional_id: str) -> None:
    assert decode_key(encode_key(transactional_id)) == transactional_id


def test_bytes_are_those_of_kafka() -> None:
    """The bytes were written out by hand from TransactionLogKey.json and TransactionLogValue.json."""
    assert encode_key("tx") == bytes.fromhex("0000 0002 7478")
    ongoing = TransactionMetadata(
        Producer(5, 3), TransactionState.ONGOING, 60_000, 2, 1, frozenset({("t", 1), ("t", 0)}), client_version=2
    )
    assert encode_value(ongoing, 2) == bytes.fromhex(
        "0001 0000000000000005 0003 0000ea60 01"
        "02 02 74 03 00000000 00000001 00"
        "0000000000000002 0000000000000001"
        "01 02 02 0002"
    )
    empty = TransactionMetadata(Producer(5, 3), TransactionState.EMPTY, 60_000, 2)
    assert encode_value(empty, 0) == bytes.fromhex(
        "0000 0000000000000005 0003 0000ea60 00 ffffffff 0000000000000002 ffffffffffffffff"
    )


def test_next_producer_of_kafka_begins_with_epoch_0() -> None:
    """Kafka records the id alone."""
    value = bytearray(encode_value(TransactionMetadata(Producer(5, 3), TransactionState.PREPARE_ABORT, 1, 2, 1), 2))
    assert value[-1] == 0
    value[-1:] = bytes.fromhex("01 01 08 0000000000000009")
    read = decode_value(bytes(value))
    assert read is not None
    assert read.next_producer == (9, 0)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\0",
        b"\0\1",
        encode_value(TransactionMetadata(Producer(5, 3), TransactionState.ONGOING, 1, 2, 1, frozenset({("t", 1)})), 2)[
            :-1
        ],
    ],
)
def test_damaged_value_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"bytes expected|items cannot be"):
        decode_value(value)


def test_value_of_an_unknown_version_is_none() -> None:
    assert decode_value(b"\0\7") is None
    assert decode_key(b"\0\1\0\0") is None
