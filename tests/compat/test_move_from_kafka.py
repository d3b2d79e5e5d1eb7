"""The way off Apache Kafka without downtime: link, consumers move, promote, producers move, all under load.

Nothing is lost, nothing is there twice, and every offset is equal. Apache Kafka is unmodified, and so are the clients.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import pytest
from acknowledged import wait_for
from compat.cluster import Deployment

from tidelog.admin import AdminClient, MirrorTopicState
from tidelog.testing import LocalCluster
from tidelog_foundation.records import iter_headers

pytestmark = pytest.mark.compat

PARTITIONS = 3
TOPIC, GROUP, LINK = "orders", "billing", "from-kafka"
FILTERS = '{"groupFilters": [{"name": "*", "patternType": "LITERAL", "filterType": "INCLUDE"}]}'
SYNC_MS = 200
MOST_GAP_S = 2.0
Read = tuple[int, int, int, bytes, bytes]
"""A record: its partition, offset and timestamp, its key and its value."""


@pytest.fixture(scope="module")
def tidelog() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=1, nodes=2) as cluster:
        yield cluster


class Writer:
    """A thread that writes one numbered record per partition in each transaction, and aborts each fifth."""

    def __init__(self, servers: str, first: int) -> None:
        self.committed: list[int] = []
        self.next = first
        self.first_commit_s = 0.0
        settings = {"bootstrap.servers": servers, "transactional.id": "writer", "linger.ms": 0}
        self._producer = confluent_kafka.Producer(settings)
        self._failure: confluent_kafka.KafkaException | None = None
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer")
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current transaction."""
        self._stops.set()
        self._thread.join(60)
        assert self._failure is None, self._failure

    def wait_for_more(self, count: int) -> None:
        """Wait until ``count`` more transactions have been committed."""
        goal = len(self.committed) + count
        wait_for(lambda: self._failure is not None or len(self.committed) >= goal, "the writer does not go on")
        assert self._failure is None, self._failure

    def _run(self) -> None:
        try:
            self._producer.init_transactions(30)
            while not self._stops.is_set():
                self._transact(self.next)
                self.next += 1
        except confluent_kafka.KafkaException as error:
            self._failure = error

    def _transact(self, number: int) -> None:
        producer = self._producer
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, f"{number}", key=f"{number % 7}", partition=partition)
        if number % 5 == 4:
            producer.abort_transaction(30)
            return
        producer.commit_transaction(30)
        self.committed.append(number)
        self.first_commit_s = self.first_commit_s or time.monotonic()


class Reader:
    """A thread with a member of the group, which commits what it has read before it stops."""

    def __init__(self, servers: str, into: list[Read]) -> None:
        settings = {
            "bootstrap.servers": servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        self._consumer = confluent_kafka.Consumer(settings)
        self._consumer.subscribe([TOPIC])
        self._read = into
        self._stops = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader")
        self._thread.start()

    def stop(self) -> None:
        """Commit the position and leave the group."""
        self._stops.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stops.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self._read.append(record_of(message))
        positions = self._consumer.position(self._consumer.assignment())
        self._consumer.commit(offsets=[p for p in positions if p.offset >= 0], asynchronous=False)
        self._consumer.close()


def record_of(message: Any) -> Read:
    return message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value()


def read_all(servers: str, ends: list[int], isolation: str) -> list[Read]:
    """Return the records of all partitions below these offsets."""
    settings = {
        "bootstrap.servers": servers,
        "group.id": "all",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    found: list[Read] = []
    consumer = confluent_kafka.Consumer(settings)
    consumer.assign([confluent_kafka.TopicPartition(TOPIC, p, 0) for p in range(PARTITIONS)])
    ended: set[int] = set()
    deadline = time.monotonic() + 60
    while len(ended) < PARTITIONS:
        assert time.monotonic() < deadline, f"partitions without an end: {ended}"
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
        elif message.offset() < ends[message.partition()]:
            found.append(record_of(message))
    consumer.close()
    return sorted(found)


def stored(folder: Path, end: int) -> bytes:
    """Return the batches of a partition's folder below an offset, over all segments."""
    data = b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))
    size = 0
    for position, header in iter_headers(data):
        if header.base_offset >= end or not header.record_count:
            break
        size = position + header.size_in_bytes
    return data[:size]


def lag_of(admin: AdminClient) -> int | None:
    return admin.describe_mirror_topics(LINK).result(30)[TOPIC].lag


def test_move_from_kafka_loses_nothing_doubles_nothing_and_keeps_every_offset(
    kafka: Deployment, tidelog: LocalCluster
) -> None:
    kafka.create(TOPIC, PARTITIONS, 1, cleanup_policy="delete", retention_ms=-1)
    read: list[Read] = []
    writer, reader = Writer(kafka.servers, 0), Reader(kafka.servers, read)
    writer.wait_for_more(50)
    settings = {
        "bootstrap.servers": kafka.servers,
        "consumer.offset.sync.enable": "true",
        "consumer.offset.sync.ms": str(SYNC_MS),
        "consumer.offset.group.filters": FILTERS,
    }
    with AdminClient({"bootstrap.servers": tidelog.bootstrap_servers}) as admin:
        admin.create_cluster_link(LINK, settings).result(30)
        admin.create_mirror_topics(LINK, [TOPIC], replication_factor=2)[TOPIC].result(30)
        wait_for(lambda: lag_of(admin) is not None, "the mirror does not begin")
        writer.wait_for_more(50)

        reader.stop()
        moved = positions(kafka.servers)
        wait_for(lambda: positions(tidelog.kafka_bootstrap_servers) == moved, "the group's offsets were not copied")
        wait_for(lambda: all(end >= moved[p] for p, end in enumerate(ends_of(tidelog))), "the mirror lags")
        reader = Reader(tidelog.kafka_bootstrap_servers, read)
        writer.wait_for_more(50)

        writer.stop()
        stopped_s = time.monotonic()
        admin.promote_mirror_topics([TOPIC])[TOPIC].result(30)
        wait_for(
            lambda: admin.describe_mirror_topics(LINK).result(30)[TOPIC].state is MirrorTopicState.STOPPED,
            "the mirror was not promoted",
        )
        promoted_s = time.monotonic()
        after = Writer(tidelog.kafka_bootstrap_servers, writer.next)
        after.wait_for_more(50)
        after.stop()
    gap_s = after.first_commit_s - stopped_s
    print(f"promoted after {promoted_s - stopped_s:.3f} s, first commit after {gap_s:.3f} s")
    committed = [*writer.committed, *after.committed]
    wait_for(lambda: len(read) >= PARTITIONS * len(committed), f"{len(read)} records read of {len(committed)} each")
    reader.stop()

    by_partition: defaultdict[int, list[int]] = defaultdict(list)
    for partition, _, _, _, value in read:
        by_partition[partition].append(int(value))
    assert dict(by_partition) == dict.fromkeys(range(PARTITIONS), committed), "lost, doubled or out of order"
    ends = [kafka.end_offset(TOPIC, p) for p in range(PARTITIONS)]
    for isolation in ("read_committed", "read_uncommitted"):
        of_kafka = read_all(kafka.servers, ends, isolation)
        assert read_all(tidelog.kafka_bootstrap_servers, ends, isolation) == of_kafka
    for partition, end in enumerate(ends):
        [folder] = kafka.data.rglob(f"{TOPIC}-{partition}")
        for node in tidelog.nodes.values():
            copy = node.directory / "data" / f"{TOPIC}-{partition}"
            assert stored(copy, end) == stored(folder, end), f"{copy} differs from the log of Apache Kafka"
    assert gap_s < MOST_GAP_S


def positions(servers: str) -> list[int]:
    """Return the committed offsets of the group; -1001 where there is none."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    try:
        wanted = [confluent_kafka.TopicPartition(TOPIC, p) for p in range(PARTITIONS)]
        return [p.offset for p in consumer.committed(wanted, timeout=30)]
    finally:
        consumer.close()


def ends_of(cluster: LocalCluster) -> list[int]:
    """Return the high watermarks of the mirror, -1 where the leader has not answered."""
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        found = admin.describe_mirror_topics(LINK).result(30)[TOPIC].partitions
        return [found[p].high_watermark if p in found else -1 for p in range(PARTITIONS)]
