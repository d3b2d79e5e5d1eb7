"""ElectLeaders and partition reassignments in all their versions, against a controller's core."""

import pytest
from kafka_admin import AdminNode, name_of, versions_of

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.kafka.protocol.messages.replicas import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from tidelog_quorum.metadata.records import PartitionChangeRecord

TIMED_OUT = error_for(ErrorCode.REQUEST_TIMED_OUT, "no controller answered")
PREFERRED, UNCLEAN = 0, 1


def elect(node, topics, kind=PREFERRED, version=2):
    """Return (error, {(topic, index): error})."""
    asked = None if topics is None else [TopicPartitions(name, list(indexes)) for name, indexes in topics.items()]
    response = node.ask(ElectLeadersRequest(kind, asked, 5_000), version, ElectLeadersResponse)
    results = {
        (t.topic, p.partition_id): name_of(p.error_code)
        for t in response.replica_election_results
        for p in t.partition_result
    }
    return name_of(response.error_code), results


def node_led_by_others():
    """A topic of two partitions whose second is not led by its preferred replica."""
    node = AdminNode(1, 2)
    topic_id = node.create("t", [(1, 2), (1, 2)])
    core = node.controller.core
    node.controller.do(lambda *_: _Records(PartitionChangeRecord(topic_id, 1, leader=2)), None)
    assert [core.latest.partition("t", i).leader for i in (0, 1)] == [1, 2]
    return node


class _Records:
    preparations = ()
    response = None

    def __init__(self, *records):
        self.records = records


@pytest.mark.parametrize("version", versions_of(ElectLeadersRequest))
def test_elect_leaders_elects_the_preferred_ones(version):
    node = node_led_by_others()
    assert elect(node, {"t": [0, 1, 2], "x": [0]}, version=version) == (
        None,
        {
            ("t", 0): "ELECTION_NOT_NEEDED",
            ("t", 1): None,
            ("t", 2): "UNKNOWN_TOPIC_OR_PARTITION",
            ("x", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        },
    )
    assert node.image.partition("t", 1).leader == 1


@pytest.mark.parametrize("version", versions_of(ElectLeadersRequest))
def test_elect_leaders_of_all_partitions_answers_for_those_that_needed_it(version):
    assert elect(node_led_by_others(), None, version=version) == (None, {("t", 1): None})


def test_elect_leaders_elects_uncleanly_only_where_nobody_leads():
    node = AdminNode(1, 2)
    topic_id = node.create("t", [(1, 2), (1, 2)])
    node.controller.do(lambda *_: _Records(PartitionChangeRecord(topic_id, 0, isr=(1,))), None)
    node.controller.fence(1)
    assert node.image.partition("t", 0).leader == -1
    assert elect(node, {"t": [0, 1]}, UNCLEAN, version=1) == (None, {("t", 0): None, ("t", 1): "ELECTION_NOT_NEEDED"})
    assert node.image.partition("t", 0).leader == 2
    assert elect(node, {"t": [0]}, PREFERRED) == (None, {("t", 0): "PREFERRED_LEADER_NOT_AVAILABLE"})


@pytest.mark.parametrize("kind", [-1, 2])
def test_elect_leaders_refuses_another_type_of_election(kind):
    assert elect(AdminNode(1), {"t": [0]}, kind) == ("INVALID_REQUEST", {("t", 0): "INVALID_REQUEST"})


def test_elect_leaders_that_fails_whole_says_so_at_the_top_and_for_each_partition():
    node = AdminNode(1)
    node.controller.failure = TIMED_OUT
    both = {("t", 0): "REQUEST_TIMED_OUT", ("t", 1): "REQUEST_TIMED_OUT"}
    assert elect(node, {"t": [0, 1]}) == ("REQUEST_TIMED_OUT", both)
    assert elect(node, {"t": [0, 1]}, version=0) == (None, both)
    assert elect(node, None) == ("REQUEST_TIMED_OUT", {})


def reassign(node, targets, version=1, allows_factor=True):
    """Move {(topic, index): replicas or None}; returns (error, {(topic, index): error})."""
    topics = {}
    for (name, index), replicas in targets.items():
        topics.setdefault(name, ReassignableTopic(name)).partitions.append(ReassignablePartition(index, replicas))
    request = AlterPartitionReassignmentsRequest(5_000, allows_factor, list(topics.values()))
    response = node.ask(request, version, AlterPartitionReassignmentsResponse)
    assert response.allow_replication_factor_change is (allows_factor or version == 0)
    assert (response.error_message is None) is (response.error_code == 0)
    results = {(t.name, p.partition_index): name_of(p.error_code) for t in response.responses for p in t.partitions}
    return name_of(response.error_code), results


def ongoing(node, topics=None):
    """Return {(topic, index): (replicas, adding, removing)}."""
    asked = None if topics is None else [ListPartitionReassignmentsTopics(n, list(i)) for n, i in topics.items()]
    request = ListPartitionReassignmentsRequest(5_000, asked)
    response = node.ask(request, 0, ListPartitionReassignmentsResponse)
    assert (response.error_code, response.error_message) == (0, None)
    return {
        (t.name, p.partition_index): (p.replicas, p.adding_replicas, p.removing_replicas)
        for t in response.topics
        for p in t.partitions
    }


@pytest.mark.parametrize("version", versions_of(AlterPartitionReassignmentsRequest))
def test_reassignments_begin_are_listed_and_cancelled(version):
    node = AdminNode(1, 2)
    node.create("t", [(1,), (1,)])
    assert reassign(node, {("t", 0): [2], ("t", 1): [1, 2]}, version) == (None, {("t", 0): None, ("t", 1): None})
    both = {("t", 0): ([2, 1], [2], [1]), ("t", 1): ([1, 2], [2], [])}
    assert ongoing(node) == both
    assert ongoing(node, {"t": [1, 5], "x": [0]}) == {("t", 1): both["t", 1]}
    assert ongoing(node, {}) == {}
    assert reassign(node, {("t", 0): None}, version) == (None, {("t", 0): None})
    assert ongoing(node) == {("t", 1): both["t", 1]}


def test_reassignments_are_refused_each_with_its_own_error():
    node = AdminNode(1, 2)
    node.create("t", [(1,), (1,), (1,), (1,)])
    targets = {("t", 0): [], ("t", 1): [9], ("t", 2): None, ("t", 3): [1, 2], ("x", 0): [1]}
    assert reassign(node, targets, allows_factor=False) == (
        None,
        {
            ("t", 0): "INVALID_REPLICA_ASSIGNMENT",
            ("t", 1): "INVALID_REPLICA_ASSIGNMENT",
            ("t", 2): "NO_REASSIGNMENT_IN_PROGRESS",
            ("t", 3): "INVALID_REPLICATION_FACTOR",
            ("x", 0): "UNKNOWN_TOPIC_OR_PARTITION",
        },
    )


def test_reassignments_that_fail_whole_say_so_at_the_top_and_for_each_partition():
    node = AdminNode(1)
    node.controller.failure = TIMED_OUT
    assert reassign(node, {("t", 0): [1]}) == ("REQUEST_TIMED_OUT", {("t", 0): "REQUEST_TIMED_OUT"})
    response = node.ask(ListPartitionReassignmentsRequest(), 0, ListPartitionReassignmentsResponse)
    assert (name_of(response.error_code), response.error_message) == ("REQUEST_TIMED_OUT", "no controller answered")
