"""Elections and reassignments: what needs nothing done, and what is refused. The moves themselves need more nodes."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog import KafkaException, TopicPartition
from tidelog.admin import ElectionType, NewPartitionReassignment
from tidelog_foundation.errors import ErrorCode

Deployment = Any


def test_elect_leaders_is_not_needed_where_the_leader_is_the_right_one(cluster: Deployment) -> None:
    topic = cluster.topic(partitions=2)
    wanted = [TopicPartition(topic, 1), TopicPartition(topic, 0), TopicPartition(topic, 9)]
    for kind in ElectionType:
        outcomes = cluster.admin.elect_leaders(kind, wanted).result(30)
        codes = {key.partition: error.code for key, error in outcomes.items()}
        assert codes == {
            0: ErrorCode.ELECTION_NOT_NEEDED,
            1: ErrorCode.ELECTION_NOT_NEEDED,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert f"{topic}-9" in outcomes[TopicPartition(topic, 9)].message


def test_elect_leaders_of_all_partitions_says_nothing_of_those_that_need_none(cluster: Deployment) -> None:
    cluster.topic(partitions=3)
    assert cluster.admin.elect_leaders(ElectionType.PREFERRED).result(30) == {}
    assert cluster.admin.elect_leaders(ElectionType.PREFERRED, []).result(30) == {}


def test_reassignment_to_the_present_replicas_is_accepted_and_never_under_way(cluster: Deployment) -> None:
    topic = cluster.topic(partitions=2)
    replicas = [n.id for n in cluster.admin.describe_topics([topic])[topic].result(30).partitions[1].replicas]
    key = TopicPartition(topic, 1)
    future = cluster.admin.alter_partition_reassignments({key: NewPartitionReassignment(replicas)})[key]
    assert future.result(30) is None
    assert cluster.admin.list_partition_reassignments().result(30) == {}
    assert cluster.admin.list_partition_reassignments([key]).result(30) == {}
    assert cluster.admin.list_partition_reassignments([]).result(30) == {}


@pytest.mark.parametrize(
    ("target", "code", "text"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replica"),
        ([99], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "99"),
        ([-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "-1"),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "twice"),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment"),
    ],
)
def test_reassignment_refuses_what_is_wrong(
    cluster: Deployment, target: list[int] | None, code: ErrorCode, text: str
) -> None:
    topic = cluster.topic()
    wanted = None if target is None else NewPartitionReassignment(target)
    key, unknown = TopicPartition(topic, 0), TopicPartition(topic, 5)

    futures = cluster.admin.alter_partition_reassignments({key: wanted, unknown: wanted})

    with pytest.raises(KafkaException) as caught:
        futures[key].result(30)
    assert caught.value.code is code
    assert text in caught.value.message
    assert f"{topic}-0" in caught.value.message
    with pytest.raises(KafkaException, match="UNKNOWN_TOPIC_OR_PARTITION"):
        futures[unknown].result(30)
