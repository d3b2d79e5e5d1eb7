"""Deleting records from the beginning (KIP-107), what is found then, and where replicas are (KIP-113)."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog import OFFSET_BEGINNING, OFFSET_END, KafkaException, TopicPartition
from tidelog.admin import TopicPartitionReplica
from tidelog.cluster import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode

Deployment = Any

COMMITTED = {"isolation_level": pb.ISOLATION_LEVEL_READ_COMMITTED}


def delete(cluster: Deployment, topic: str, offset: int, partition: int = 0) -> int:
    where = TopicPartition(topic, partition, offset)
    return int(cluster.admin.delete_records([where])[where].result(30).low_watermark)


def watermarks(cluster: Deployment, topic: str) -> tuple[int, int]:
    with cluster.consumer() as consumer:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)
    return low, high


def send_timed(cluster: Deployment, topic: str, timestamps_ms: list[int]) -> None:
    with cluster.producer() as producer:
        for timestamp_ms in timestamps_ms:
            producer.produce(topic, b"%d" % timestamp_ms, timestamp=timestamp_ms)
        assert producer.flush(30) == 0


def test_deleted_records_are_gone_and_later_ones_keep_their_offsets(cluster: Deployment) -> None:
    topic = cluster.topic()
    cluster.send(topic, [b"%d" % n for n in range(10)], linger_ms=50)
    assert delete(cluster, topic, 3) == 3
    assert watermarks(cluster, topic) == (3, 10)
    assert [(m.offset(), m.value()) for m in cluster.read(topic, 7, offset=OFFSET_BEGINNING)] == [
        (n, b"%d" % n) for n in range(3, 10)
    ]
    assert delete(cluster, topic, 1) == 3, "what is deleted does not come back"
    assert delete(cluster, topic, OFFSET_END) == 10
    assert watermarks(cluster, topic) == (10, 10)
    [sent] = cluster.send(topic, [b"new"])
    assert sent.offset() == 10
    assert [m.value() for m in cluster.read(topic, 1, offset=10)] == [b"new"]


def test_reading_below_the_log_start_is_out_of_range(cluster: Deployment) -> None:
    topic = cluster.topic()
    cluster.send(topic, [b"a", b"b"])
    delete(cluster, topic, 1)
    result = cluster.raw_fetch(topic, 0).topics[0].partitions[0]
    assert ErrorCode.of(result.error.code) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (result.log_start_offset, result.high_watermark, result.last_stable_offset) == (1, 2, -1)
    assert [m.value() for m in cluster.read(topic, 1, offset=1)] == [b"b"]


@pytest.mark.parametrize("offset", [3, 2**62])
def test_deletion_beyond_the_high_watermark_is_refused(cluster: Deployment, offset: int) -> None:
    topic = cluster.topic()
    cluster.send(topic, [b"a", b"b"])
    with pytest.raises(KafkaException, match=rf"OFFSET_OUT_OF_RANGE.*{offset}.*high watermark is 2"):
        delete(cluster, topic, offset)
    assert watermarks(cluster, topic) == (0, 2)


@pytest.mark.parametrize(("policy", "allowed"), [("compact", False), ("compact,delete", True), ("delete", True)])
def test_deletion_needs_a_cleanup_policy_with_delete(cluster: Deployment, policy: str, allowed: bool) -> None:
    topic = cluster.topic(cleanup_policy=policy)
    with cluster.producer() as producer:
        producer.produce(topic, b"v", b"k")
        assert producer.flush(30) == 0
    if allowed:
        assert delete(cluster, topic, OFFSET_END) == 1
    else:
        with pytest.raises(KafkaException, match=r"POLICY_VIOLATION.*cleanup\.policy"):
            delete(cluster, topic, OFFSET_END)
        assert watermarks(cluster, topic) == (0, 1)


def test_each_partition_of_a_deletion_has_its_own_outcome(cluster: Deployment) -> None:
    topic = cluster.topic(partitions=2)
    cluster.send(topic, [b"a", b"b"], 1)
    good, bad, unknown = (TopicPartition(topic, *p) for p in ((1, 1), (0, 1), (7, 0)))
    futures = cluster.admin.delete_records([good, bad, unknown])
    assert futures[good].result(30).low_watermark == 1
    with pytest.raises(KafkaException, match="OFFSET_OUT_OF_RANGE"):
        futures[bad].result(30)
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PARTITION"):
        futures[unknown].result(30)


def test_deletion_refuses_what_names_no_offset(cluster: Deployment) -> None:
    for partitions in ([TopicPartition("t", 0)], [TopicPartition("t", -1, 0)], [TopicPartition("t", 0, 1)] * 2):
        with pytest.raises(KafkaException, match="_INVALID_ARG"):
            cluster.admin.delete_records(partitions)


def test_offsets_are_found_among_what_is_left(cluster: Deployment) -> None:
    topic = cluster.topic()
    send_timed(cluster, topic, [9_000, 1_000, 3_000, 2_000])
    delete(cluster, topic, 1)
    found = [cluster.raw_list_offset(topic, t).offset for t in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, 0, 1_500, 5_000)]
    assert found == [1, 4, 1, 2, -1]
    assert cluster.raw_list_offset(topic, MAX_TIMESTAMP).offset == 2
    delete(cluster, topic, OFFSET_END)
    assert [cluster.raw_list_offset(topic, t).offset for t in (EARLIEST_TIMESTAMP, MAX_TIMESTAMP, 0)] == [4, -1, -1]


def test_read_committed_sees_everything_where_there_are_no_transactions(cluster: Deployment) -> None:
    topic = cluster.topic()
    send_timed(cluster, topic, [1_000, 3_000, 2_000])
    for timestamp_ms, offset in ((LATEST_TIMESTAMP, 3), (EARLIEST_TIMESTAMP, 0), (MAX_TIMESTAMP, 1), (2_500, 1)):
        assert cluster.raw_list_offset(topic, timestamp_ms, **COMMITTED).offset == offset
    plain, committed = (cluster.raw_fetch(topic, **f).topics[0].partitions[0] for f in ({}, COMMITTED))
    assert committed.records == plain.records != b""
    assert (committed.last_stable_offset, committed.high_watermark) == (3, 3)
    assert not committed.aborted_transactions


def test_log_dirs_show_where_each_replica_is(cluster: Deployment) -> None:
    topic = cluster.topic(partitions=2)
    cluster.send(topic, [b"v"], 1)
    [node] = cluster.admin.describe_cluster().result(30).nodes
    directories = cluster.admin.describe_log_dirs([node.id])[node.id].result(30)
    found = {
        (key.partition, info.size > 0, info.offset_lag, info.is_future)
        for directory in directories.values()
        for key, info in directory.replica_infos.items()
        if key.topic == topic
    }
    assert found == {(0, False, 0, False), (1, True, 0, False)}
    assert all(directory.error is None for directory in directories.values())
    with pytest.raises(KafkaException, match=r"BROKER_NOT_AVAILABLE.*99"):
        cluster.admin.describe_log_dirs([99])[99].result(30)


def test_a_replica_moves_only_to_a_directory_of_its_node(cluster: Deployment) -> None:
    topic = cluster.topic()
    [node] = cluster.admin.describe_cluster().result(30).nodes
    [path] = cluster.admin.describe_log_dirs([node.id])[node.id].result(30)
    known, other, lost = (TopicPartitionReplica(t, 0, n) for t, n in ((topic, node.id), ("none", node.id), (topic, 99)))
    assert cluster.admin.alter_replica_log_dirs({known: path})[known].result(30) is None
    with pytest.raises(KafkaException, match=r"LOG_DIR_NOT_FOUND.*/nowhere"):
        cluster.admin.alter_replica_log_dirs({known: "/nowhere"})[known].result(30)
    with pytest.raises(KafkaException, match=r"REPLICA_NOT_AVAILABLE.*none-0"):
        cluster.admin.alter_replica_log_dirs({other: path})[other].result(30)
    with pytest.raises(KafkaException, match=r"BROKER_NOT_AVAILABLE.*99"):
        cluster.admin.alter_replica_log_dirs({lost: path})[lost].result(30)
