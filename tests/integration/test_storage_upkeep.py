"""Upkeep of logs on all replicas, seen from outside: retention, compaction, deletion."""

from __future__ import annotations

import pytest
from acknowledged import create_topic, isr_sizes, wait_for

from tidelog import OFFSET_BEGINNING, AdminClient, Consumer, Producer, TopicPartition
from tidelog.testing import LocalCluster

TOPIC = "prices"
KEYS = 20
QUICK = {
    "log.retention.check.interval.ms": 100,
    "log.cleaner.backoff.ms": 50,
    "log.flush.start.offset.checkpoint.interval.ms": 100,
}


def produce(cluster: LocalCluster, first: int, count: int) -> None:
    """Send numbered records; the key is the number modulo KEYS."""
    failed = []
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "batch.num.messages": 10}) as producer:
        for number in range(first, first + count):
            producer.produce(
                TOPIC, b"%d" % number, b"%d" % (number % KEYS), on_delivery=lambda e, m: failed.append(e) if e else None
            )
        assert producer.flush(60) == 0
    assert failed == []


def read_all(cluster: LocalCluster) -> list[tuple[int, bytes, bytes]]:
    """Return offset, key and value of every record from the first to the last."""
    found = []
    config = {"bootstrap.servers": cluster.bootstrap_servers, "enable.partition.eof": True}
    with Consumer(config) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                return found
            found.append((message.offset(), message.key(), message.value()))


def earliest(cluster: LocalCluster) -> int:
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
        low, _ = consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)
        return low


@pytest.mark.slow
def test_compaction_keeps_the_last_value_of_each_key_on_whoever_leads() -> None:
    with LocalCluster(controllers=1, nodes=3, config=QUICK) as cluster:
        settings = {"cleanup.policy": "compact", "segment.bytes": "2000", "min.cleanable.dirty.ratio": "0.01"}
        create_topic(cluster, TOPIC, 1, 3, min_insync_replicas="2", **settings)
        leader = cluster.leader(TOPIC, 0)
        assert leader is not None
        late = next(node for node in cluster.nodes if node != leader)
        cluster.nodes[late].kill()
        produce(cluster, 0, 1_000)
        wait_for(lambda: len(read_all(cluster)) < 200, "the log compacted")
        cluster.nodes[late].start()
        wait_for(lambda: isr_sizes(cluster, TOPIC) == [3], "the ISR whole")
        produce(cluster, 1_000, 100)
        expected = {b"%d" % (n % KEYS): b"%d" % n for n in range(1_100)}
        for _ in range(2):
            records = read_all(cluster)
            assert {key: value for _, key, value in records} == expected
            assert [int(value) for _, _, value in records] == [offset for offset, _, _ in records]
            assert records == sorted(records)
            leader = cluster.leader(TOPIC, 0)
            assert leader is not None
            cluster.nodes[leader].kill()
            wait_for(lambda gone=leader: cluster.leader(TOPIC, 0) not in (gone, None), "another leader")
            cluster.nodes[leader].start()
            wait_for(lambda: isr_sizes(cluster, TOPIC) == [3], "the ISR whole")


def test_retention_and_deletion_move_the_first_offset_of_all_replicas() -> None:
    with LocalCluster(controllers=1, nodes=2, config=QUICK) as cluster:
        create_topic(cluster, TOPIC, 1, 2, **{"retention.bytes": "5000", "segment.bytes": "2000"})
        produce(cluster, 0, 500)
        wait_for(lambda: earliest(cluster) > 0, "old segments deleted")
        records = read_all(cluster)
        assert [offset for offset, _, _ in records] == list(range(500 - len(records), 500))
        where = TopicPartition(TOPIC, 0, 490)
        with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            assert admin.delete_records([where])[where].result(30).low_watermark == 490
        leader = cluster.leader(TOPIC, 0)
        assert leader is not None
        cluster.nodes[leader].kill()
        wait_for(lambda: cluster.leader(TOPIC, 0) not in (leader, None), "another leader")
        assert earliest(cluster) == 490
        assert [int(value) for _, _, value in read_all(cluster)] == list(range(490, 500))
