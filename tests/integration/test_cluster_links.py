"""A cluster link between two clusters: mirrors are equal byte for byte, and become ordinary topics."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from acknowledged import wait_for
from replica_files import committed_bytes

from tidelog import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tidelog.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    MirrorTopicInfo,
    MirrorTopicState,
    NewTopic,
)
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.slow

PARTITIONS = 2
LINK = "from-source"
GROUP = "readers"
FILTERS = '{"groupFilters": [{"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"}]}'


@pytest.fixture(scope="module")
def source() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=1, nodes=1) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def mirror() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=1, nodes=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def link(source: LocalCluster, mirror: LocalCluster) -> Iterator[AdminClient]:
    """Return the admin client of the cluster with the mirrors, which has a link."""
    settings = {
        "bootstrap.servers": source.kafka_bootstrap_servers,
        "consumer.offset.sync.enable": "true",
        "consumer.offset.sync.ms": "100",
        "topic.config.sync.ms": "100",
        "consumer.offset.group.filters": FILTERS,
    }
    with AdminClient({"bootstrap.servers": mirror.bootstrap_servers}) as admin:
        admin.create_cluster_link(LINK, settings).result(30)
        yield admin


def create(source: LocalCluster, name: str, **config: str) -> None:
    with AdminClient({"bootstrap.servers": source.bootstrap_servers}) as admin:
        admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config)])[name].result(30)


def described(admin: AdminClient, topic: str) -> MirrorTopicInfo:
    return admin.describe_mirror_topics(LINK).result(30)[topic]


def described_by_new_client(cluster: LocalCluster, topic: str) -> MirrorTopicInfo:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        return described(admin, topic)


def wait_until_mirrored(admin: AdminClient, topic: str, ends: list[int]) -> None:
    def is_mirrored() -> bool:
        found = described(admin, topic).partitions
        return len(found) == len(ends) and all(found[i].high_watermark == end for i, end in enumerate(ends))

    wait_for(is_mirrored, f"{topic} has not reached {ends}")


def produce(cluster: LocalCluster, topic: str, count: int, first: int = 0) -> None:
    """Write numbered records to partition 0."""
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for number in range(first, first + count):
            producer.produce(topic, str(number), partition=0)


def commit(cluster: LocalCluster, group: str, *offsets: TopicPartition) -> None:
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group}) as consumer:
        consumer.commit(offsets=list(offsets), asynchronous=False)


def write_transactions(source: LocalCluster, topic: str, first: int, count: int) -> None:
    """Write transactions of one record per partition, and abort each third."""
    with Producer({"bootstrap.servers": source.bootstrap_servers, "transactional.id": topic}) as producer:
        producer.init_transactions(30)
        for number in range(first, first + count):
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce(topic, f"value-{number}", key=f"key-{number % 5}", partition=partition)
            if number % 3 == 2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)


def read(cluster: LocalCluster, topic: str) -> list[list[tuple[int, int, bytes | None, bytes | None]]]:
    """Return the committed records of each partition: offset, timestamp, key, value."""
    found: list[list[tuple[int, int, bytes | None, bytes | None]]] = [[] for _ in range(PARTITIONS)]
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "read", "enable.partition.eof": True}
    with Consumer(settings) as consumer:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        ended: set[int] = set()
        deadline = time.monotonic() + 60
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, f"{topic} has no end: {ended}"
            message = consumer.poll(1)
            if message is None:
                continue
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
                continue
            record = message.offset(), message.timestamp()[1], message.key(), message.value()
            found[message.partition()].append(record)
    return found


def uncommitted_ends(cluster: LocalCluster, topic: str) -> list[int]:
    """Return the high watermarks."""
    return ends(cluster, topic, "read_uncommitted")


def ends(cluster: LocalCluster, topic: str, isolation: str = "read_committed") -> list[int]:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "ends", "isolation.level": isolation}
    with Consumer(settings) as consumer:
        return [consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=30)[1] for p in range(PARTITIONS)]


def logs(cluster: LocalCluster, topic: str, offsets: list[int]) -> dict[str, list[bytes]]:
    """Return the committed bytes of each partition by node."""

    def folder(node: Path, partition: int) -> Path:
        return node / "data" / f"{topic}-{partition}"

    return {
        node.name: [committed_bytes(folder(node.directory, p), offsets[p]) for p in range(PARTITIONS)]
        for node in cluster.nodes.values()
    }


def test_mirror_is_equal_byte_for_byte_read_only_until_promoted_and_continues(
    source: LocalCluster, mirror: LocalCluster, link: AdminClient
) -> None:
    topic = "orders"
    create(source, topic)
    write_transactions(source, topic, 0, 20)
    link.create_mirror_topics(LINK, [topic], replication_factor=2)[topic].result(30)
    write_transactions(source, topic, 20, 20)
    expected_ends = ends(source, topic)
    wait_until_mirrored(link, topic, expected_ends)
    assert described_by_new_client(mirror, topic).lag == 0
    [of_source] = logs(source, topic, expected_ends).values()
    wait_for(
        lambda: all(each == of_source for each in logs(mirror, topic, expected_ends).values()),
        "the replicas of the mirror are not equal to the source",
    )
    assert read(mirror, topic) == read(source, topic)
    with Producer({"bootstrap.servers": mirror.bootstrap_servers}) as producer:
        refused: list[KafkaError | None] = []
        producer.produce(topic, "no", partition=0, on_delivery=lambda error, _: refused.append(error))
        producer.flush(30)
    assert [error is not None and error.code() for error in refused] == [KafkaError.INVALID_REQUEST]
    assert "read-only" in str(refused[0])
    link.promote_mirror_topics([topic])[topic].result(30)
    wait_for(lambda: described(link, topic).state is MirrorTopicState.STOPPED, "not promoted")
    write_transactions(mirror, topic, 40, 3)
    values = [[record[3] for record in partition] for partition in read(mirror, topic)]
    committed = [f"value-{n}".encode() for n in range(43) if n % 3 != 2]
    assert values == [committed] * PARTITIONS


def test_failover_aborts_transactions_that_are_open_on_the_source(
    source: LocalCluster, mirror: LocalCluster, link: AdminClient
) -> None:
    topic = "payments"
    create(source, topic)
    write_transactions(source, topic, 0, 3)
    with Producer({"bootstrap.servers": source.bootstrap_servers, "transactional.id": "open"}) as producer:
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, "open", partition=0)
        producer.flush(30)
        link.create_mirror_topics(LINK, [topic], replication_factor=2)[topic].result(30)
        wait_until_mirrored(link, topic, uncommitted_ends(source, topic))
        before = uncommitted_ends(mirror, topic)[0]
        link.failover_mirror_topics([topic])[topic].result(30)
        wait_for(lambda: described(link, topic).state is MirrorTopicState.STOPPED, "not failed over")
        wait_for(lambda: ends(mirror, topic)[0] == before + 1, "the open transaction has no marker")
        producer.abort_transaction(30)
    write_transactions(mirror, topic, 3, 2)
    assert [r[3] for r in read(mirror, topic)[0]] == [b"value-0", b"value-1", b"value-3", b"value-4"]


def test_offsets_of_groups_are_copied_while_the_group_has_no_members_here(
    source: LocalCluster, mirror: LocalCluster, link: AdminClient
) -> None:
    topic = "clicks"
    create(source, topic)
    produce(source, topic, 10)
    link.create_mirror_topics(LINK, [topic], replication_factor=2)[topic].result(30)
    wait_until_mirrored(link, topic, [10, 0])
    commit(source, GROUP, TopicPartition(topic, 0, 7, metadata="seven"))
    with Consumer({"bootstrap.servers": mirror.bootstrap_servers, "group.id": GROUP}) as consumer:

        def committed() -> tuple[int, str | None]:
            [found] = consumer.committed([TopicPartition(topic, 0)], timeout=30)
            return found.offset, found.metadata

        wait_for(lambda: committed() == (7, "seven"), "the offset was not copied")
        consumer.subscribe([topic])
        wait_for(lambda: (m := consumer.poll(1)) is not None and m.offset() == 7, "the group does not continue at 7")


def test_offsets_of_groups_are_never_above_the_end_of_the_mirror_and_grow_with_it(
    source: LocalCluster, mirror: LocalCluster, link: AdminClient
) -> None:
    topics = ["ahead", "ahead-and-lost"]
    for topic in topics:
        create(source, topic)
        produce(source, topic, 3)
        link.create_mirror_topics(LINK, [topic], replication_factor=2)[topic].result(30)
        wait_until_mirrored(link, topic, [3, 0])
        link.pause_mirror_topics([topic])[topic].result(30)
        wait_for(lambda topic=topic: described(link, topic).state is MirrorTopicState.PAUSED, "not paused")
        produce(source, topic, 4)
    group = "ahead"
    commit(source, group, *(TopicPartition(topic, 0, 7, leader_epoch=0) for topic in topics))
    with Consumer({"bootstrap.servers": mirror.bootstrap_servers, "group.id": group}) as consumer:

        def committed() -> list[tuple[int, int | None]]:
            found = consumer.committed([TopicPartition(topic, 0) for topic in topics], timeout=30)
            return [(each.offset, each.leader_epoch) for each in found]

        wait_for(lambda: committed() == [(3, None), (3, None)], "the offsets are not those of the mirrors' ends")
        link.resume_mirror_topics(topics[:1])[topics[0]].result(30)
        wait_for(lambda: committed() == [(7, 0), (3, None)], "the offset does not grow with the mirror")
        link.failover_mirror_topics(topics[1:])[topics[1]].result(30)
        wait_for(lambda: described(link, topics[1]).state is MirrorTopicState.STOPPED, "not failed over")
        produce(mirror, topics[1], 1, first=100)
        consumer.subscribe(topics[1:])
        found: list[tuple[int | None, bytes | None]] = []

        def is_found() -> bool:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append((message.offset(), message.value()))
            return bool(found)

        wait_for(is_found, "the group does not continue")
        assert found == [(3, b"100")]


def change_settings(cluster: LocalCluster, topic: str, **values: str | None) -> None:
    """Set settings of a topic, and remove those that are None."""
    entries = [
        ConfigEntry(
            name.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in values.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.incremental_alter_configs([resource])[resource].result(30)


def own_settings(cluster: LocalCluster, topic: str) -> dict[str, str]:
    """Return the settings that are not the software's defaults."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        found = admin.describe_configs([resource])[resource].result(30)
    return {name: entry.value or "" for name, entry in found.items() if not entry.is_default}


def test_settings_of_a_mirror_follow_its_source_until_it_is_stopped(
    source: LocalCluster, mirror: LocalCluster, link: AdminClient
) -> None:
    topic = "settings"
    create(source, topic, **{"retention.ms": "100000", "segment.bytes": "1048576"})
    link.create_mirror_topics(LINK, [topic], replication_factor=2)[topic].result(30)
    change_settings(mirror, topic, min_insync_replicas="2")
    change_settings(source, topic, retention_ms=None, segment_bytes="2097152", min_insync_replicas="1")
    expected = {"segment.bytes": "2097152", "min.insync.replicas": "2"}
    wait_for(lambda: own_settings(mirror, topic) == expected, "settings do not follow the source")
    link.failover_mirror_topics([topic])[topic].result(30)
    change_settings(source, topic, segment_bytes="3145728")
    change_settings(mirror, topic, retention_ms="200000")
    other = "other"
    create(source, other, **{"retention.ms": "1000000"})
    link.create_mirror_topics(LINK, [other], replication_factor=2)[other].result(30)
    change_settings(source, other, retention_ms="2000000")
    wait_for(lambda: own_settings(mirror, other)["retention.ms"] == "2000000", "settings do not follow the source")
    assert own_settings(mirror, topic) == {**expected, "retention.ms": "200000"}
    link.failover_mirror_topics([other])[other].result(30)


def test_paused_mirror_stands_still_until_resumed(source: LocalCluster, link: AdminClient) -> None:
    topic = "views"
    create(source, topic)
    link.create_mirror_topics(LINK, [topic], replication_factor=2)[topic].result(30)
    link.pause_mirror_topics([topic])[topic].result(30)
    wait_for(lambda: described(link, topic).state is MirrorTopicState.PAUSED, "not paused")
    with Producer({"bootstrap.servers": source.bootstrap_servers}) as producer:
        producer.produce(topic, "1", partition=1)
    link.resume_mirror_topics([topic])[topic].result(30)
    wait_until_mirrored(link, topic, [0, 1])
    with pytest.raises(KafkaException, match="mirror topics, such as"):
        link.delete_cluster_link(LINK).result(30)
