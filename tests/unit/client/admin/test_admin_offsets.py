"""AdminClient.list_offsets, and what the admin client's futures and names have in common with confluent-kafka's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import confluent_kafka.admin
import pytest

from tidelog import AdminClient, IsolationLevel, KafkaException, Producer, TopicPartition
from tidelog.admin import ListOffsetsResultInfo, OffsetSpec
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode

WHERE = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("t")
        with Producer({"bootstrap.servers": running.bootstrap_servers}) as producer:
            for timestamp in (1_000, 3_000, 2_000):
                producer.produce("t", b"v", timestamp=timestamp)
        yield running


@pytest.fixture
def admin(cluster: FakeCluster) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "retry.backoff.ms": 10}) as client:
        yield client


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (OffsetSpec.earliest(), ListOffsetsResultInfo(0, -1, 0)),
        (OffsetSpec.latest(), ListOffsetsResultInfo(3, -1, 0)),
        (OffsetSpec.max_timestamp(), ListOffsetsResultInfo(1, 3_000, 0)),
        (OffsetSpec.for_timestamp(2_500), ListOffsetsResultInfo(1, 3_000, 0)),
        (OffsetSpec.for_timestamp(9_000), ListOffsetsResultInfo(-1, -1, None)),
    ],
)
def test_list_offsets_finds_what_its_spec_says(
    admin: AdminClient, spec: OffsetSpec, expected: ListOffsetsResultInfo
) -> None:
    found = admin.list_offsets({WHERE: spec}, isolation_level=IsolationLevel.READ_COMMITTED)[WHERE].result(20)
    assert (found.offset, found.timestamp) == (expected.offset, expected.timestamp)
    assert (found.leader_epoch is None) == (expected.leader_epoch is None)


def test_list_offsets_fails_alone_for_a_partition_that_is_not_there(admin: AdminClient) -> None:
    gone = TopicPartition("t", 7)
    futures = admin.list_offsets({WHERE: OffsetSpec.latest(), gone: OffsetSpec.latest()})
    assert futures[WHERE].result(20).offset == 3
    with pytest.raises(KafkaException, match='topic "t" has no partition 7, it has 1'):
        futures[gone].result(20)


def test_list_offsets_asks_again_after_an_error_that_may_pass(cluster: FakeCluster, admin: AdminClient) -> None:
    cluster.fail_next("ListOffsets", ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)
    assert admin.list_offsets({WHERE: OffsetSpec.latest()})[WHERE].result(20).offset == 3
    assert cluster.calls("ListOffsets") == 3


def test_list_offsets_refuses_a_timestamp_before_the_epoch() -> None:
    with pytest.raises(KafkaException, match="timestamp -5 is not valid"):
        OffsetSpec.for_timestamp(-5)


def test_list_offsets_refuses_what_is_no_spec(admin: AdminClient) -> None:
    with pytest.raises(TypeError, match="must be an OffsetSpec, not -1"):
        admin.list_offsets({WHERE: -1})  # type: ignore[dict-item]


def test_cluster_id_is_the_clusters(cluster: FakeCluster, admin: AdminClient) -> None:
    assert admin.cluster_id(20) == cluster.cluster_id


def test_futures_of_the_admin_client_may_be_awaited_in_any_loop(admin: AdminClient) -> None:
    async def describe() -> tuple[str, str]:
        first = await admin.describe_cluster()
        (topic,) = await asyncio.gather(*admin.describe_topics(["t"]).values())
        return first.cluster_id, topic.name

    assert asyncio.run(describe()) == ("fake-cluster", "t")
    assert asyncio.run(describe()) == ("fake-cluster", "t")


def test_admin_client_has_the_operations_of_confluent_kafka() -> None:
    theirs = {name for name in dir(confluent_kafka.admin.AdminClient) if not name.startswith("_")}
    assert theirs <= set(dir(AdminClient))
