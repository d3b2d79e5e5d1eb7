"""Metadata in all its versions: what the clients of a listener are told of brokers, topics and leaders."""

import asyncio

import pytest
from kafka_metadata import ImageNode, broker, fenced, partition, topic_id

from tidelog_foundation.errors import ErrorCode
from tidelog_node.kafka.protocol.messages.metadata import (
    NO_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from tidelog_quorum.metadata.records import NoOpRecord, PartitionChangeRecord, RemoveTopicRecord, TopicRecord

VERSIONS = range(14)
LAST = 13
ALL_TOPIC_OPERATIONS = 0b1101_1111_1000
ALL_CLUSTER_OPERATIONS = 0b1_1111_1010_0000


def three_brokers(**more):
    records = [broker(i, "PLAINTEXT", rack=f"r{i}") for i in (1, 2, 3)]
    return ImageNode(*records, **more)


def named(*names, **more):
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names], **more)


def ask(node, request, version=LAST, listener="PLAINTEXT"):
    return node.ask(request, version, MetadataResponse, listener)


def all_topics(version):
    return MetadataRequest([] if version == 0 else None)


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_has_brokers_topics_and_partitions(version):
    node = three_brokers()
    node.add_topic("a", (1, 2), (2, 3))
    node.add_topic("__consumer_offsets", (3,))
    response = ask(node, all_topics(version), version)

    racks = ["r1", "r2", "r3"] if version >= 1 else [None] * 3
    assert [(b.node_id, b.host, b.port, b.rack) for b in response.brokers] == [
        (i, "plaintext", i, rack) for i, rack in zip((1, 2, 3), racks, strict=True)
    ]
    assert response.cluster_id == ("c1" if version >= 2 else None)
    assert response.controller_id in ((1, 2, 3) if version >= 1 else (-1,))
    offsets, a = response.topics
    assert (offsets.name, offsets.is_internal, offsets.error_code) == ("__consumer_offsets", version >= 1, 0)
    assert (a.name, a.is_internal, a.error_code) == ("a", False, 0)
    assert a.topic_id == (topic_id("a") if version >= 10 else bytes(16))
    epoch = 0 if version >= 7 else -1
    assert a.partitions == [
        MetadataResponsePartition(0, 0, 1, epoch, [1, 2], [1, 2], []),
        MetadataResponsePartition(0, 1, 2, epoch, [2, 3], [2, 3], []),
    ]
    assert response.cluster_authorized_operations == a.topic_authorized_operations == NO_OPERATIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_with_an_empty_list_is_of_all_topics_in_version_zero_alone(version):
    node = three_brokers()
    node.add_topic("a", (1,))
    response = ask(node, MetadataRequest([]), version)
    assert [t.name for t in response.topics] == (["a"] if version == 0 else [])
    assert len(response.brokers) == 3


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_names_what_is_wrong_with_topics_that_are_not_there(version):
    node = three_brokers()
    node.add_topic("a", (1,))
    response = ask(node, named("b", "a", "no/name", "b"), version)
    shown = [(t.name, ErrorCode.of(t.error_code), len(t.partitions)) for t in response.topics]
    assert shown == [
        ("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
        ("a", ErrorCode.NONE, 1),
        ("no/name", ErrorCode.INVALID_TOPIC_EXCEPTION, 0),
    ]
    assert {t.topic_id for t in response.topics if t.error_code} == {bytes(16)}


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_asks_for_topics_to_be_created_where_client_and_node_allow_it(version):
    node = three_brokers()
    node.add_topic("a", (1,))
    ask(node, named("a", "new", "no/name"), version)
    assert node.wanted == ["new"]
    node.wanted.clear()
    ask(node, named("new", allow_auto_topic_creation=False), version)
    # Before version 4 no client can say that it does not want that.
    assert node.wanted == (["new"] if version < 4 else [])

    without = three_brokers(creates=False)
    assert ask(without, named("new"), version).topics[0].error_code == 3


def test_metadata_takes_topic_ids_and_then_looks_at_no_names():
    node = three_brokers()
    node.add_topic("a", (1,))
    unknown = b"x" * 16
    topics = [MetadataRequestTopic(topic_id("a"), None), MetadataRequestTopic(unknown, None)]
    topics += [MetadataRequestTopic(topic_id("a"), None), MetadataRequestTopic(name="b")]
    for version in (12, 13):
        response = ask(node, MetadataRequest(topics), version)
        assert [(t.name, t.topic_id, t.error_code) for t in response.topics] == [
            (None, unknown, 100),
            ("a", topic_id("a"), 0),
        ]
    assert node.wanted == []


@pytest.mark.parametrize(
    ("version", "asked"),
    [
        (10, MetadataRequestTopic(topic_id("a"), "a")),
        (11, MetadataRequestTopic(topic_id("a"), None)),
        (11, MetadataRequestTopic(name=None)),
        (12, MetadataRequestTopic(name=None)),
        (13, MetadataRequestTopic(name=None)),
    ],
)
def test_metadata_refuses_ids_before_their_time_and_topics_without_any_name(version, asked):
    node = three_brokers()
    node.add_topic("a", (1,))
    response = ask(node, MetadataRequest([asked]), version)
    [shown] = response.topics
    assert (shown.error_code, shown.name, shown.topic_id) == (42, asked.name or "", asked.topic_id)
    assert response.error_code == (42 if version >= 13 else 0)
    assert response.brokers == []


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_of_a_partition_without_a_leader(version):
    node = three_brokers()
    node.add(TopicRecord("a", topic_id("a")), partition("a", 0, (1, 2), isr=(2,), leader=-1, epoch=5))
    [topic] = ask(node, named("a"), version).topics
    [shown] = topic.partitions
    assert (shown.error_code, shown.leader_id) == (5, -1)
    assert shown.leader_epoch == (5 if version >= 7 else -1)
    assert (shown.replica_nodes, shown.isr_nodes) == ([1, 2], [2])


@pytest.mark.parametrize("version", VERSIONS)
def test_metadata_shows_only_brokers_with_the_listener_of_the_caller(version):
    node = ImageNode(broker(1, "PLAINTEXT", "INTERNAL"), broker(2, "PLAINTEXT"), broker(3, "INTERNAL", fenced=True))
    node.add_topic("a", (2, 1), (1, 2))
    response = ask(node, named("a"), version, "INTERNAL")
    assert [(b.node_id, b.host, b.port) for b in response.brokers] == [(1, "internal", 1)]
    assert response.controller_id == (1 if version >= 1 else -1)
    led_by_2, led_by_1 = response.topics[0].partitions
    error = 72 if version >= 6 else 5
    assert (led_by_2.error_code, led_by_2.leader_id) == (error, -1)
    # Version 0 has no list of the brokers that clients do without.
    expected = (9, [1]) if version == 0 else (0, [1, 2])
    assert (led_by_1.error_code, led_by_1.replica_nodes) == expected
    assert led_by_1.offline_replicas == ([2] if version >= 5 else [])


def test_metadata_of_a_leader_that_is_not_registered_has_none():
    node = three_brokers()
    node.add(TopicRecord("a", topic_id("a")), partition("a", 0, (1, 9), leader=9))
    [topic] = ask(node, named("a")).topics
    assert topic.partitions == [MetadataResponsePartition(5, 0, -1, 0, [1, 9], [1, 9], [9])]


def test_metadata_calls_replicas_offline_on_fenced_and_unknown_brokers_and_lost_directories():
    directory, lost = b"d" * 16, b"e" * 16
    records = [broker(1, "PLAINTEXT", log_dirs=(directory,)), broker(2, "PLAINTEXT"), broker(3, "PLAINTEXT")]
    node = ImageNode(*records, fenced(3))
    directories = (directory, directory, directory, directory)
    node.add(TopicRecord("a", topic_id("a")), partition("a", 0, (2, 1, 3, 4), isr=(2,), directories=directories))
    node.add(partition("a", 1, (2, 1), isr=(2,), directories=(directory, lost)))
    [topic] = ask(node, named("a")).topics
    assert [p.offline_replicas for p in topic.partitions] == [[3, 4], [1]]


def test_metadata_tells_what_a_client_may_do_when_it_asks():
    node = three_brokers()
    node.add_topic("a", (1,))
    for version in (8, 9, 10, 11, 13):
        request = named("a", "b", include_topic_authorized_operations=True)
        request.include_cluster_authorized_operations = True
        response = ask(node, request, version)
        assert {t.topic_authorized_operations for t in response.topics} == {ALL_TOPIC_OPERATIONS}
        assert response.cluster_authorized_operations == (ALL_CLUSTER_OPERATIONS if version <= 10 else NO_OPERATIONS)
        # What was asked for is not kept for those who did not ask.
        plain = ask(node, named("a"), version)
        assert plain.topics[0].topic_authorized_operations == NO_OPERATIONS


def test_metadata_follows_the_image():
    node = three_brokers()
    node.add_topic("a", (1, 2), (2, 3))
    node.add_topic("b", (3,))
    before = ask(node, all_topics(LAST))
    node.add(PartitionChangeRecord(topic_id("a"), 0, leader=2, isr=(2,)))
    a, b = ask(node, all_topics(LAST)).topics
    assert a.partitions[0] == MetadataResponsePartition(0, 0, 2, 1, [1, 2], [2], [])
    assert (a.partitions[1], b) == (before.topics[0].partitions[1], before.topics[1])

    node.add(fenced(1))
    response = ask(node, all_topics(LAST))
    assert [b.node_id for b in response.brokers] == [2, 3]
    assert response.topics[0].partitions[0].offline_replicas == [1]

    node.add(RemoveTopicRecord(topic_id("a")))
    assert [t.name for t in ask(node, all_topics(LAST)).topics] == ["b"]
    node.add(TopicRecord("a", topic_id("again")), partition("again", 0, (3,)))
    a, _ = ask(node, all_topics(LAST)).topics
    assert (a.topic_id, [p.leader_id for p in a.partitions]) == (topic_id("again"), [3])


def test_metadata_of_a_node_that_knows_no_broker():
    response = ask(ImageNode(), named("a"))
    assert (response.brokers, response.controller_id, response.topics[0].error_code) == ([], -1, 3)


@pytest.mark.parametrize("version", [0, 12, 13])
def test_metadata_of_very_many_topics_lets_others_have_their_turn(monkeypatch, version):
    monkeypatch.setattr("tidelog_foundation.time_slices.SLICE_S", 0.0)
    node = three_brokers()
    names = [f"t{i:03}" for i in range(300)]
    for name in names:
        node.add(TopicRecord(name, topic_id(name)), partition(name, 0, (1, 2)))
    turns = []

    async def run():
        found = node.begin(all_topics(version), version)
        assert not isinstance(found, list)
        task = asyncio.ensure_future(found)
        while not task.done():
            # What comes in between sees other brokers; this answer is of one image all the same.
            node.add(fenced(2) if len(turns) == 0 else NoOpRecord())
            ask_one = node.begin(named("t000"), version)
            turns.append(len(ask_one))
            await asyncio.sleep(0)
        return b"".join(task.result())

    response = node.read(asyncio.run(run()), version, MetadataResponse)
    assert [t.name for t in response.topics] == names
    assert len(turns) > 1
    offline = {tuple(p.offline_replicas) for t in response.topics for p in t.partitions}
    assert offline == {()}
    after = ask(node, named("t299"), version)
    assert after.topics[0].partitions[0].offline_replicas == ([] if version == 0 else [2])
