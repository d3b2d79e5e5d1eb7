"""A source that loses committed records by an unclean election: its mirror loses them too, and stays equal to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from acknowledged import read_topic, wait_for
from replica_files import committed_bytes

from tidelog import AdminClient, Consumer, NewTopic, Producer, TopicPartition
from tidelog.testing import LocalCluster

pytestmark = pytest.mark.slow

LINK, TOPIC = "from-source", "orders"


@pytest.fixture(scope="module")
def source() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=1, nodes=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def mirror() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=1, nodes=2) as cluster:
        yield cluster


def produce(cluster: LocalCluster, *values: bytes) -> None:
    errors: list[object] = []
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}) as producer:
        for value in values:
            producer.produce(TOPIC, value, partition=0, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(30) == 0
    assert errors == [None] * len(values)


def values(cluster: LocalCluster) -> list[bytes | None]:
    return [message.value() for message in read_topic(cluster.bootstrap_servers, TOPIC, 1)]


def stored(cluster: LocalCluster, end: int) -> list[bytes]:
    return [committed_bytes(node.directory / "data" / f"{TOPIC}-0", end) for node in cluster.nodes.values()]


def test_mirror_follows_an_unclean_election_of_its_source_and_readers_fall_back(
    source: LocalCluster, mirror: LocalCluster
) -> None:
    with AdminClient({"bootstrap.servers": source.bootstrap_servers}) as admin:
        config = {"unclean.leader.election.enable": "true"}
        admin.create_topics([NewTopic(TOPIC, replica_assignment=[[1, 2]], config=config)])[TOPIC].result(30)
    read: list[tuple[int | None, bytes | None]] = []
    reader_settings = {
        "bootstrap.servers": mirror.bootstrap_servers,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
    }
    with (
        AdminClient({"bootstrap.servers": mirror.bootstrap_servers}) as admin,
        Consumer(reader_settings) as reader,
    ):

        def has_read(*expected: tuple[int, bytes]) -> bool:
            message = reader.poll(0.5)
            if message is not None and message.error() is None:
                read.append((message.offset(), message.value()))
            return tuple(read[-len(expected) :]) == expected

        def is_mirrored(end: int) -> bool:
            found = admin.describe_mirror_topics(LINK).result(30)[TOPIC].partitions
            return bool(found) and (found[0].high_watermark, found[0].error) == (end, None)

        # A link needs one address of the source that answers.
        admin.create_cluster_link(LINK, {"bootstrap.servers": source.kafka_bootstrap_servers}).result(30)
        admin.create_mirror_topics(LINK, [TOPIC], replication_factor=2)[TOPIC].result(30)
        reader.assign([TopicPartition(TOPIC, 0, 0)])
        produce(source, b"both")
        wait_for(lambda: has_read((0, b"both")), "the reader reads the mirror")

        assert source.nodes[2].stop() == 0
        produce(source, b"node 1", b"node 1 too", b"and node 1")
        wait_for(lambda: has_read((1, b"node 1"), (2, b"node 1 too"), (3, b"and node 1")), "it reads what will be lost")
        source.nodes[1].kill()
        source.nodes[2].start()
        wait_for(lambda: source.leader(TOPIC, 0) == 2, "node 2 leads")
        produce(source, b"node 2", b"node 2 too")

        wait_for(lambda: is_mirrored(3), "the mirror has truncated and copied")
        wait_for(lambda: has_read((1, b"node 2"), (2, b"node 2 too")), "the reader falls back to what is new")
        source.nodes[1].start()
        wait_for(lambda: values(source) == [b"both", b"node 2", b"node 2 too"], "the source is whole")
        assert values(mirror) == values(source)
        wait_for(lambda: len({*stored(source, 3), *stored(mirror, 3)}) == 1, "the replicas of both are equal")
