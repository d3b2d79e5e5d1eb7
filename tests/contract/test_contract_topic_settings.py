"""The effects of a topic's settings that a client can see."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tidelog import KafkaError, KafkaException, NewTopic
from tidelog_foundation.config import TopicConfig, parse_config
from tidelog_foundation.errors import ConfigError, ErrorCode
from tidelog_foundation.records import RecordBatchBuilder, parse_header, read_records

Deployment = Any

HOUR_MS = 3_600_000


def create(cluster: Deployment, name: str, config: dict[str, str], validate_only: bool = False) -> None:
    topic = NewTopic(name, 1, 1, config=config)
    cluster.admin.create_topics([topic], validate_only=validate_only)[name].result(30)


def produce(cluster: Deployment, topic: str, value: bytes, **fields: Any) -> KafkaError | None:
    """Return how the delivery of one record ended."""
    reports: list[KafkaError | None] = []
    with cluster.producer() as producer:
        producer.produce(topic, value, on_delivery=lambda error, message: reports.append(error), **fields)
        assert producer.flush(30) == 0
    return reports[0]


def batch(
    *values: bytes, key: bytes | None = b"k", timestamp_ms: int | None = None, compression: str = "none", **fields: int
) -> bytes:
    builder = RecordBatchBuilder(compression)
    for value in values:
        builder.append(key, value, (), int(time.time() * 1000) if timestamp_ms is None else timestamp_ms)
    return builder.build(**fields)


def code_of(result: Any) -> ErrorCode:
    return ErrorCode.of(result.error.code)


@pytest.mark.parametrize(
    "config",
    [
        {"cleanup.policy": "compact"},
        {"cleanup.policy": "compact,delete", "delete.retention.ms": "0"},
        {"retention.ms": "-1", "retention.bytes": "1000000"},
        {"compression.type": "zstd", "compression.zstd.level": "7"},
        {"segment.bytes": "1048576", "segment.ms": "60000", "segment.jitter.ms": "10", "segment.index.bytes": "1000"},
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "10", "min.cleanable.dirty.ratio": "0.25"},
        {"flush.messages": "1", "flush.ms": "1", "preallocate": "true", "file.delete.delay.ms": "0"},
        {"message.timestamp.before.max.ms": "0", "message.timestamp.after.max.ms": "0"},
    ],
    ids=lambda config: next(iter(config)),
)
def test_create_topics_takes_all_of_kafkas_settings(cluster: Deployment, config: dict[str, str]) -> None:
    name = f"{cluster.topic()}-taken"
    create(cluster, name, config)
    assert cluster.admin.describe_topics([name])[name].result(30).config == config


@pytest.mark.parametrize(
    "config",
    [
        {"cleanup.policy": "compact,shred"},
        {"cleanup.policy": "delete,delete"},
        {"compression.type": "brotli"},
        {"compression.type": "none"},
        {"compression.gzip.level": "0"},
        {"min.cleanable.dirty.ratio": "1.5"},
        {"min.compaction.lag.ms": "11", "max.compaction.lag.ms": "10"},
        {"preallocate": "yes"},
        {"retention.ms": "-2"},
        {"segment.bytes": "13"},
        {"segment.ms": "0"},
        {"segment.ms": "1.5"},
        {"retention.mss": "1"},
        {"nonsense": "1"},
    ],
    ids=lambda config: "=".join(next(iter(config.items()))),
)
def test_create_topics_says_what_is_wrong_with_a_setting(cluster: Deployment, config: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as expected:
        parse_config(TopicConfig, config)
    with pytest.raises(KafkaException) as caught:
        create(cluster, "wrong", config, validate_only=True)
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_CONFIG, expected.value.message)


def test_a_compacted_topic_refuses_a_record_without_a_key(cluster: Deployment) -> None:
    topic = cluster.topic(cleanup_policy="compact")
    error = produce(cluster, topic, b"keyless")
    assert error is not None
    assert error.name() == "INVALID_RECORD"
    assert cluster.end_offset(topic) == 0
    assert produce(cluster, topic, b"keyed", key=b"") is None
    for compression in ("none", "gzip"):
        result = cluster.raw_produce(topic, batch(b"v", b"v", key=None, compression=compression))
        assert code_of(result) is ErrorCode.INVALID_RECORD
    assert cluster.end_offset(topic) == 1


@pytest.mark.parametrize("compression", ["none", "lz4"])
@pytest.mark.parametrize(("setting", "sign"), [("before", -1), ("after", 1)])
def test_a_timestamp_out_of_its_bounds_is_refused(
    cluster: Deployment, setting: str, sign: int, compression: str
) -> None:
    topic = cluster.topic(**{f"message_timestamp_{setting}_max_ms": str(HOUR_MS)})
    now_ms = int(time.time() * 1000)
    far = batch(b"x" * 100, timestamp_ms=now_ms + 2 * sign * HOUR_MS, compression=compression)
    near = batch(b"x" * 100, timestamp_ms=now_ms + sign * HOUR_MS // 2, compression=compression)
    result = cluster.raw_produce(topic, far)
    assert code_of(result) is ErrorCode.INVALID_TIMESTAMP
    assert str(now_ms + 2 * sign * HOUR_MS) in result.error.message
    assert cluster.end_offset(topic) == 0
    assert cluster.raw_produce(topic, near).base_offset == 0


def test_a_timestamp_an_hour_ahead_is_refused_by_default_and_an_old_one_taken(cluster: Deployment) -> None:
    topic = cluster.topic()
    error = produce(cluster, topic, b"v", timestamp=int(time.time() * 1000) + 2 * HOUR_MS)
    assert error is not None
    assert error.name() == "INVALID_TIMESTAMP"
    assert produce(cluster, topic, b"v", timestamp=1) is None


def test_log_append_time_takes_any_timestamp_and_replaces_it(cluster: Deployment) -> None:
    topic = cluster.topic(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms="0")
    before_ms = int(time.time() * 1000)
    result = cluster.raw_produce(topic, batch(b"v", timestamp_ms=1))
    assert before_ms <= result.log_append_time_ms <= time.time() * 1000
    records = cluster.raw_fetch(topic).topics[0].partitions[0].records
    assert [r.timestamp_ms for r in read_records(records)] == [result.log_append_time_ms]


@pytest.mark.parametrize(
    ("setting", "stored"),
    [("producer", "lz4"), ("uncompressed", "none"), ("gzip", "gzip"), ("snappy", "snappy"), ("zstd", "zstd")],
)
def test_batches_are_stored_with_the_topics_codec(cluster: Deployment, setting: str, stored: str) -> None:
    topic = cluster.topic(compression_type=setting)
    values = [b"%d" % n * 50 for n in range(20)]
    sent = batch(*values, compression="lz4")
    assert cluster.raw_produce(topic, sent).base_offset == 0
    records = cluster.raw_fetch(topic, max_bytes=100_000).topics[0].partitions[0].records
    assert parse_header(records).compression == stored
    assert [r.value for r in read_records(records)] == values
    assert [m.value() for m in cluster.read(topic, 20)] == values


def test_an_idempotent_batch_is_stored_once_and_in_its_turn(cluster: Deployment) -> None:
    topic = cluster.topic()

    def send(sequence: int, count: int, epoch: int = 0) -> Any:
        records = batch(*[b"%d" % n for n in range(sequence, sequence + count)], **producer(sequence, epoch))
        return cluster.raw_produce(topic, records)

    def producer(sequence: int, epoch: int) -> dict[str, int]:
        return {"producer_id": 7_000, "producer_epoch": epoch, "base_sequence": sequence}

    assert [send(0, 2).base_offset, send(2, 1).base_offset] == [0, 2]
    again = send(0, 2)
    assert (again.HasField("error"), again.base_offset) == (False, 0)
    early = send(4, 1)
    assert code_of(early) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert early.error.message == "producer 7000 in epoch 0 sends sequence 4, expected 3"
    assert send(3, 1).base_offset == 3
    assert send(1, 1, epoch=1).error.message.endswith("begins epoch 1 (after 0) with sequence 1, expected 0")
    assert code_of(send(1, 1, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(0, 1, epoch=1).base_offset == 4
    stale = send(4, 1)
    assert code_of(stale) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert stale.error.message == "producer 7000 sends epoch 0, the log has 1"
    assert cluster.end_offset(topic) == 5
    assert [m.value() for m in cluster.read(topic, 5)] == [b"0", b"1", b"2", b"3", b"0"]
