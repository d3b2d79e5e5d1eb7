"""The clusters that the contract is held against: the node in memory, and real processes."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from contract_security import SECURITY
from group_members import Member

from tidelog import AdminClient, Consumer, NewTopic, Producer, TopicPartition
from tidelog.cluster import LATEST_TIMESTAMP
from tidelog.cluster.config import ClientConfig
from tidelog.message import Message
from tidelog.testing import FakeCluster, LocalCluster
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.config import parse_config
from tidelog_foundation.transport import run_sync

_serial = itertools.count()
_CONFIG = {"auto.create.topics.enable": False, "transaction.two.phase.commit.enable": True}
"""The fake's defaults: what is asked of a topic that is not there shows that it is not."""
_QUICK_GROUPS = {
    "group.min.session.timeout.ms": 500,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 100,
}


class Deployment:
    """One running cluster, with shorthands for what every test of the contract does."""

    def __init__(self, cluster: FakeCluster | LocalCluster) -> None:
        self._cluster = cluster
        self.is_secured = SECURITY is not None and isinstance(cluster, LocalCluster)
        cluster.__enter__()
        self.bootstrap_servers = cluster.bootstrap_servers
        self.cluster_id = cluster.cluster_id
        self.settings = cluster.client_settings()
        self.admin = AdminClient(self.settings)
        self.client = parse_config(ClientConfig, self.settings).cluster_client()

    def close(self) -> None:
        self.admin.close()
        run_sync(self.client.close())
        self._cluster.__exit__(None, None, None)

    def topic(self, partitions: int = 1, **config: str) -> str:
        name = f"contract-{next(_serial)}"
        topic = NewTopic(name, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
        self.admin.create_topics([topic])[name].result(30)
        return name

    def create(self, *names: str) -> None:
        """Create topics of one partition each, of these names."""
        for future in self.admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
            future.result(30)

    def producer(self, **config: Any) -> Producer:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        return Producer({**self.settings, **settings})

    def consumer(self, **config: Any) -> Consumer:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        return Consumer({**self.settings, **settings})

    def send(self, topic: str, values: list[bytes | str], partition: int = 0, **config: Any) -> list[Message]:
        """Produce values to one partition; returns the delivered messages, all without an error."""
        reports: list[tuple[Any, Message]] = []
        with self.producer(**config) as producer:
            for value in values:
                producer.produce(topic, value, partition=partition, on_delivery=lambda e, m: reports.append((e, m)))
            assert producer.flush(30) == 0
        assert [error for error, _ in reports] == [None] * len(values)
        return [message for _, message in reports]

    def read(self, topic: str, count: int, partition: int = 0, offset: int = 0) -> list[Message]:
        """Return ``count`` messages from ``offset`` on."""
        with self.consumer() as consumer:
            consumer.assign([TopicPartition(topic, partition, offset)])
            return consumer.consume(count, 30)

    def end_offset(self, topic: str, partition: int = 0) -> int:
        found = run_sync(self.client.list_offsets({(topic, partition): LATEST_TIMESTAMP}))
        return int(found[topic, partition].offset)

    def raw_produce(self, topic: str, records: bytes) -> pb.ProducePartitionResult:
        """Send one batch as it is to partition 0."""
        request = pb.ProduceRequest(
            acks=pb.ACKS_ALL,
            timeout_ms=5_000,
            topics=[pb.ProduceTopic(name=topic, partitions=[pb.ProducePartition(index=0, records=records)])],
        )

        async def call() -> pb.ProduceResponse:
            leader = await self.client.leader(topic, 0)
            response: pb.ProduceResponse = await self.client.connection(leader.node_id).log.Produce(request, timeout=10)
            return response

        return run_sync(call(), 20).topics[0].partitions[0]

    def raw_fetch(self, topic: str, offset: int = 0, max_bytes: int = 1_000, **fields: Any) -> pb.FetchResponse:
        """Fetch from partition 0 with further fields of the request."""
        item = pb.FetchPartition(index=0, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = pb.FetchRequest(topics=[pb.FetchTopic(name=topic, partitions=[item])], max_bytes=max_bytes, **fields)

        async def call() -> pb.FetchResponse:
            leader = await self.client.leader(topic, 0)
            response: pb.FetchResponse = await self.client.fetch(leader.node_id, request)
            return response

        return run_sync(call(), 20)

    def raw_list_offset(self, topic: str, timestamp_ms: int, **fields: Any) -> pb.ListOffsetsPartitionResult:
        """Look up one offset of partition 0 with further fields of the request."""
        item = pb.ListOffsetsPartition(index=0, timestamp_ms=timestamp_ms)
        request = pb.ListOffsetsRequest(topics=[pb.ListOffsetsTopic(name=topic, partitions=[item])], **fields)

        async def call() -> pb.ListOffsetsResponse:
            leader = await self.client.leader(topic, 0)
            log = self.client.connection(leader.node_id).log
            response: pb.ListOffsetsResponse = await log.ListOffsets(request, timeout=10)
            return response

        return run_sync(call(), 20).topics[0].partitions[0]


@pytest.fixture(scope="module", params=["fake", "local"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    with contextlib.closing(_deploy(request.param, _CONFIG)) as deployment:
        yield deployment


@pytest.fixture(scope="module", params=["fake", "local"])
def group_cluster(request: pytest.FixtureRequest) -> Iterator[Deployment]:
    """A cluster with consumer groups, whose sessions and heartbeats may be short."""
    with contextlib.closing(_deploy(request.param, {**_CONFIG, **_QUICK_GROUPS})) as deployment:
        yield deployment


def _deploy(kind: str, config: dict[str, Any]) -> Deployment:
    if kind == "local":
        return Deployment(LocalCluster(controllers=1, nodes=1, config=config, security=SECURITY))
    return Deployment(FakeCluster())


@pytest.fixture
def join(group_cluster: Deployment) -> Iterator[Callable[..., Member]]:
    """Makes members of one group, subscribed when topics are given; closes what a test leaves open."""
    group = f"group-{next(_serial)}"
    with contextlib.ExitStack() as open_members:

        def make(*topics: str, **config: Any) -> Member:
            member = Member(group_cluster.settings, group, **config)
            open_members.callback(member.consumer.close)
            return member.subscribe(*topics) if topics else member

        yield make
