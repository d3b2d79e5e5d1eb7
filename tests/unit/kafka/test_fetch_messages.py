"""The hand-written codec of Fetch, held against kio's entities in every version and against itself both ways."""

import contextlib
import dataclasses
import io
from datetime import timedelta
from importlib import import_module
from uuid import UUID

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioError
from kio.serial import entity_reader, entity_writer

from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_node.fetching import CurrentLeader, FetchRequest, FetchResponse, FetchResult, FetchSpec, SessionStep
from tidelog_node.kafka.protocol.messages.fetch_request import ENDS_WAIT_TAG, decode_request, encode_request
from tidelog_node.kafka.protocol.messages.fetch_response import NodeEndpoint, decode_response, encode_response
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.replication import EpochEnd

VERSIONS = range(4, 19)
IDS = {"t": bytes(range(16)), "u": bytes(range(16, 32))}
LARGE = b"r" * 20_000


def kio(version, name):
    return import_module(f"kio.schema.fetch.v{version}.{name}")


def ref(topic, version):
    return IDS[topic] if version >= 13 else topic


def named(topic, version):
    return {"topic_id": UUID(bytes=IDS[topic])} if version >= 13 else {"topic": topic}


def only(schema, **fields):
    """Make an entity of the fields that its version has."""
    return schema(**{name: value for name, value in fields.items() if name in schema.__dataclass_fields__})


def make_request(version):
    """Return a request that has all that the version has."""
    spec = FetchSpec(
        IDS["t"] if version >= 13 else b"",
        1 << 40,
        1_000,
        7 if version >= 9 else None,
        6 if version >= 12 else None,
        3 if version >= 5 else -1,
    )
    return FetchRequest(
        {(ref("t", version), 0): spec, (ref("t", version), 5): spec},
        50_000,
        500,
        1,
        (3, 99 if version >= 15 else -1),
        True,
        "rack" if version >= 11 else "",
        "cluster" if version >= 12 else "",
        SessionStep(11, 12) if version >= 7 else None,
        [(ref("u", version), 1), (ref("u", version), 2)] if version >= 7 else (),
        **told_by(version),
    )


def told_by(version):
    """Return what a version says of itself."""
    return {"uses_topic_ids": version >= 13, "may_read_followers": version >= 11}


def kio_request(version):
    """Return what kio makes of the same."""
    schema = kio(version, "request")
    partitions = tuple(
        only(
            schema.FetchPartition,
            partition=index,
            current_leader_epoch=7,
            fetch_offset=1 << 40,
            last_fetched_epoch=6,
            log_start_offset=3,
            partition_max_bytes=1_000,
        )
        for index in (0, 5)
    )
    fields = {"topics": (schema.FetchTopic(partitions=partitions, **named("t", version)),)}
    if version >= 7:
        fields["forgotten_topics_data"] = (schema.ForgottenTopic(partitions=(1, 2), **named("u", version)),)
    if version >= 15:
        fields["replica_state"] = schema.ReplicaState(replica_id=3, replica_epoch=99)
    request = only(
        schema.FetchRequest,
        replica_id=3,
        max_wait=timedelta(milliseconds=500),
        min_bytes=1,
        max_bytes=50_000,
        isolation_level=1,
        session_id=11,
        session_epoch=12,
        rack_id="rack",
        cluster_id="cluster",
        **fields,
    )
    buffer = io.BytesIO()
    entity_writer(schema.FetchRequest)(buffer, request)
    return buffer.getvalue()


def written(write, message, version, *arguments):
    writer = Writer()
    write(message, writer, version, *arguments)
    return writer.chunks()


def read(decode, data, version):
    reader = Reader(memoryview(data))
    message = decode(reader, version)
    assert reader.remaining == 0
    return message


@pytest.mark.parametrize("version", VERSIONS)
def test_request_is_read_and_written_as_kio_does(version):
    data = kio_request(version)
    assert read(decode_request, data, version) == make_request(version)
    ours = b"".join(written(encode_request, make_request(version), version))
    entity = kio(version, "request").FetchRequest
    assert entity_reader(entity)(ours, 0) == entity_reader(entity)(data, 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_request_of_a_consumer_without_a_session_survives(version):
    spec = FetchSpec(IDS["t"] if version >= 13 else b"", 5, 100)
    session = SessionStep(0, -1) if version >= 7 else None
    wanted = {(ref("t", version), 0): spec}
    request = FetchRequest(wanted, 10, session=session, forgotten=[] if session else (), **told_by(version))
    assert read(decode_request, b"".join(written(encode_request, request, version)), version) == request


@pytest.mark.parametrize("version", [12, 15, 18])
def test_wait_is_ended_by_a_tagged_field_that_others_skip(version):
    session = SessionStep(5, 6, ends_wait=True)
    request = FetchRequest({}, 0, session=session, forgotten=[], **told_by(version))
    data = b"".join(written(encode_request, request, version))
    assert read(decode_request, data, version) == request
    reader = Reader(memoryview(data[-4:]))
    assert (reader.unsigned_varint(), reader.unsigned_varint(), reader.unsigned_varint()) == (1, ENDS_WAIT_TAG, 0)


def test_unknown_tagged_fields_are_skipped_and_known_ones_must_have_their_size():
    plain = b"".join(written(encode_request, FetchRequest({}, 0, session=SessionStep(0, -1)), 18))
    assert plain.endswith(b"\0")
    known = read(decode_request, plain[:-1] + b"\x01\x63\x03abc", 18)
    assert known.replica is None
    with pytest.raises(MalformedMessageError, match="tagged field 1"):
        read(decode_request, plain[:-1] + b"\x01\x01\x0f" + bytes(15), 18)


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_of_requests_that_end_too_soon_or_are_changed_are_malformed_or_read(version):
    data = kio_request(version)
    for size in range(len(data)):
        with pytest.raises(MalformedMessageError):
            read(decode_request, data[:size], version)
    for position in range(len(data)):
        for byte in (0x7F, 0xFF):
            changed = bytearray(data)
            changed[position] = byte
            with contextlib.suppress(MalformedMessageError):
                decode_request(Reader(memoryview(changed)), version)


@settings(max_examples=examples(60))
@given(st.binary(max_size=200), st.sampled_from(VERSIONS))
def test_any_bytes_are_malformed_or_a_message(data, version):
    for decode in (decode_request, decode_response):
        with contextlib.suppress(MalformedMessageError):
            decode(Reader(memoryview(data)), version)


def make_response(version, records=LARGE):
    """Return a response that has all that the version has."""
    is_flexible = version >= 12
    moved = error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    results = [
        FetchResult(0, None, 10, 9, 2 if version >= 5 else -1, records, [(4, 5), (6, 7)]),
        FetchResult(1, None, 10, 9, -1, b"small", None, preferred_replica=3 if version >= 11 else None),
        FetchResult(2, None, 1, 1, -1, diverging=EpochEnd(8, 9) if is_flexible else None),
        FetchResult(3, moved, current_leader=CurrentLeader(2, 20) if version >= 16 else None),
    ]
    return FetchResponse({ref("t", version): results}, 77 if version >= 7 else 0)


def comparable(response):
    """Return a response as values that can be compared."""
    return response.session_id, {
        topic: [dataclasses.replace(r, error=r.error and r.error.code, records=bytes(r.records)) for r in results]
        for topic, results in response.topics.items()
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_response_is_written_as_kio_reads_it_and_read_again(version):
    endpoints = [NodeEndpoint(2, "host", 9092, "rack")]
    chunks = written(encode_response, make_response(version), version, endpoints)
    assert any(chunk is LARGE for chunk in chunks), "records are copied"
    data = b"".join(chunks)
    schema = kio(version, "response")
    entity, _ = entity_reader(schema.FetchResponse)(data, 0)
    assert read_by_kio(entity, version) == expected_of_kio(version)
    assert comparable(read(decode_response, data, version)) == comparable(make_response(version))


def read_by_kio(entity, version):
    first, second, third, fourth = entity.responses[0].partitions
    found = [bytes(first.records or b""), [(a.producer_id, a.first_offset) for a in first.aborted_transactions]]
    found += [bytes(second.records), second.aborted_transactions, first.high_watermark, first.last_stable_offset]
    found += [fourth.error_code]
    if version >= 5:
        found.append(first.log_start_offset)
    if version >= 7:
        found += [entity.session_id, entity.error_code]
    if version >= 11:
        found.append(second.preferred_read_replica)
    if version >= 12:
        found += [third.diverging_epoch.epoch, third.diverging_epoch.end_offset]
    if version >= 16:
        [endpoint] = entity.node_endpoints
        found += [fourth.current_leader.leader_id, fourth.current_leader.leader_epoch, endpoint.node_id]
        found += [endpoint.host, endpoint.port, endpoint.rack]
    return found


def expected_of_kio(version):
    expected = [LARGE, [(4, 5), (6, 7)], b"small", None, 10, 9, KioError.not_leader_or_follower]
    expected += [2] * (version >= 5) + [77, KioError.none] * (version >= 7) + [3] * (version >= 11)
    return expected + [8, 9] * (version >= 12) + [2, 20, 2, "host", 9092, "rack"] * (version >= 16)


@pytest.mark.parametrize("version", VERSIONS)
def test_records_of_a_response_that_is_read_are_views_of_what_was_received(version):
    frame = bytearray(b"".join(written(encode_response, make_response(version), version)))
    result = read(decode_response, frame, version).topics[ref("t", version)][0]
    assert result.records.obj is frame


@pytest.mark.parametrize("version", VERSIONS)
def test_response_that_ends_too_soon_is_malformed_wherever_it_ends(version):
    data = b"".join(written(encode_response, make_response(version, b"records"), version))
    for size in range(len(data)):
        with pytest.raises(MalformedMessageError):
            read(decode_response, data[:size], version)


@pytest.mark.parametrize(("version", "code"), [(5, 6), (6, 56)])
def test_storage_error_is_told_to_clients_that_know_it(version, code):
    failed = FetchResponse({"t": [FetchResult(0, error_for(ErrorCode.KAFKA_STORAGE_ERROR))]})
    data = b"".join(written(encode_response, failed, version))
    assert read(decode_response, data, version).topics["t"][0].error.code.code == code
