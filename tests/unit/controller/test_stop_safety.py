"""The obstacles to stopping a node or a controller."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.ids import NO_BROKER, BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch, TopicId
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_foundation.requests.quorum import DescribeQuorumResponse, QuorumReplica
from tidelog_foundation.requests.stop_safety import (
    ALREADY_BELOW,
    BELOW_MIN_INSYNC_REPLICAS,
    LAST_IN_SYNC_REPLICA,
    MAX_NAMED_OBSTACLES,
    NOT_REDUNDANT,
    QUORUM_MAJORITY,
    StopObstacle,
)
from tidelog_quorum.controller.stop_safety import controller_obstacles, describe_stop_safety, node_obstacles
from tidelog_quorum.metadata.image import MetadataImage, TopicImage
from tidelog_quorum.metadata.registrations import BrokerRegistration, PartitionRegistration

ALL = (1, 2, 3)


def image_of(
    replicas: tuple[int, ...], isr: tuple[int, ...], fenced: tuple[int, ...] = (), stopping: tuple[int, ...] = ()
) -> MetadataImage:
    brokers = {
        BrokerId(i): BrokerRegistration(
            BrokerId(i), BrokerEpoch(i), b"", Endpoint("a", 1), fenced=i in fenced, in_controlled_shutdown=i in stopping
        )
        for i in ALL
    }
    members = tuple(map(BrokerId, isr))
    leader = members[0] if members else NO_BROKER
    partition = PartitionRegistration(
        tuple(map(BrokerId, replicas)), members, leader, LeaderEpoch(0), PartitionEpoch(0)
    )
    return MetadataImage(brokers=brokers, topics={"t": TopicImage("t", TopicId(b"t" * 16), {0: partition})})


def kinds(image: MetadataImage, node: int, min_isr: int) -> list[str]:
    own = TopicConfig(min_insync_replicas=min_isr)
    return [each.kind for each in node_obstacles(image, BrokerId(node), own)]


@pytest.mark.parametrize(
    ("image", "min_isr", "expected"),
    [
        (image_of(ALL, ALL), 2, []),
        (image_of(ALL, (2, 3)), 2, []),
        (image_of(ALL, (1, 2)), 2, [BELOW_MIN_INSYNC_REPLICAS]),
        (image_of(ALL, (1, 2)), 1, []),
        (image_of(ALL, (1,)), 1, [LAST_IN_SYNC_REPLICA]),
        (image_of(ALL, (1,)), 3, [LAST_IN_SYNC_REPLICA]),
        (image_of((1,), (1,)), 1, [NOT_REDUNDANT]),
        (image_of((1, 2), (1, 2)), 2, [NOT_REDUNDANT]),
        (image_of((1, 2), (1, 2)), 3, [NOT_REDUNDANT]),
        (image_of((1, 2), (1,)), 2, [LAST_IN_SYNC_REPLICA]),
        (image_of(ALL, ALL, stopping=(3,)), 2, [BELOW_MIN_INSYNC_REPLICAS]),
        (image_of(ALL, (1, 2), fenced=(2,)), 1, [LAST_IN_SYNC_REPLICA]),
    ],
)
def test_stop_of_a_node_by_the_state_of_a_partition(image: MetadataImage, min_isr: int, expected: list[str]) -> None:
    assert kinds(image, 1, min_isr) == expected


def test_partition_below_its_minimum_does_not_stand_against_the_stop_of_another_member() -> None:
    replicas = (1, 2, 3)
    image = image_of(replicas, (1, 2))
    # Three of four are required, and two are left: writes of acks=all are refused with or without node 1.
    partition = PartitionRegistration(
        (*map(BrokerId, (1, 2, 3, 4)),), (BrokerId(1), BrokerId(2)), BrokerId(1), LeaderEpoch(0), PartitionEpoch(0)
    )
    image = MetadataImage(brokers=image.brokers, topics={"t": TopicImage("t", TopicId(b"t" * 16), {0: partition})})
    found = describe_stop_safety(node_obstacles(image, BrokerId(1), TopicConfig(min_insync_replicas=3)))
    assert [each.kind for each in found.obstacles] == [ALREADY_BELOW]
    assert found.is_safe()
    assert not found.waiting_helps


@given(
    st.lists(st.sampled_from(ALL), min_size=1, unique=True),
    st.data(),
    st.integers(1, 4),
    st.sets(st.sampled_from(ALL)),
)
def test_safe_stop_takes_no_partition_below_what_it_has(
    replicas: list[int], data: st.DataObject, min_isr: int, stopping: set[int]
) -> None:
    isr = data.draw(st.lists(st.sampled_from(replicas), unique=True))
    image = image_of(tuple(replicas), tuple(isr), stopping=tuple(stopping))
    found = describe_stop_safety(node_obstacles(image, BrokerId(1), TopicConfig(min_insync_replicas=min_isr)))
    others = [i for i in isr if i != 1 and i not in stopping]
    required = min(min_isr, len(replicas))
    if found.is_safe() and 1 in isr:
        assert others
        assert len(others) >= required or len(others) + 1 < required
    if 1 not in isr or len(others) >= required:
        assert found.is_safe()


def test_obstacles_are_counted_beyond_those_that_are_named() -> None:
    obstacles = (StopObstacle(LAST_IN_SYNC_REPLICA, "t", i, (1,), 1) for i in range(MAX_NAMED_OBSTACLES + 5))
    found = describe_stop_safety(obstacles)
    assert len(found.obstacles) == MAX_NAMED_OBSTACLES
    assert [(each.kind, each.count) for each in found.counts] == [(LAST_IN_SYNC_REPLICA, MAX_NAMED_OBSTACLES + 5)]
    assert found.waiting_helps
    assert not found.is_safe()


def quorum_of(*ages_ms: int, caught_up: int = 100) -> DescribeQuorumResponse:
    voters = tuple(QuorumReplica(i, 10, Endpoint("a", 1), b"", age, caught_up) for i, age in enumerate(ages_ms, 1))
    return DescribeQuorumResponse(voters=voters)


@pytest.mark.parametrize(
    ("quorum", "expected"),
    [
        (quorum_of(0, 50, 60), []),
        (quorum_of(0, 50, 60_000), [QUORUM_MAJORITY]),
        (quorum_of(0, 50, -1), [QUORUM_MAJORITY]),
        (quorum_of(0, 50, 60, 70, -1), []),
        (quorum_of(0), [NOT_REDUNDANT]),
        (quorum_of(0, 50), [NOT_REDUNDANT]),
        (quorum_of(0, 50, 60, caught_up=60_000), [QUORUM_MAJORITY]),
    ],
)
def test_stop_of_a_controller_by_the_state_of_the_quorum(quorum: DescribeQuorumResponse, expected: list[str]) -> None:
    assert [each.kind for each in controller_obstacles(quorum, 1)] == expected


def test_controller_without_a_vote_can_stop() -> None:
    assert list(controller_obstacles(quorum_of(0, -1, -1), 9)) == []


def test_what_has_no_replica_to_spare_can_be_ignored() -> None:
    found = describe_stop_safety(node_obstacles(image_of((1,), (1,)), BrokerId(1), TopicConfig()))
    assert not found.is_safe()
    assert found.is_safe(ignores_unreplicated=True)
    assert not found.waiting_helps
