"""A mirror between two clusters in memory: records, settings, new topics and partitions, groups, active-active."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from mirror_process import RunningMirror

from tidelog import Consumer, Producer, TopicPartition
from tidelog.admin import AdminClient, NewPartitions, NewTopic
from tidelog.testing import FakeCluster
from tidelog_mirror.internal_records import decode_checkpoint, decode_offset_sync


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[FakeCluster, FakeCluster]]:
    with FakeCluster(cluster_id="first") as first, FakeCluster(cluster_id="second") as second:
        yield first, second


def settings(clusters: tuple[FakeCluster, FakeCluster]) -> dict[str, str]:
    first, second = clusters
    both = {"A.bootstrap.servers": first.kafka_bootstrap_servers, "B.bootstrap.servers": second.kafka_bootstrap_servers}
    return {"clusters": "A, B", **both}


def produce(cluster: FakeCluster, topic: str, values: list[bytes], partition: int = 0) -> None:
    producer = Producer(cluster.client_settings())
    for value in values:
        producer.produce(topic, value=value, key=b"k", partition=partition)
    producer.flush()


def records(cluster: FakeCluster, topic: str, isolation: str = "read_committed") -> list[bytes]:
    """Return the values of a topic in the order of each partition."""
    consumer = Consumer({**cluster.client_settings(), "group.id": "reader", "isolation.level": isolation})
    try:
        found = consumer.list_topics(topic).topics[topic].partitions
        values = []
        for partition in found:
            where = TopicPartition(topic, partition)
            end = consumer.get_watermark_offsets(where)[1]
            consumer.assign([TopicPartition(topic, partition, 0)])
            while end > 0 and consumer.position([where])[0].offset < end:
                values += [m.value() for m in consumer.consume(500, 0.05)]
        return values
    finally:
        consumer.close()


def pairs(cluster: FakeCluster, topic: str) -> list[tuple[bytes, bytes]]:
    consumer = Consumer({**cluster.client_settings(), "group.id": "reader"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        end = consumer.get_watermark_offsets(TopicPartition(topic, 0))[1]
        found: list[tuple[bytes, bytes]] = []
        while len(found) < end:
            found += [(m.key(), m.value()) for m in consumer.consume(500, 0.05)]
        return found
    finally:
        consumer.close()


def wait_for(condition: Callable[[], object], what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def has(cluster: FakeCluster, topic: str, values: list[bytes]) -> Callable[[], bool]:
    def check() -> bool:
        consumer = Consumer({**cluster.client_settings(), "group.id": "reader"})
        known = topic in consumer.list_topics().topics
        consumer.close()
        return known and sorted(records(cluster, topic)) == sorted(values)

    return check


@pytest.mark.parametrize("support", ["disabled", "enabled"])
def test_topics_partitions_and_group_offsets_follow_their_source(
    clusters: tuple[FakeCluster, FakeCluster], support: str
) -> None:
    first, second = clusters
    topic, late, group = f"orders-{support}", f"late-{support}", f"readers-{support}"
    first.create_topic(topic, partitions=2)
    values = [b"%d" % number for number in range(500)]
    produce(first, topic, values)
    consumer = Consumer({**first.client_settings(), "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic, 0, 500)], asynchronous=False)
    consumer.close()
    mirrored = settings(clusters)
    mirrored |= {
        "A->B.enabled": "true",
        "A->B.topics": f"{topic}, {late}",
        "emit.heartbeats.enabled": "false",
        "exactly.once.source.support": support,
        "sync.group.offsets.enabled": "true",
    }
    with RunningMirror(mirrored):
        wait_for(has(second, f"A.{topic}", values), "the records are copied")
        with AdminClient(first.client_settings()) as admin:
            admin.create_topics([NewTopic(late, 1, 1, config={"retention.ms": "12345678"})])[late].result(30)
            admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
        produce(first, late, [b"late"])
        produce(first, topic, [b"third"], partition=2)
        wait_for(has(second, f"A.{late}", [b"late"]), "a new topic is found")
        wait_for(has(second, f"A.{topic}", [*values, b"third"]), "a new partition is found")

        def committed() -> int:
            reader = Consumer({**second.client_settings(), "group.id": group})
            (found,) = reader.committed([TopicPartition(f"A.{topic}", 0)], timeout=10)
            reader.close()
            return int(found.offset)

        # The last sync is at most offset.lag.max behind, and never past the record that the group reads next.
        end = len(values) + (0 if support == "disabled" else 1)
        wait_for(lambda: 400 <= committed() <= end, "the group's offset is committed")
    assert records(second, f"A.{topic}")[:500] == values
    syncs = [decode_offset_sync(*pair) for pair in pairs(first, "mm2-offset-syncs.B.internal")]
    assert any(sync.topic == topic for sync in syncs)
    checkpoints = [decode_checkpoint(*pair) for pair in pairs(second, "A.checkpoints.internal")]
    assert any((each.group_id, each.topic) == (group, f"A.{topic}") for each in checkpoints)
    with AdminClient(second.client_settings()) as admin:
        assert admin.list_topics().topics[f"A.{late}"] is not None
    # Another process continues at the positions: nothing is lost or copied again.
    produce(first, topic, [b"after"])
    with RunningMirror(mirrored):
        wait_for(has(second, f"A.{topic}", [*values, b"third", b"after"]), "the copy continues where it ended")


def test_two_clusters_copy_each_other_without_a_loop(clusters: tuple[FakeCluster, FakeCluster]) -> None:
    first, second = clusters
    for cluster in clusters:
        cluster.create_topic("both")
    produce(first, "both", [b"of the first"])
    produce(second, "both", [b"of the second"])
    mirrored = settings(clusters) | {
        "A->B.enabled": "true",
        "B->A.enabled": "true",
        "topics": ".*both",
        "emit.heartbeats.interval.seconds": "1",
    }
    with RunningMirror(mirrored) as mirror:
        wait_for(has(second, "A.both", [b"of the first"]), "the first is copied")
        wait_for(has(first, "B.both", [b"of the second"]), "the second is copied")
        produce(first, "both", [b"more"])
        wait_for(has(second, "A.both", [b"of the first", b"more"]), "more is copied")
        assert mirror.process is not None
        wait_for(
            lambda: all(
                "heartbeats" in str(list(worker.copier.reader.partitions)) for worker in mirror.process.workers
            ),
            "heartbeats are copied",
        )
    consumer = Consumer({**first.client_settings(), "group.id": "reader"})
    names = set(consumer.list_topics().topics)
    consumer.close()
    assert {"both", "B.both", "heartbeats", "B.heartbeats"} <= names
    assert not {"A.both", "A.B.both", "B.A.both"} & names


def test_open_and_aborted_transactions_are_not_copied_exactly_once(clusters: tuple[FakeCluster, FakeCluster]) -> None:
    first, second = clusters
    first.create_topic("tx")
    producer = Producer({**first.client_settings(), "transactional.id": "tx"})
    producer.init_transactions()
    for outcome in ("abort", "commit", "abort", "commit"):
        producer.begin_transaction()
        producer.produce("tx", value=outcome.encode())
        producer.flush()
        producer.commit_transaction() if outcome == "commit" else producer.abort_transaction()
    mirrored = settings(clusters) | {
        "A->B.enabled": "true",
        "A->B.topics": "tx",
        "emit.heartbeats.enabled": "false",
        "exactly.once.source.support": "enabled",
        "replication.policy.class": "IdentityReplicationPolicy",
    }
    with RunningMirror(mirrored):
        wait_for(has(second, "tx", [b"commit", b"commit"]), "committed records are copied")
        producer.begin_transaction()
        producer.produce("tx", value=b"open")
        producer.flush()
        produce(first, "tx", [b"behind"])
        time.sleep(0.2)
        assert sorted(records(second, "tx")) == [b"commit", b"commit"]
        producer.commit_transaction()
        wait_for(has(second, "tx", [b"commit", b"commit", b"open", b"behind"]), "the rest is copied")


def test_crashes_lose_and_double_nothing_exactly_once(clusters: tuple[FakeCluster, FakeCluster]) -> None:
    first, second = clusters
    first.create_topic("crashed", partitions=2)
    mirrored = settings(clusters) | {
        "A->B.enabled": "true",
        "A->B.topics": "crashed",
        "emit.heartbeats.enabled": "false",
        "exactly.once.source.support": "enabled",
        "consumer.max.partition.fetch.bytes": "2048",
    }
    expected: list[bytes] = []
    for attempt in range(4):
        values = [b"%d-%d" % (attempt, number) for number in range(200)]
        expected += values
        for at in range(0, len(values), 20):
            produce(first, "crashed", values[at : at + 20], partition=attempt % 2)
        with RunningMirror(mirrored) as mirror:
            if attempt < 3:
                reader = mirror.worker.copier.reader
                wait_for(lambda found=reader: len(found.partitions) > 1, "it copies")  # type: ignore[misc]
                mirror.crash()
            else:
                wait_for(has(second, "A.crashed", expected), "all is copied once")
    assert records(second, "A.crashed") == [
        value for partition in (0, 1) for value in expected if int(value[:1]) % 2 == partition
    ]
