"""Requests with one batch: the way of few steps has the outcome, bytes and state of the way of all others."""

from __future__ import annotations

import asyncio

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.kafka.test_produce import NEWEST, TOPIC_ID, encode
from unit.node.conftest import InProcessCluster

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.records import HEADER_SIZE, RecordBatchBuilder, encode_batch, parse_header
from tidelog_node.handlers.produce import PartitionOutcome, TopicOutcome
from tidelog_node.kafka.apis import produce as api
from tidelog_node.kafka.apis.produce import ProduceApi
from tidelog_node.kafka.protocol.messages import produce as wire
from tidelog_node.kafka.protocol.messages.produce_single import Appended, SingleBatch, decode_single, encode_single
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer
from tidelog_node.kafka.served import Caller, CloseConnection, KafkaNode, Request
from tidelog_node.shards.events import ClientIdentity

VERSIONS = st.integers(wire.FIRST_SERVED, NEWEST)
NUMBERS = st.integers(-(2**31), 2**31 - 1)
LONG_NUMBERS = st.integers(-(2**63), 2**63 - 1)


def batch(size: int = 5, producer: tuple[int, int, int] | None = None, count: int = 1) -> bytes:
    """Return a batch, of an idempotent producer if its id, epoch and sequence are given."""
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append(None, b"v" * size, [], 1_000)
    records = builder.build()
    if producer is None:
        return records
    producer_id, epoch, sequence = producer
    header = parse_header(records)._replace(producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return encode_batch(header, records[HEADER_SIZE:])


@given(
    version=VERSIONS,
    acks=st.sampled_from((-1, 0, 1, 2)),
    timeout=st.integers(0, 2**31 - 1),
    index=NUMBERS,
    size=st.integers(0, 70_000),
    name=st.text(min_size=1, max_size=150),
    ident=st.binary(min_size=16, max_size=16),
    before=st.binary(max_size=5),
)
def test_request_with_one_batch_is_read_as_by_the_general_decoder(
    version: int, acks: int, timeout: int, index: int, size: int, name: str, ident: bytes, before: bytes
) -> None:
    records = batch(size)
    data = before + encode(version, [(index, records)], acks, timeout, name, ident, None)
    found = decode_single(memoryview(data), len(before), version)
    known = wire.decode_request(Reader(memoryview(data), len(before)), version)
    assert (found is None) == (len(records) > 64 * 1024 or (version >= 9 and version < 13 and len(name.encode()) > 126))
    if found is not None:
        assert (found.acks, found.timeout_ms) == (known.acks, known.timeout_ms)
        assert found.place == (ident if version >= 13 else name.encode())
        [item] = known.topics[0].partitions
        assert (found.partition, found.records) == (item.index, item.records)


@given(version=VERSIONS, data=st.data())
def test_changed_requests_are_read_alike_or_left_to_the_general_decoder(version: int, data: st.DataObject) -> None:
    whole = bytearray(encode(version, [(0, batch())], -1, 7, "topic", TOPIC_ID, None))
    for _ in range(data.draw(st.integers(0, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(whole[: data.draw(st.integers(0, len(whole)))]) + data.draw(st.binary(max_size=2))
    found = decode_single(memoryview(changed), 0, version)
    if found is None:
        return
    try:
        known = wire.decode_request(Reader(memoryview(changed), 0), version)
    except MalformedMessageError:
        # The general decoder also knows that a name is no UTF-8; the API leaves such a request to it.
        with pytest.raises(UnicodeDecodeError):
            found.place.decode()
        return
    assert known.transactional_id is None
    [topic] = known.topics
    [item] = topic.partitions
    assert found == (known.acks, known.timeout_ms, found.place, item.index, item.records)
    assert found.place == (topic.topic_id if version >= 13 else topic.name.encode())


@given(version=VERSIONS, index=NUMBERS, offset=LONG_NUMBERS, time=LONG_NUMBERS, start=LONG_NUMBERS)
def test_answer_has_the_bytes_of_the_general_encoder(
    version: int, index: int, offset: int, time: int, start: int
) -> None:
    outcome = PartitionOutcome(index)
    outcome.base_offset, outcome.log_append_time_ms, outcome.log_start_offset = offset, time, start
    topic = TopicOutcome("topic", [outcome])
    topic.topic_id = TOPIC_ID
    writer = Writer()
    wire.encode_response([topic], (), writer, version)
    single = SingleBatch(1, 1, TOPIC_ID if version >= 13 else b"topic", index, memoryview(b""))
    assert encode_single(single, Appended(offset, time, start), version) == b"".join(writer.chunks())


def with_byte(records: bytes, position: int, value: int) -> bytes:
    return records[:position] + bytes([value]) + records[position + 1 :]


BATCHES = st.one_of(
    st.builds(batch, st.sampled_from((0, 5, 200, 66_000)), count=st.integers(1, 3)),
    st.builds(batch, st.just(5), st.tuples(st.just(7), st.integers(0, 1), st.integers(0, 4)), st.integers(1, 2)),
    st.builds(with_byte, st.just(batch()), st.integers(0, len(batch()) - 1), st.integers(0, 255)),
    st.just(b""),
    st.just(batch()[:40]),
)
REQUESTS = st.fixed_dictionaries(
    {
        "version": VERSIONS,
        "acks": st.sampled_from((-1, 0, 1, 3)),
        "topic": st.sampled_from(("t", "t", "t", "u", "missing", "__consumer_offsets")),
        "txn": st.sampled_from((None, None, None, "x")),
        "batches": st.lists(st.tuples(st.sampled_from((0, 0, 1, 9)), BATCHES), min_size=1, max_size=2),
        "tail": st.sampled_from((b"", b"", b"", b"\0")),
    }
)
IDS = {"t": TOPIC_ID, "u": b"u" * 16, "missing": b"m" * 16, "__consumer_offsets": b"c" * 16}


@settings(max_examples=examples(60))
@given(requests=st.lists(REQUESTS, min_size=1, max_size=12), min_isr=st.sampled_from((1, 2)))
def test_both_ways_have_equal_answers_and_logs(requests, min_isr, tmp_path_factory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        short = asyncio.run(outcomes(requests, min_isr, tmp_path_factory.mktemp("short")))
        patch.setattr(api, "decode_single", lambda *_: None)
        general = asyncio.run(outcomes(requests, min_isr, tmp_path_factory.mktemp("general")))
    assert short == general


async def outcomes(requests, min_isr, folder):
    """Return the answers to the requests, and what the logs and states are afterwards."""
    async with asyncio.TaskGroup() as tasks:
        cluster = InProcessCluster(folder, tasks, TopicConfig(min_insync_replicas=min_isr), 30_000)
        await cluster.start(1)
        await cluster.create_topic(replicas=(1,), partitions=2)
        await cluster.create_topic("u", replicas=(1,), topic_id=IDS["u"])
        node = KafkaNode(cluster.nodes[1].context, None)
        found = [await answer(node, each) for each in requests]
        for key in (("t", 0), ("t", 1), ("u", 0)):
            partition = cluster.nodes[1].registry.get(*key)
            log = partition.log
            traffic = partition.traffic
            found.append((log.read(0, 1 << 22, log.log_end_offset), partition.high_watermark))
            found.append((traffic.appends, traffic.bytes_in, traffic.messages_in))
        for each in cluster.nodes.values():
            await each.close()
    return found


async def answer(node, each):
    data = encode(each["version"], each["batches"], each["acks"], 50, each["topic"], IDS[each["topic"]], each["txn"])
    caller = Caller("PLAINTEXT", ClientIdentity("client", "host"), each["version"])
    try:
        body = ProduceApi().begin(node, Request(caller, 1, Reader(memoryview(bytearray(data + each["tail"])))))
        if body is not None and not isinstance(body, list | tuple):
            body = await body
    except (CloseConnection, MalformedMessageError) as error:
        return str(error)
    return None if body is None else b"".join(body)


def test_frequent_requests_take_the_way_of_few_steps(cluster_of, make_batch) -> None:
    async def run() -> None:
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            node = KafkaNode(cluster.nodes[1].context, None)
            taken = []
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(wire, "decode_request", lambda *_: taken.append(1))
                for version in range(wire.FIRST_SERVED, NEWEST + 1):
                    request = {"version": version, "acks": -1, "topic": "t", "txn": None, "tail": b""}
                    assert await answer(node, {**request, "batches": [(0, make_batch(b"a"))]})
            assert not taken

    asyncio.run(run())


def test_lengths_at_the_borders_of_their_encoding() -> None:
    for size in (1, 2, 3, 60, 61, 62, 126, 127, 128, 16_300, 16_383, 16_384, 16_385, 65_000):
        padding = bytearray(batch())
        padding += bytes(max(0, size))
        data = encode(12, [(3, bytes(padding))], 1, 1, "t", TOPIC_ID, None)
        found = decode_single(memoryview(data), 0, 12)
        assert found is not None
        assert bytes(found.records) == bytes(padding)


def test_denied_request_with_one_batch_is_decided_and_logged_once(cluster_of, make_batch) -> None:
    asked = []

    class Denials:
        def has(self, right, name):
            asked.append(name)
            return False

        def remembers(self, right, name):
            return False

    class Guard:
        def access(self, api, caller):
            return Denials()

    async def run() -> None:
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            node = KafkaNode(cluster.nodes[1].context, None, Guard())
            request = {"version": NEWEST, "acks": -1, "topic": "t", "txn": None, "tail": b""}
            await answer(node, {**request, "batches": [(0, make_batch(b"a"))]})
            assert cluster.partition(1).log.log_end_offset == 0

    asyncio.run(run())
    assert asked == ["t"]
