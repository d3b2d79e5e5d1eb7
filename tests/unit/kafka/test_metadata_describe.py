"""DescribeCluster and DescribeTopicPartitions."""

import pytest
from kafka_metadata import ImageNode, broker, fenced, partition, topic_id

from tidelog_node.kafka.apis.cluster import MOST_PARTITIONS
from tidelog_node.kafka.protocol.messages.metadata import (
    NO_OPERATIONS,
    Cursor,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribedPartition,
    DescribedTopicName,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from tidelog_quorum.metadata.records import TopicRecord

ALL_TOPIC_OPERATIONS = 0b1101_1111_1000
ALL_CLUSTER_OPERATIONS = 0b1_1111_1010_0000


def three_brokers():
    return ImageNode(broker(1, "PLAINTEXT", rack="r"), broker(2, "PLAINTEXT", "INTERNAL"), broker(3, "PLAINTEXT"))


def describe_cluster(node, version=2, listener="PLAINTEXT", **asked):
    return node.ask(DescribeClusterRequest(**asked), version, DescribeClusterResponse, listener)


def describe_topics(node, *names, limit=2_000, cursor=None, listener="PLAINTEXT"):
    request = DescribeTopicPartitionsRequest([DescribedTopicName(n) for n in names], limit, cursor)
    return node.ask(request, 0, DescribeTopicPartitionsResponse, listener)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_cluster_has_the_brokers_that_are_alive_and_have_the_listener(version):
    node = three_brokers()
    node.add(fenced(3))
    response = describe_cluster(node, version)
    shown = [(b.broker_id, b.host, b.port, b.rack, b.is_fenced) for b in response.brokers]
    assert shown == [(1, "plaintext", 1, "r", False), (2, "plaintext", 2, None, False)]
    assert (response.cluster_id, response.error_code, response.error_message) == ("c1", 0, None)
    assert response.controller_id in (1, 2)
    assert response.cluster_authorized_operations == NO_OPERATIONS
    inside = describe_cluster(node, version, "INTERNAL")
    assert [(b.broker_id, b.host) for b in inside.brokers] == [(2, "internal")]
    assert inside.controller_id == 2
    assert (describe_cluster(node, version, "ELSEWHERE")).controller_id == -1


def test_cluster_has_fenced_brokers_when_they_are_asked_for():
    node = three_brokers()
    node.add(fenced(3))
    response = describe_cluster(node, include_fenced_brokers=True)
    assert [(b.broker_id, b.is_fenced) for b in response.brokers] == [(1, False), (2, False), (3, True)]


def test_cluster_tells_what_a_client_may_do_when_it_asks():
    response = describe_cluster(three_brokers(), include_cluster_authorized_operations=True)
    assert response.cluster_authorized_operations == ALL_CLUSTER_OPERATIONS


@pytest.mark.parametrize(("endpoint_type", "code"), [(2, 114), (0, 115), (77, 115)])
def test_cluster_of_controllers_is_not_described_by_a_broker(endpoint_type, code):
    for version in (1, 2):
        response = describe_cluster(three_brokers(), version, endpoint_type=endpoint_type)
        assert (response.error_code, response.cluster_id, response.brokers) == (code, "", [])
        assert ("CONTROLLER" if endpoint_type == 2 else str(endpoint_type)) in response.error_message


def with_topics():
    node = three_brokers()
    node.add_topic("b", (1, 2), (2, 3), (3, 1))
    node.add_topic("a", (1,), (2,))
    node.add_topic("c", (3,))
    return node


def shown(response):
    return {t.name: [p.partition_index for p in t.partitions] for t in response.topics}


def test_topic_partitions_are_described_with_elrs_and_unreachable_leaders():
    node = three_brokers()
    node.add(
        TopicRecord("a", topic_id("a")),
        partition("a", 0, (1, 2, 3), isr=(1,), epoch=7, eligible_leader_replicas=(2,)),
        partition("a", 1, (1, 2), isr=(), leader=-1, epoch=3, last_known_elr=(1,)),
    )
    response = describe_topics(node, "a", "b", "no/name")
    a, b, invalid = response.topics
    assert (a.name, a.topic_id, a.error_code, a.topic_authorized_operations) == (
        "a",
        topic_id("a"),
        0,
        ALL_TOPIC_OPERATIONS,
    )
    assert a.partitions == [
        DescribedPartition(0, 0, 1, 7, [1, 2, 3], [1], [2], [], []),
        DescribedPartition(0, 1, -1, 3, [1, 2], [], [], [1], []),
    ]
    assert (b.name, b.error_code, b.topic_id, b.partitions) == ("b", 3, bytes(16), [])
    assert (invalid.name, invalid.error_code) == ("no/name", 17)
    assert response.next_cursor is None
    [inside] = (describe_topics(node, "a", listener="INTERNAL")).topics
    assert [(p.error_code, p.leader_id, p.offline_replicas) for p in inside.partitions] == [
        (0, -1, [1, 3]),
        (0, -1, [1]),
    ]


def test_topic_partitions_of_all_topics_come_in_pages_of_the_limit():
    node = with_topics()
    pages, cursor = [], None
    while True:
        response = describe_topics(node, limit=2, cursor=cursor)
        pages.append(shown(response))
        cursor = response.next_cursor
        if cursor is None:
            break
    assert pages == [{"a": [0, 1]}, {"b": [0, 1]}, {"b": [2], "c": [0]}]


def test_topic_partitions_of_named_topics_begin_at_the_cursor():
    node = with_topics()
    response = describe_topics(node, "c", "b", "a", limit=3, cursor=Cursor("b", 1))
    assert shown(response) == {"b": [1, 2], "c": [0]}
    assert response.next_cursor is None
    response = describe_topics(node, "missing", "c", limit=0)
    assert (shown(response), response.next_cursor) == ({"c": [0]}, Cursor("missing", 0))


def test_topic_partitions_go_on_where_the_topic_of_the_cursor_was_deleted():
    response = describe_topics(with_topics(), cursor=Cursor("aa", 1))
    assert shown(response) == {"b": [0, 1, 2], "c": [0]}
    response = describe_topics(with_topics(), cursor=Cursor("b", 9))
    assert shown(response) == {"b": [], "c": [0]}


@pytest.mark.parametrize("cursor", [Cursor("d", 0), Cursor("a", -1)])
def test_topic_partitions_refuse_a_cursor_that_cannot_be(cursor):
    response = describe_topics(with_topics(), "a", "b", cursor=cursor)
    assert [(t.name, t.error_code, t.partitions) for t in response.topics] == [("a", 42, []), ("b", 42, [])]


def test_topic_partitions_have_no_more_than_the_nodes_limit():
    node = three_brokers()
    node.add_topic("a", *[(1,)] * (MOST_PARTITIONS + 5))
    response = describe_topics(node, limit=1_000_000)
    assert len(response.topics[0].partitions) == MOST_PARTITIONS
    assert response.next_cursor == Cursor("a", MOST_PARTITIONS)
