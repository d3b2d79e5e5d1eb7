"""The hand-written codec of Produce, held against kio's entities in every version."""

import contextlib
import io
from datetime import timedelta
from importlib import import_module
from types import SimpleNamespace
from uuid import UUID

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioError
from kio.serial import entity_reader, entity_writer

from tidelog_node.kafka.protocol.messages.produce import decode_request, encode_response
from tidelog_node.kafka.protocol.primitives import NodeEndpoint
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer

SERVED = range(3, 14)
TOPIC_ID = bytes(range(16))
RECORDS = (b"", b"x" * 100, b"y" * 20_000)


def kio(version, name):
    return import_module(f"kio.schema.produce.v{version}.{name}")


def request_bytes(version, records=RECORDS, transactional_id=None, topics=("t", "u")):
    schema = kio(version, "request")
    partitions = tuple(
        schema.PartitionProduceData(index=i, records=content or None) for i, content in enumerate(records)
    )
    topic_data = tuple(
        schema.TopicProduceData(
            partition_data=partitions, **({"topic_id": UUID(bytes=TOPIC_ID)} if version >= 13 else {"name": name})
        )
        for name in topics
    )
    request = schema.ProduceRequest(
        transactional_id=transactional_id, acks=-1, timeout=timedelta(milliseconds=1_500), topic_data=topic_data
    )
    buffer = io.BytesIO()
    entity_writer(schema.ProduceRequest)(buffer, request)
    return buffer.getvalue()


def read(data, version):
    reader = Reader(memoryview(bytearray(data)))
    return decode_request(reader, version), reader


@pytest.mark.parametrize("version", SERVED)
@pytest.mark.parametrize("transactional_id", [None, "", "txn"])
def test_request_is_what_kio_wrote(version, transactional_id):
    request, reader = read(request_bytes(version, transactional_id=transactional_id), version)

    assert (request.transactional_id, request.acks, request.timeout_ms) == (transactional_id, -1, 1_500)
    names = [(topic.name, topic.topic_id) for topic in request.topics]
    assert names == ([("", TOPIC_ID)] * 2 if version >= 13 else [("t", b""), ("u", b"")])
    for topic in request.topics:
        assert [(item.index, bytes(item.records)) for item in topic.partitions] == list(enumerate(RECORDS))
        assert not topic.partitions[1].records.readonly, "offsets are written into the frame"
    assert reader.remaining == 0


@pytest.mark.parametrize("version", SERVED)
def test_request_that_ends_too_soon_is_malformed_wherever_it_ends(version):
    data = request_bytes(version, records=(b"abc",))
    for size in range(len(data)):
        with pytest.raises(MalformedMessageError):
            read(data[:size], version)


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_request_with_wrong_lengths_is_malformed_or_read(version):
    """Each byte is made large: nothing else may come of it, and nothing large is allocated."""
    data = request_bytes(version, records=(b"abc",))
    for position in range(len(data)):
        for byte in (0x7F, 0x80, 0xFF):
            changed = bytearray(data)
            changed[position] = byte
            try:
                request, reader = read(changed, version)
            except MalformedMessageError:
                continue
            assert reader.position <= len(data)
            assert all(len(item.records) <= len(data) for topic in request.topics for item in topic.partitions)


@given(st.binary(max_size=60), st.sampled_from([0, 3, 8, 9, 12, 13]))
@settings(max_examples=examples(150))
def test_request_of_any_bytes_is_malformed_or_read(data, version):
    with contextlib.suppress(MalformedMessageError):
        read(data, version)


def test_unknown_tagged_fields_are_skipped_at_every_level():
    tags = b"\x01\x09\x02zz"
    topic = b"\x02t" + b"\x02" + b"\x00\x00\x00\x05" + b"\x04abc" + tags + tags
    request, reader = read(b"\x00" + b"\x00\x01" + b"\x00\x00\x00\x07" + b"\x02" + topic + tags, 9)

    [item] = request.topics[0].partitions
    assert (request.acks, request.topics[0].name, item.index, bytes(item.records)) == (1, "t", 5, b"abc")
    assert reader.remaining == 0


def result(index, code=0, message=None, leader=None, records=()):
    offset = -1 if code else 1_000 + index
    return SimpleNamespace(
        index=index,
        error_code=code,
        error_message=message,
        record_errors=[SimpleNamespace(batch_index=i, message=text) for i, text in records],
        base_offset=offset,
        log_append_time_ms=-1,
        log_start_offset=7,
        leader=leader,
    )


def write(version, topics, endpoints):
    writer = Writer()
    encode_response(topics, endpoints, writer, version)
    return b"".join(writer.chunks())


@pytest.mark.parametrize("version", SERVED)
def test_response_is_what_kio_reads(version):
    leader = SimpleNamespace(leader_id=2, leader_epoch=9)
    results = [result(0), result(1, 6, "not here", leader), result(2, 87, records=[(4, "no key"), (9, "old")])]
    topics = [SimpleNamespace(name="t" * 200, topic_id=TOPIC_ID, partitions=results)]
    endpoints = [
        NodeEndpoint(2, "node-2", 9092, "r"),
        NodeEndpoint(3, "h", 1, None),
    ]
    data = write(version, topics, endpoints)

    schema = kio(version, "response")
    response, size = entity_reader(schema.ProduceResponse)(data, 0)
    assert size == len(data)
    [topic] = response.responses
    assert (topic.topic_id.bytes if version >= 13 else topic.name) == (TOPIC_ID if version >= 13 else "t" * 200)
    codes = [KioError.none, KioError.not_leader_or_follower, KioError.invalid_record]
    assert [p.error_code for p in topic.partition_responses] == codes
    assert [p.index for p in topic.partition_responses] == [0, 1, 2]
    assert [p.base_offset for p in topic.partition_responses] == [1_000, -1, -1]
    if version >= 5:
        assert {p.log_start_offset for p in topic.partition_responses} == {7}
    if version >= 8:
        assert [p.error_message for p in topic.partition_responses] == [None, "not here", None]
        errors = [
            [(e.batch_index, e.batch_index_error_message) for e in p.record_errors] for p in topic.partition_responses
        ]
        assert errors == [[], [], [(4, "no key"), (9, "old")]]
    if version >= 10:
        leaders = [(p.current_leader.leader_id, p.current_leader.leader_epoch) for p in topic.partition_responses]
        assert leaders == [(-1, -1), (2, 9), (-1, -1)]
        nodes = [(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints]
        assert nodes == [(2, "node-2", 9092, "r"), (3, "h", 1, None)]


def test_response_of_old_versions_has_their_fields():
    topics = [SimpleNamespace(name="t", topic_id=b"", partitions=[result(3, 35)])]
    head = b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\1" + b"\0\0\0\3" + b"\0\x23" + b"\xff" * 8
    assert write(0, topics, {}) == head
    assert write(1, topics, {}) == head + b"\0\0\0\0"
    assert write(2, topics, {}) == head + b"\xff" * 8 + b"\0\0\0\0"


@pytest.mark.parametrize("version", [8, 9])
def test_response_with_a_long_message_is_cut_to_what_a_string_can_be(version):
    """A topic's name may have 32,767 bytes, and errors name it."""
    topics = [SimpleNamespace(name="t", topic_id=b"", partitions=[result(0, 3, "\u00e9" * 40_000)])]
    response, _ = entity_reader(kio(version, "response").ProduceResponse)(write(version, topics, {}), 0)
    assert response.responses[0].partition_responses[0].error_message == "\u00e9" * 8_000
