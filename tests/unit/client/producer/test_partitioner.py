from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.producer.core.hashes import murmur2, murmur2_positive
from tidelog.producer.core.partitioner import PARTITIONERS, TopicPartitioner


def make(partitioner: str, count: int = 6, available: tuple[int, ...] | None = None) -> TopicPartitioner:
    topic = TopicPartitioner(partitioner, lambda n: 0)
    topic.learn(count, tuple(range(count)) if available is None else available)
    return topic


@pytest.mark.parametrize(
    ("key", "signed"),
    [
        # UtilsTest.testMurmur2 of Kafka's Java client.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_gives_kafkas_hash(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF
    assert murmur2_positive(key) == signed & 0x7FFFFFFF


@given(st.binary(max_size=200))
def test_murmur2_positive_is_the_same_with_and_without_cache(key: bytes) -> None:
    assert murmur2_positive(key) == murmur2(key) & 0x7FFFFFFF == murmur2_positive(key)


@pytest.mark.parametrize("partitioner", PARTITIONERS)
@given(key=st.binary(min_size=1, max_size=40), count=st.integers(1, 100))
def test_partitioner_stays_within_the_partitions(partitioner: str, key: bytes, count: int) -> None:
    topic = make(partitioner, count)
    assert -1 <= topic.for_key(key) < count
    assert 0 <= topic.sticky < count


def test_partitioner_sends_an_empty_key_by_its_hash_only_with_murmur2() -> None:
    assert make("murmur2_random").for_key(b"") == murmur2_positive(b"") % 6
    assert make("consistent_random").for_key(b"") == -1
    assert make("murmur2_random").for_key(None) == -1
    assert make("murmur2").for_key(None) == murmur2_positive(b"") % 6
    assert make("consistent").for_key(None) == 0


def test_sticky_partition_moves_on_and_avoids_partitions_without_a_leader() -> None:
    topic = make("murmur2_random", 4, (1, 3))
    seen = []
    for _ in range(4):
        seen.append(topic.sticky)
        topic.next_sticky()
    assert seen == [1, 3, 1, 3]


def test_sticky_partition_is_any_when_none_has_a_leader() -> None:
    assert make("murmur2_random", 4, ()).sticky == 0
