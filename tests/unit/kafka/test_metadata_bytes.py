"""The topics of Metadata written by hand are those that the declaration writes, and are kept within bounds."""

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_metadata import ImageNode, broker, fenced, topic_id

from tidelog_node.kafka.apis.metadata import EncodedTopics
from tidelog_node.kafka.protocol.codec import encode
from tidelog_node.kafka.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from tidelog_node.kafka.protocol.metadata_bytes import TopicWriter
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_quorum.metadata.records import RemoveTopicRecord

INT32 = st.integers(-(2**31), 2**31 - 1)
IDS = st.lists(INT32, max_size=4) | st.just(list(range(200)))
PARTITIONS = st.builds(MetadataResponsePartition, st.integers(-(2**15), 2**15 - 1), INT32, INT32, INT32, IDS, IDS, IDS)
TOPICS = st.builds(
    MetadataResponseTopic,
    st.integers(-(2**15), 2**15 - 1),
    st.text(max_size=200),
    st.binary(min_size=16, max_size=16),
    st.booleans(),
    st.lists(PARTITIONS, max_size=3),
    INT32,
)


@settings(max_examples=examples(30))
@given(st.integers(0, 13), st.lists(TOPICS, max_size=3))
def test_topics_by_hand_are_the_declared_bytes(version, topics):
    writer, by_hand = Writer(), Writer()
    encode(MetadataResponse(topics=topics), writer, version)
    declared = b"".join(writer.chunks())

    topic_writer = TopicWriter(version)
    for t in topics:
        partitions = [
            (
                p.error_code,
                p.partition_index,
                p.leader_id,
                p.leader_epoch,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                tuple(p.offline_replicas),
            )
            for p in t.partitions
        ]
        by_hand.buffer += topic_writer.topic(t.error_code, t.name, t.topic_id, t.is_internal, partitions)
        by_hand.buffer += topic_writer.ending(t.topic_authorized_operations)
    size = len(by_hand.buffer)
    empty = Writer()
    encode(MetadataResponse(), empty, version)
    assert bytes(by_hand.buffer) in declared
    assert len(declared) - len(empty.buffer) == size + (len(topics) >= 127)


def test_a_topic_without_a_name_is_written_where_there_can_be_one():
    assert TopicWriter(12).topic(100, None, bytes(16), is_internal=False, partitions=())[2:3] == b"\0"
    with pytest.raises(ValueError, match="version 11 of Metadata has no topic without a name"):
        TopicWriter(11).topic(100, None, bytes(16), is_internal=False, partitions=())


def node_with_topics(count):
    node = ImageNode(broker(1, "PLAINTEXT"), broker(2, "PLAINTEXT"))
    for i in range(count):
        node.add_topic(f"t{i:02}", (1, 2))
    return node


def encoded(kept, node, name, version=13, listener="PLAINTEXT"):
    return kept.topic(kept.view(node.image, listener), listener, version, node.image.topics[name])


def test_topics_are_encoded_once_until_they_or_the_brokers_change():
    node, kept = node_with_topics(2), EncodedTopics()
    first = encoded(kept, node, "t00")
    assert encoded(kept, node, "t00") is first
    node.add_topic("other", (1,))
    assert encoded(kept, node, "t00") is first
    assert encoded(kept, node, "t00", version=12) is not first
    size = kept.size
    node.add(fenced(2))
    changed = encoded(kept, node, "t00")
    assert changed != first
    assert kept.size == len(changed) < size


def test_topics_of_each_listener_are_kept_beside_those_of_others():
    node, kept = node_with_topics(1), EncodedTopics()
    first, second = encoded(kept, node, "t00"), encoded(kept, node, "t00", listener="OTHER")
    assert first != second
    assert encoded(kept, node, "t00") is first
    assert encoded(kept, node, "t00", listener="OTHER") is second
    node.add(fenced(2))
    assert encoded(kept, node, "t00") is not first
    assert encoded(kept, node, "t00", listener="OTHER") is not second
    assert kept.size == sum(len(encoded(kept, node, "t00", listener=x)) for x in ("PLAINTEXT", "OTHER"))


def test_topics_of_an_old_view_are_not_kept():
    node, kept = node_with_topics(1), EncodedTopics()
    topic, old = node.image.topics["t00"], kept.view(node.image, "PLAINTEXT")
    node.add(fenced(2))
    new = encoded(kept, node, "t00")
    size = kept.size
    assert kept.topic(old, "PLAINTEXT", 13, topic) != new
    assert (encoded(kept, node, "t00") is new, kept.size) == (True, size)


def test_topics_that_are_kept_stay_below_the_limit():
    node = node_with_topics(20)
    one = len(encoded(EncodedTopics(), node, "t00"))
    kept = EncodedTopics(max_bytes=5 * one)
    for name in node.image.topics:
        for version in (12, 13):
            assert len(encoded(kept, node, name, version)) == one
            assert kept.size <= 5 * one
    small = EncodedTopics(max_bytes=one - 1)
    assert len(encoded(small, node, "t00")) == one
    assert small.size == 0


def test_topics_that_are_deleted_do_not_stay():
    node, kept = node_with_topics(2), EncodedTopics()
    one = len(encoded(kept, node, "t00"))
    for i in range(10, 99):
        node.add_topic(f"t{i}", (1, 2))
        assert len(encoded(kept, node, f"t{i}")) == one
        node.add(RemoveTopicRecord(topic_id(f"t{i}")))
        assert kept.size <= 2 * 3 * one
