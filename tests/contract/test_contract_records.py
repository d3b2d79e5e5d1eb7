"""Produced records, read back unchanged and found by offset and by time."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tidelog import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    TopicPartition,
)

Deployment = Any


def test_records_come_back_with_key_value_headers_and_timestamp(cluster: Deployment) -> None:
    topic = cluster.topic()
    headers = [("a", b"1"), ("a", None), ("é", b"")]
    with cluster.producer() as producer:
        producer.produce(topic, "välue", "kéy", timestamp=1_700_000_000_123, headers=headers)
        producer.produce(topic, None, b"")
        producer.produce(topic, b"", None, headers={"k": "v"})
        assert producer.flush(30) == 0
    first, second, third = cluster.read(topic, 3)
    assert (first.topic(), first.partition(), first.offset()) == (topic, 0, 0)
    assert (first.key(), first.value()) == ("kéy".encode(), "välue".encode())
    assert first.headers() == headers
    assert first.timestamp() == (TIMESTAMP_CREATE_TIME, 1_700_000_000_123)
    assert (second.key(), second.value(), second.headers(), len(second)) == (b"", None, None, 0)
    assert (third.key(), third.value(), third.headers()) == (None, b"", [("k", b"v")])
    assert abs(third.timestamp()[1] - time.time() * 1000) < 60_000


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_with_every_codec(cluster: Deployment, codec: str) -> None:
    topic = cluster.topic()
    values = [b'{"carrier": "UA", "flight": %d}' % n for n in range(500)]
    cluster.send(topic, values, compression_type=codec, linger_ms=50)
    assert [m.value() for m in cluster.read(topic, 500)] == values


@pytest.mark.parametrize("acks", ["all", "1"])
def test_delivery_reports_come_in_order_with_their_offsets(cluster: Deployment, acks: str) -> None:
    topic = cluster.topic()
    delivered = cluster.send(topic, [b"%d" % n for n in range(1_000)], acks=acks, batch_num_messages=100)
    assert [m.offset() for m in delivered] == list(range(1_000))
    assert [m.value() for m in delivered] == [b"%d" % n for n in range(1_000)]
    assert all(m.latency() is not None and m.latency() >= 0 for m in delivered)


def test_acks_0_reports_no_offset_and_stores_the_record(cluster: Deployment) -> None:
    topic = cluster.topic()
    [delivered] = cluster.send(topic, [b"v"], acks="0")
    assert delivered.offset() is None
    # The report does not wait for the record to be stored, but a close does not take the record back.
    assert [m.value() for m in cluster.read(topic, 1)] == [b"v"]


def test_acks_0_loses_nothing_when_the_producer_is_closed_at_once(cluster: Deployment) -> None:
    topic = cluster.topic()
    for first in range(0, 200, 20):
        with cluster.producer(acks="0", batch_num_messages=3, linger_ms=0) as producer:
            for n in range(first, first + 20):
                producer.produce(topic, b"%d" % n)
    assert [m.value() for m in cluster.read(topic, 200)] == [b"%d" % n for n in range(200)]


def test_records_with_the_same_key_share_a_partition_in_order(cluster: Deployment) -> None:
    topic = cluster.topic(partitions=4)
    with cluster.producer(batch_num_messages=7) as producer:
        for n in range(300):
            producer.produce(topic, b"%d" % n, key=b"key-%d" % (n % 10))
        assert producer.flush(30) == 0
    by_key: dict[bytes, list[tuple[int, int]]] = {}
    with cluster.consumer() as consumer:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(4)])
        for message in consumer.consume(300, 30):
            by_key.setdefault(message.key(), []).append((message.partition(), int(message.value())))
    assert len(by_key) == 10
    for seen in by_key.values():
        assert len({partition for partition, _ in seen}) == 1
        assert [n for _, n in seen] == sorted(n for _, n in seen)
        assert len(seen) == 30


def test_log_append_time_is_reported_and_read(cluster: Deployment) -> None:
    topic = cluster.topic(message_timestamp_type="LogAppendTime")
    [delivered] = cluster.send(topic, [b"v"])
    [message] = cluster.read(topic, 1)
    assert delivered.timestamp()[0] == TIMESTAMP_LOG_APPEND_TIME
    assert message.timestamp() == delivered.timestamp()


def test_watermark_offsets_are_the_first_offset_and_one_past_the_last(cluster: Deployment) -> None:
    topic = cluster.topic()
    with cluster.consumer() as consumer:
        partition = TopicPartition(topic, 0, OFFSET_BEGINNING)
        assert consumer.get_watermark_offsets(partition, timeout=10) == (0, 0)
        assert consumer.get_watermark_offsets(partition, cached=True) == (OFFSET_INVALID, OFFSET_INVALID)
        cluster.send(topic, [b"a", b"b", b"c"])
        assert consumer.get_watermark_offsets(partition, timeout=10) == (0, 3)
        consumer.assign([partition])
        assert len(consumer.consume(3, 30)) == 3
        assert consumer.get_watermark_offsets(partition, cached=True) == (0, 3)


def test_seek_goes_to_any_offset_and_both_ends(cluster: Deployment) -> None:
    topic = cluster.topic()
    cluster.send(topic, [b"%d" % n for n in range(20)])
    with cluster.consumer() as consumer:
        consumer.assign([TopicPartition(topic, 0, 5)])
        assert consumer.position([TopicPartition(topic, 0)])[0].offset == OFFSET_INVALID
        assert [m.value() for m in consumer.consume(2, 30)] == [b"5", b"6"]
        assert consumer.position([TopicPartition(topic, 0)])[0].offset == 7
        consumer.seek(TopicPartition(topic, 0, 17))
        assert [m.value() for m in consumer.consume(3, 30)] == [b"17", b"18", b"19"]
        consumer.seek(TopicPartition(topic, 0, OFFSET_BEGINNING))
        assert [m.value() for m in consumer.consume(1, 30)] == [b"0"]
        consumer.seek(TopicPartition(topic, 0, OFFSET_END))
        assert consumer.poll(0.3) is None
        cluster.send(topic, [b"new"])
        [message] = consumer.consume(1, 30)
        assert (message.value(), message.offset()) == (b"new", 20)


def test_pause_and_resume_lose_and_repeat_nothing(cluster: Deployment) -> None:
    topic = cluster.topic()
    cluster.send(topic, [b"%d" % n for n in range(50)])
    partition = TopicPartition(topic, 0, OFFSET_BEGINNING)
    with cluster.consumer() as consumer:
        consumer.assign([partition])
        seen = [m.value() for m in consumer.consume(10, 30)]
        consumer.pause([partition])
        assert consumer.poll(0.2) is None
        consumer.resume([partition])
        seen += [m.value() for m in consumer.consume(40, 30)]
    assert seen == [b"%d" % n for n in range(50)]


def test_assignment_is_changed_in_steps(cluster: Deployment) -> None:
    topic = cluster.topic(partitions=2)
    for partition in (0, 1):
        cluster.send(topic, [b"p%d" % partition], partition)
    zero, one = (TopicPartition(topic, p, OFFSET_BEGINNING) for p in (0, 1))
    with cluster.consumer() as consumer:
        consumer.assign([zero])
        assert [m.value() for m in consumer.consume(1, 30)] == [b"p0"]
        consumer.incremental_assign([one])
        assert [m.value() for m in consumer.consume(1, 30)] == [b"p1"]
        assert consumer.assignment() == [zero, one]
        consumer.incremental_unassign([zero])
        assert consumer.assignment() == [one]
        consumer.unassign()
        assert consumer.assignment() == []


def test_offsets_for_times_finds_the_first_record_as_late(cluster: Deployment) -> None:
    topic = cluster.topic()
    with cluster.producer() as producer:
        for n in range(10):
            producer.produce(topic, b"%d" % n, timestamp=1_000_000 + n * 1_000)
            assert producer.flush(30) == 0
    with cluster.consumer() as consumer:
        for timestamp_ms, expected in ((0, 0), (1_004_000, 4), (1_004_001, 5), (2_000_000, OFFSET_END)):
            [found] = consumer.offsets_for_times([TopicPartition(topic, 0, timestamp_ms)], timeout=10)
            assert found.offset == expected


def test_partition_eof_is_reported_at_the_end_once_per_position(cluster: Deployment) -> None:
    topic = cluster.topic()
    cluster.send(topic, [b"a"])
    with cluster.consumer(enable_partition_eof=True) as consumer:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        record, end = consumer.consume(2, 30)
        assert record.error() is None
        assert end.error() == KafkaError._PARTITION_EOF  # type: ignore[attr-defined]
        assert end.offset() == 1
        assert consumer.poll(0.3) is None
        cluster.send(topic, [b"b"])
        record, end = consumer.consume(2, 30)
        assert (record.value(), end.offset()) == (b"b", 2)


def test_a_consumer_with_a_small_queue_reads_everything(cluster: Deployment) -> None:
    topic = cluster.topic(partitions=2)
    for partition in (0, 1):
        cluster.send(topic, [b"%d" % n + b"x" * 500 for n in range(300)], partition, batch_num_messages=20)
    with cluster.consumer(queued_max_messages_kbytes=16, max_partition_fetch_bytes=10_000) as consumer:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in (0, 1)])
        messages = consumer.consume(600, 60)
    for partition in (0, 1):
        assert [m.offset() for m in messages if m.partition() == partition] == list(range(300))
