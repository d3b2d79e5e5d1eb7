from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.cluster import ClusterMetadata
from tidelog.cluster.bootstrap import parse_bootstrap_servers
from tidelog.v1 import log_service_pb2 as pb
from tidelog.v1.common_pb2 import Error
from tidelog_foundation.backoff import Backoff
from tidelog_foundation.errors import ErrorCode, KafkaException


def answer(leader: int, epoch: int, topic_id: bytes = b"1" * 16, partitions: int = 1) -> pb.GetMetadataResponse:
    return pb.GetMetadataResponse(
        cluster_id="c",
        controller_id=1,
        brokers=[pb.BrokerMetadata(node_id=n, host="h", port=9000 + n) for n in (1, 2, 3)],
        topics=[
            pb.TopicMetadata(
                name="t",
                topic_id=topic_id,
                partitions=[
                    pb.PartitionMetadata(index=i, leader_id=leader, leader_epoch=epoch) for i in range(partitions)
                ],
            )
        ],
    )


def test_metadata_takes_a_newer_leader_and_refuses_an_older_one() -> None:
    metadata = ClusterMetadata().apply(answer(1, 5)).apply(answer(2, 6)).apply(answer(3, 4))
    leader = metadata.leader("t", 0)
    assert leader is not None
    assert (leader.node_id, leader.address) == (2, "h:9002")


def test_metadata_starts_epochs_again_with_another_topic_id() -> None:
    metadata = ClusterMetadata().apply(answer(1, 5)).apply(answer(2, 0, b"2" * 16))
    partition = metadata.partition("t", 0)
    assert partition is not None
    assert (partition.leader_id, partition.leader_epoch) == (2, 0)


def test_metadata_keeps_partitions_that_a_lagging_node_does_not_know() -> None:
    metadata = ClusterMetadata().apply(answer(1, 1, partitions=3)).apply(answer(1, 1, partitions=2))
    assert sorted(metadata.topics["t"].partitions) == [0, 1, 2]


def test_metadata_keeps_brokers_when_a_node_knows_none_and_topics_it_was_not_asked_for() -> None:
    metadata = ClusterMetadata().apply(answer(1, 1)).apply(pb.GetMetadataResponse(cluster_id="c"))
    assert set(metadata.brokers) == {1, 2, 3}
    assert set(metadata.topics) == {"t"}
    assert not metadata.apply(pb.GetMetadataResponse(cluster_id="c"), all_topics=True).topics


def test_metadata_shows_the_error_of_a_topic_in_place_of_its_partitions() -> None:
    gone = pb.TopicMetadata(name="t", error=Error(code=3, message="gone"))
    metadata = ClusterMetadata().apply(answer(1, 1)).apply(pb.GetMetadataResponse(topics=[gone]))
    assert metadata.topics["t"].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code
    assert metadata.leader("t", 0) is None
    metadata.check_invariants()


def test_metadata_refuses_another_cluster() -> None:
    with pytest.raises(KafkaException, match=r'INCONSISTENT_CLUSTER_ID.*"c".*"d"'):
        ClusterMetadata().apply(answer(1, 1)).apply(pb.GetMetadataResponse(cluster_id="d"))


def test_metadata_has_no_leader_without_one_or_without_its_address() -> None:
    assert ClusterMetadata().apply(answer(-1, 1)).leader("t", 0) is None
    assert ClusterMetadata().apply(answer(9, 1)).leader("t", 0) is None
    assert ClusterMetadata().leader("t", 0) is None


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 3), st.integers(0, 9)), max_size=20))
def test_metadata_epochs_never_go_back(steps: list[tuple[bool, int, int]]) -> None:
    metadata = ClusterMetadata()
    newest = -1
    for hint, leader, epoch in steps:
        metadata = metadata.with_leader("t", 0, leader, epoch) if hint else metadata.apply(answer(leader, epoch))
        metadata.check_invariants()
        partition = metadata.partition("t", 0)
        if partition is not None:
            assert partition.leader_epoch >= newest
            newest = partition.leader_epoch


def test_bootstrap_servers_are_read_from_text_and_lists_without_repeats() -> None:
    assert parse_bootstrap_servers("a:1, [::1]:2,,a:1") == ("a:1", "[::1]:2")
    assert parse_bootstrap_servers(["b:3"]) == ("b:3",)


@pytest.mark.parametrize("text", ["", "host:", ":9092", "host:0", "host:70000", "host:x", "::1:9092"])
def test_bootstrap_servers_that_are_no_addresses_are_refused(text: str) -> None:
    with pytest.raises(KafkaException, match=r"INVALID_CONFIG.*bootstrap\.servers"):
        parse_bootstrap_servers(text)


def test_backoff_doubles_up_to_its_maximum_with_a_fifth_of_jitter() -> None:
    assert [Backoff(100, 1_000, lambda: 0.5).wait_ms(n) for n in (1, 2, 3, 4, 5, 99)] == [
        100,
        200,
        400,
        800,
        1000,
        1000,
    ]
    assert Backoff(100, 1_000, lambda: 0.0).wait_ms(1) == 80
    assert Backoff(100, 1_000, lambda: 1.0).wait_ms(1) == pytest.approx(120)
