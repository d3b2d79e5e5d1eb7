"""Each partitioner picks what librdkafka's of the same name picks; the compiled twin picks the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import confluent_kafka
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.producer.core.accumulator import Accumulator
from tidelog.producer.core.events import Settle, TopicLearned
from tidelog.producer.core.hashes import KeyHash, fnv1a
from tidelog.producer.core.limits import AccumulatorLimits
from tidelog.producer.core.partitioner import PARTITIONERS, TopicPartitioner
from tidelog_foundation.errors import ErrorCode, KafkaException

KEYS = [
    b"kafka",
    b"giberish123456789",
    b"1234",
    b"234",
    b"34",
    b"4",
    b"PreAmbleWillBeRemoved",
    b"\xff\xfe\x80" * 7,
    b"ab",
]

HASHES = ("murmur2", "consistent", "fnv1a")


def make(partitioner: Any, count: int = 6, available: Sequence[int] | None = None) -> TopicPartitioner:
    topic = TopicPartitioner(partitioner, lambda n: 0, "t")
    topic.learn(count, tuple(range(count)) if available is None else available)
    return topic


def test_fnv1a_gives_librdkafkas_hash() -> None:
    # unittest_fnv1a in librdkafka's rdfnv1a.c.
    assert fnv1a(b"kafka") == 0xD33C4E1
    assert fnv1a(b"giberish123456789") == 0x77A58295
    assert fnv1a(b"") == 0x7EE3623B


@pytest.mark.parametrize(
    "partitioner", ["murmur2", "consistent", "fnv1a", "murmur2_random", "consistent_random", "fnv1a_random"]
)
def test_partitioner_agrees_with_librdkafka(partitioner: str) -> None:
    theirs: dict[bytes, int] = {}
    mock = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "partitioner": partitioner, "linger.ms": 0}
    with confluent_kafka.Producer(mock, logger=_quiet()) as producer:
        for key in KEYS:
            producer.produce(
                "t", b"", key, on_delivery=lambda error, message: theirs.update({message.key(): message.partition()})
            )
        assert producer.flush(10) == 0
        count = len(producer.list_topics("t", 5).topics["t"].partitions)
    ours = make(partitioner, count)
    assert {key: ours.for_key(key) for key in KEYS} == theirs


@pytest.mark.parametrize("partitioner", [name for name in PARTITIONERS if name != "roundrobin"])
@given(key=st.none() | st.binary(max_size=90), count=st.integers(1, 200))
def test_compiled_and_pure_partitioners_agree(partitioner: str, key: bytes | None, count: int) -> None:
    ours = make(partitioner, count)
    chosen = ours.for_key(key)
    assert ours.partition_of(key) == (ours.sticky if chosen < 0 else chosen)


@pytest.mark.parametrize("kind", [KeyHash.MURMUR2, KeyHash.CRC32, KeyHash.FNV1A])
def test_no_partitioner_but_those_of_keys_reads_a_key(kind: KeyHash) -> None:
    assert kind.of(b"a") != kind.of(b"b")
    with pytest.raises(AssertionError):
        KeyHash.NONE.of(b"a")


def test_roundrobin_takes_partitions_with_a_leader_in_turn_whatever_the_key() -> None:
    topic = make("roundrobin", 4, (0, 1, 3))
    assert [topic.for_key(key) for key in (b"a", b"a", None, b"", b"x", b"y")] == [1, 3, 0, 1, 3, 0]
    assert topic.partition_of(b"a") == -1


@pytest.mark.parametrize("partitioner", ["random", "sticky"])
def test_sticky_partitioners_ignore_the_key(partitioner: str) -> None:
    topic = make(partitioner)
    assert topic.for_key(b"key") == -1 == topic.for_key(None)
    assert topic.partition_of(b"key") == topic.sticky


LIMITS = AccumulatorLimits(
    linger_ms=5,
    batch_size=100_000,
    batch_num_messages=10,
    max_messages=1_000,
    max_bytes=1_000_000,
    message_max_bytes=10_000,
    message_timeout_ms=1_000,
    propagation_max_ms=300,
    retries=1_000,
)


def accumulator_with(partitioner: Any) -> Accumulator:
    from dataclasses import replace

    return Accumulator(replace(LIMITS, partitioner=partitioner), lambda attempt: 10.0, lambda n: 0)


def test_custom_partitioner_is_given_topic_key_and_count() -> None:
    calls = []

    def choose(topic: str, key: bytes | None, count: int) -> int:
        calls.append((topic, key, count))
        return 2

    accumulator = accumulator_with(choose)
    accumulator.append("t", -1, b"held", b"v", (), 1, None, 0)
    accumulator.handle(TopicLearned("t", 3, range(3)), 0)
    accumulator.append("t", -1, None, b"v", (), 1, None, 0)
    accumulator.append("t", 1, b"given", b"v", (), 1, None, 0)
    assert calls == [("t", b"held", 3), ("t", None, 3)]
    assert {(q, c.count) for q in range(3) if (c := _open(accumulator, q)) is not None} == {(1, 1), (2, 2)}


@pytest.mark.parametrize(
    ("choose", "code", "text"),
    [
        (lambda topic, key, count: 1 / 0, ErrorCode._APPLICATION, 'the partitioner failed for topic "t": ZeroDivision'),
        (lambda topic, key, count: count, ErrorCode._UNKNOWN_PARTITION, "returned 3 for topic"),
        (lambda topic, key, count: None, ErrorCode._UNKNOWN_PARTITION, "returned None"),
    ],
)
def test_custom_partitioners_fault_is_its_records_alone(choose: Any, code: ErrorCode, text: str) -> None:
    accumulator = accumulator_with(choose)
    accumulator.append("t", -1, b"k", b"v", (), 1, print, 0)
    accumulator.append("t", 0, b"k", b"v", (), 1, print, 0)
    [settle] = accumulator.handle(TopicLearned("t", 3, range(3)), 0)
    assert isinstance(settle, Settle)
    assert settle.error is not None
    assert (settle.error.code, settle.count) == (code, 1)
    assert text in settle.error.message
    with pytest.raises(KafkaException, match=text):
        accumulator.append("t", -1, b"k", b"v", (), 1, None, 0)
    accumulator.check_invariants()
    assert accumulator.count == 1


def _open(accumulator: Accumulator, partition: int) -> Any:
    contents = accumulator.intake.topics["t"].open[partition]
    return None if contents is None else contents.builder


def _quiet() -> Any:
    import logging

    logger = logging.getLogger("librdkafka")
    logger.setLevel(logging.CRITICAL)
    return logger
