"""Produce over Kafka's protocol, on real partitions: what is appended, when it is answered, and with which codes."""

import asyncio
import dataclasses
import gc
import struct
import threading
import time
from datetime import timedelta
from importlib import import_module
from io import BytesIO
from uuid import UUID

import cramjam
import pytest
from kio.serial import entity_reader, entity_writer

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import (
    HEADER_SIZE,
    LOG_APPEND_TIME,
    RecordBatchBuilder,
    assign_offsets,
    encode_batch,
    parse_header,
    read_records,
    validate_batch,
)
from tidelog_foundation.requests.addresses import Endpoint, ListenerEndpoint
from tidelog_node import handlers
from tidelog_node.event_loop import Pending
from tidelog_node.kafka.apis.produce import ProduceApi
from tidelog_node.kafka.protocol.messages.produce import FLEXIBLE
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.served import Caller, CloseConnection, KafkaNode, Request
from tidelog_node.log import PartitionLog
from tidelog_node.shards.events import ClientIdentity
from tidelog_quorum.metadata.records import (
    BrokerRegistrationChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

TOPIC_ID = b"0123456789abcdef"
NEWEST = 13
MANY_NEW = 100
ZSTD, TRANSACTIONAL, CONTROL = 4, 0x10, 0x20


def kio(version, name):
    return import_module(f"kio.schema.produce.v{version}.{name}")


def encode(version, batches, acks, timeout_ms, topic, topic_id, transactional_id):
    if version < 3:
        data = struct.pack(">hiih", acks, timeout_ms, 1, len(topic)) + topic.encode()
        data += struct.pack(">i", len(batches))
        return data + b"".join(struct.pack(">ii", i, len(records)) + records for i, records in batches)
    schema = kio(version, "request")
    partitions = tuple(schema.PartitionProduceData(index=i, records=records) for i, records in batches)
    name = {"topic_id": UUID(bytes=topic_id)} if version >= 13 else {"name": topic}
    data = (schema.TopicProduceData(partition_data=partitions, **name),)
    timeout = timedelta(milliseconds=timeout_ms)
    request = schema.ProduceRequest(transactional_id=transactional_id, acks=acks, timeout=timeout, topic_data=data)
    buffer = BytesIO()
    entity_writer(schema.ProduceRequest)(buffer, request)
    return buffer.getvalue()


def begin(node, *batches, version=NEWEST, acks=-1, timeout_ms=5_000, topic="t", topic_id=TOPIC_ID, txn=None):
    """Begin a request with batches by partition; what ``begin`` returns."""
    data = encode(version, batches, acks, timeout_ms, topic, topic_id, txn)
    caller = Caller("PLAINTEXT", ClientIdentity("client", "host"), version)
    request = Request(caller, 1, Reader(memoryview(bytearray(data))))
    return ProduceApi().begin(KafkaNode(node.context, None), request)


def results(body, version=NEWEST):
    """Return the partitions' results, by index, and the whole response."""
    data = b"".join(body)
    response, size = entity_reader(kio(version, "response").ProduceResponse)(data, 0)
    assert size == len(data)
    return {p.index: p for topic in response.responses for p in topic.partition_responses}, response


def codes(body, version=NEWEST):
    return {index: p.error_code.value for index, p in results(body, version)[0].items()}


def with_attributes(records, attributes):
    """Return a batch with other attributes and the CRC of them."""
    changed = bytearray(records)
    changed[22] |= attributes
    assign_offsets(changed, 0, -1, max_timestamp=-1)
    assign_offsets(changed, 0, -1, max_timestamp=parse_header(records).max_timestamp)
    return bytes(changed)


@pytest.mark.parametrize("acks", [1, -1])
def test_produce_is_answered_at_once_where_nothing_is_waited_for(cluster_of, make_batch, acks):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            for version in range(3, NEWEST + 1):
                body = begin(cluster.nodes[1], (0, make_batch(b"a", b"b")), version=version, acks=acks)
                assert isinstance(body, list), "an answer without a task"
                [result] = results(body, version)[0].values()
                assert (result.error_code.value, result.base_offset) == (0, 2 * (version - 3))
            log = cluster.partition(1).log
            stored = log.read(0, 1 << 20, log.log_end_offset)
            assert parse_header(stored).base_offset == 0
            assert stored.count(make_batch(b"a", b"b")[21:]) == NEWEST - 2

    asyncio.run(run())


def test_produce_writes_the_offsets_into_the_frame_and_copies_nothing(cluster_of, make_batch):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            records = bytearray(make_batch(b"a"))
            [outcome] = produce_view(cluster, memoryview(records))
            assert (outcome.error, outcome.base_offset) == (None, 0)
            [outcome] = produce_view(cluster, memoryview(records)[:])
            # The batch that was written into is one of offset 0 still.
            assert (outcome.error, outcome.base_offset) == (None, 1)
            assert parse_header(records).base_offset == 1

            kept = bytes(make_batch(b"b"))
            [outcome] = produce_view(cluster, memoryview(kept))
            assert outcome.base_offset == 2
            assert kept == make_batch(b"b")

    def produce_view(cluster, view):
        request = pb.ProduceRequest(acks=pb.ACKS_LEADER)
        item = type("Item", (), {"index": 0, "records": view})
        topic = type("Topic", (), {"name": "t", "partitions": [item]})
        shaped = type(
            "Shaped", (), {"acks": request.acks, "timeout_ms": 100, "topics": [topic], "transactional_id": ""}
        )
        pending = handlers.try_begin_produce(cluster.nodes[1].context, shaped)
        return pending.outcomes[0].partitions

    asyncio.run(run())


def test_produce_with_acks_all_is_answered_when_the_batches_are_replicated(cluster_of, make_batch):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2), partitions=2)
            answer = begin(cluster.nodes[1], (0, make_batch(b"a")), (1, make_batch(b"b")))
            assert isinstance(answer, Pending)
            found, _ = results(await answer)
            assert {i: (p.error_code.value, p.base_offset, p.log_start_offset) for i, p in found.items()} == {
                0: (0, 0, 0),
                1: (0, 0, 0),
            }
            assert cluster.partition(1).high_watermark == 1

    asyncio.run(run())


def test_pipelined_requests_are_appended_in_their_order_before_any_is_answered(cluster_of, make_batch):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            answers = [begin(cluster.nodes[1], (0, make_batch(b"%d" % i))) for i in range(20)]
            assert cluster.partition(1).log.log_end_offset == 20
            offsets = [results(await answer)[0][0].base_offset for answer in answers]
            assert offsets == list(range(20))

    asyncio.run(run())


def test_produce_that_waits_too_long_is_answered_with_request_timed_out(cluster_of, make_batch):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            cluster.transport.cut_off.add(2)
            body = await begin(cluster.nodes[1], (0, make_batch(b"a")), timeout_ms=20)
            found, _ = results(body)
            # The batch is in the log, and its offset is told all the same, as by Kafka.
            assert (found[0].error_code.value, found[0].base_offset) == (ErrorCode.REQUEST_TIMED_OUT.code, 0)
            assert "20 ms" in found[0].error_message
            assert len(cluster.partition(1).waiters.producers) <= 1, "nobody waits any more"

    asyncio.run(run())


def test_time_out_is_told_as_such_also_where_too_few_replicas_are_left(cluster_of, make_batch, wait_for):
    """Kafka's DelayedProduce: NOT_ENOUGH_REPLICAS_AFTER_APPEND is for what all of the too small ISR have."""

    async def run():
        async with cluster_of(1, 2, min_isr=2, lag_ms=20) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            cluster.transport.cut_off.add(2)
            answer = begin(cluster.nodes[1], (0, make_batch(b"a")), timeout_ms=400)
            await asyncio.sleep(0.03)
            cluster.partition(1).pass_time()
            await wait_for(lambda: cluster.partition(1).state.leader.is_under_min_isr)
            found, _ = results(await answer)
            assert (found[0].error_code.value, found[0].base_offset) == (ErrorCode.REQUEST_TIMED_OUT.code, 0)
            assert "the ISR has shrunk to [1], min.insync.replicas is 2" in found[0].error_message

    asyncio.run(run())


def test_produce_that_is_given_up_leaves_nothing_behind_and_keeps_its_records(cluster_of, make_batch, wait_for, caplog):
    async def run():
        async with cluster_of(1, 2, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            cluster.transport.cut_off.add(2)
            answers = [begin(cluster.nodes[1], (0, make_batch(b"a"))) for _ in range(3)]
            assert answers[0].cancel()
            await asyncio.sleep(0)
            waiting = asyncio.create_task(wait(answers[1]))
            await asyncio.sleep(0)
            waiting.cancel()
            await cluster.elect(2)
            found, _ = results(await answers[2])
            assert (found[0].error_code.value, found[0].base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER.code, 2)
            assert answers[0].is_cancelled
            assert answers[1].is_cancelled
            assert len(cluster.partition(1).waiters.producers) == 0

    async def wait(answer):
        return await answer

    asyncio.run(run())
    gc.collect()
    assert "never retrieved" not in caplog.text


def test_produce_names_the_new_leader_and_where_its_listener_is(cluster_of, make_batch):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            await cluster.controller.change(
                RegisterBrokerRecord(
                    2,
                    b"j" * 16,
                    0,
                    Endpoint("node", 2),
                    rack="r2",
                    fenced=False,
                    listeners=(ListenerEndpoint("PLAINTEXT", "kafka-2", 9092, "PLAINTEXT"),),
                )
            )
            await cluster.elect(2)
            for version, has_leader in ((9, False), (10, True), (13, True)):
                body = begin(cluster.nodes[1], (0, make_batch(b"a")), version=version)
                found, response = results(body, version)
                assert found[0].error_code.value == ErrorCode.NOT_LEADER_OR_FOLLOWER.code
                if has_leader:
                    assert (found[0].current_leader.leader_id, found[0].current_leader.leader_epoch) == (2, 1)
                    nodes = [(n.node_id, n.host, n.port, n.rack) for n in response.node_endpoints]
                    assert nodes == [(2, "kafka-2", 9092, "r2")]
            await cluster.controller.change(BrokerRegistrationChangeRecord(2, 0, fenced=True))
            _, response = results(begin(cluster.nodes[1], (0, make_batch(b"a"))))
            assert not response.node_endpoints, "it cannot be reached"

    asyncio.run(run())


def test_produce_refuses_each_batch_with_its_code_and_appends_the_others(cluster_of, make_batch):
    good = make_batch(b"a")
    builder = RecordBatchBuilder("zstd")
    builder.append(None, b"z" * 1_000, [], 1_000)
    zstd = builder.build()
    builder = RecordBatchBuilder()
    builder.append(None, b"t", [], 1_000)
    transactional = builder.build(7, 0, 0, is_transactional=True)
    corrupt = bytearray(good)
    corrupt[-1] ^= 1

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=9)
            unknown, old = good[:16] + b"\x63" + good[17:], good[:16] + b"\1" + good[17:]
            hostile = [good, zstd, None, old, good + good, good[:40], bytes(corrupt), transactional, unknown]
            batches = enumerate(hostile)
            found = codes(begin(cluster.nodes[1], *batches, (99, good), version=6), 6)
            assert {i: ErrorCode.of(code).name for i, code in found.items()} == {
                0: "NONE",
                1: "UNSUPPORTED_COMPRESSION_TYPE",
                2: "INVALID_RECORD",
                3: "INVALID_RECORD",
                4: "INVALID_RECORD",
                5: "INVALID_RECORD",
                6: "CORRUPT_MESSAGE",
                7: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
                8: "CORRUPT_MESSAGE",
                99: "UNKNOWN_TOPIC_OR_PARTITION",
            }
            assert codes(begin(cluster.nodes[1], (1, zstd), version=7), 7) == {1: 0}
            control = with_attributes(transactional, CONTROL)
            assert codes(begin(cluster.nodes[1], (0, with_attributes(good, CONTROL)))) == {
                0: ErrorCode.INVALID_RECORD.code
            }
            assert codes(begin(cluster.nodes[1], (0, control), txn="x")) == {0: ErrorCode.INVALID_RECORD.code}

    asyncio.run(run())


@pytest.mark.costly
def test_produce_with_many_batches_that_are_refused_takes_no_longer_for_each(cluster_of):
    count = handlers.MAX_PRODUCE_ELEMENTS - 1
    partitions = b"".join(struct.pack(">ii", index, -1) for index in range(count))
    data = struct.pack(">hhiih", -1, -1, 1_000, 1, 1) + b"t" + struct.pack(">i", count) + partitions
    caller = Caller("PLAINTEXT", ClientIdentity("client", "host"), 3)

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            request = Request(caller, 1, Reader(memoryview(bytearray(data))))
            begun = time.process_time()
            body = ProduceApi().begin(KafkaNode(cluster.nodes[1].context, None), request)
            assert time.process_time() - begun < 1.5
            assert sum(map(len, body)) > 22 * count

    asyncio.run(run())


def test_bad_partition_never_stops_the_appends_to_the_others(cluster_of, make_batch, replace_method):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=3)
            replace_method(cluster.partition(1, 1).log, "append_as_leader", lambda *_: 1 // 0)
            found = codes(begin(cluster.nodes[1], *((index, make_batch(b"a")) for index in range(3))))
            assert found == {0: 0, 1: ErrorCode.UNKNOWN_SERVER_ERROR.code, 2: 0}

    asyncio.run(run())


def test_produce_to_an_unknown_topic_id_or_an_internal_topic_is_refused(cluster_of, make_batch):
    async def run():
        async with cluster_of(1) as cluster:
            offsets_id = b"o" * 16
            await cluster.controller.change(
                TopicRecord("__consumer_offsets", offsets_id), PartitionRecord(offsets_id, 0, (1,), (1,), 1)
            )
            found, response = results(begin(cluster.nodes[1], (3, make_batch(b"a")), topic_id=b"x" * 16))
            assert found[3].error_code.value == ErrorCode.UNKNOWN_TOPIC_ID.code
            assert response.responses[0].topic_id.bytes == b"x" * 16
            body = begin(cluster.nodes[1], (0, make_batch(b"a")), version=12, topic="__consumer_offsets")
            assert codes(body, 12) == {0: ErrorCode.INVALID_TOPIC_EXCEPTION.code}
            body = begin(cluster.nodes[1], (0, make_batch(b"a")), topic_id=offsets_id)
            assert codes(body) == {0: ErrorCode.INVALID_TOPIC_EXCEPTION.code}
            body = begin(cluster.nodes[1], (0, make_batch(b"a")), version=12, topic="nobody")
            assert codes(body, 12) == {0: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.code}

    asyncio.run(run())


def test_produce_with_acks_all_is_refused_where_too_few_are_in_sync(cluster_of, make_batch):
    async def run():
        async with cluster_of(1, min_isr=2) as cluster:
            await cluster.create_topic(replicas=(1, 2))
            await cluster.elect(1, isr=(1,))
            body = begin(cluster.nodes[1], (0, make_batch(b"a")))
            assert codes(body) == {0: ErrorCode.NOT_ENOUGH_REPLICAS.code}
            assert codes(begin(cluster.nodes[1], (0, make_batch(b"a")), acks=1)) == {0: 0}

    asyncio.run(run())


@pytest.mark.parametrize("acks", [2, -2, 32_767])
def test_produce_with_other_acks_is_refused_for_each_partition(cluster_of, make_batch, acks):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=2)
            body = begin(cluster.nodes[1], (0, make_batch(b"a")), (1, make_batch(b"b")), acks=acks)
            assert codes(body) == dict.fromkeys((0, 1), ErrorCode.INVALID_REQUIRED_ACKS.code)
            assert cluster.partition(1).log.log_end_offset == 0

    asyncio.run(run())


def test_produce_with_acks_0_has_no_answer_and_an_error_closes_the_connection(cluster_of, make_batch):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            assert begin(cluster.nodes[1], (0, make_batch(b"a")), acks=0) is None
            assert cluster.partition(1).log.log_end_offset == 1
            with pytest.raises(CloseConnection, match=r"acks=0 .* t-7: "):
                begin(cluster.nodes[1], (0, make_batch(b"a")), (7, make_batch(b"a")), acks=0)
            assert cluster.partition(1).log.log_end_offset == 2
            with pytest.raises(CloseConnection, match="78787878"):
                begin(cluster.nodes[1], (0, make_batch(b"a")), acks=0, topic_id=b"x" * 16)

    asyncio.run(run())


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_of_versions_before_3_is_answered_unsupported_version(cluster_of, make_batch, version):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            body = b"".join(begin(cluster.nodes[1], (0, make_batch(b"a")), version=version, acks=1))
            assert body[:15] == b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\1" + b"\0\0\0\0"
            assert body[15:17] == b"\0\x23"
            assert cluster.partition(1).log.log_end_offset == 0
            with pytest.raises(CloseConnection):
                begin(cluster.nodes[1], (0, make_batch(b"a")), version=version, acks=0)

    asyncio.run(run())


def test_idempotent_batches_get_the_codes_of_the_producers_state(cluster_of):
    def batch(sequence, epoch=1):
        builder = RecordBatchBuilder()
        builder.append(None, b"v", [], 1_000)
        return builder.build(7, epoch, sequence)

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            offsets = [results(begin(cluster.nodes[1], (0, batch(s))))[0][0].base_offset for s in (0, 1, 0, 1)]
            assert offsets == [0, 1, 0, 1], "what is there already is answered as it was"
            assert codes(begin(cluster.nodes[1], (0, batch(5)))) == {0: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.code}
            assert codes(begin(cluster.nodes[1], (0, batch(0, 0)))) == {0: ErrorCode.INVALID_PRODUCER_EPOCH.code}

    asyncio.run(run())


def test_requests_to_new_partitions_are_appended_in_their_order_beside_the_event_loop(
    cluster_of, make_batch, monkeypatch
):
    loop_thread = threading.get_ident()
    founded_in = []
    complete = PartitionLog.create_folder

    def watched(log):
        founded_in.append(threading.get_ident())
        complete(log)

    monkeypatch.setattr(PartitionLog, "create_folder", watched)

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=MANY_NEW)
            node = cluster.nodes[1]
            first = begin(node, *((i, make_batch(b"a")) for i in range(20)))
            given_up = begin(node, (0, make_batch(b"given up")))
            given_up.cancel()
            # Partition 19 has its folder long before those that the first request waits for are all there.
            later = [begin(node, (index, make_batch(b"b"))) for index in (19, 0, 50)]
            assert all(isinstance(answer, asyncio.Future) for answer in later)
            assert codes(await first) == dict.fromkeys(range(20), 0)
            offsets = [results(await answer)[0] for answer in later]
            assert [found.popitem()[1].base_offset for found in offsets] == [1, 1, 0]
            assert isinstance(begin(node, (0, make_batch(b"c"))), list), "there is nothing to wait for any more"
        assert loop_thread not in founded_in

    asyncio.run(run())


def test_client_that_asks_for_no_answer_may_go_away_before_a_new_partition_has_its_folder(
    cluster_of, make_batch, wait_for
):
    """Received records are appended, as in Kafka."""

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=MANY_NEW)
            for steps in range(3):
                answer = begin(cluster.nodes[1], (steps, make_batch(b"a")), acks=0)
                for _ in range(steps):
                    await asyncio.sleep(0)
                answer.cancel()
                await wait_for(lambda steps=steps: cluster.partition(1, steps).log.log_end_offset == 1)

    asyncio.run(run())


def test_answer_of_a_topic_with_append_times_has_the_time_and_the_batch_its_crc(cluster_of, make_batch):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            config = dataclasses.replace(TopicConfig(), message_timestamp_type="LogAppendTime")
            cluster.partition(1).change_config(config)
            found, _ = results(begin(cluster.nodes[1], (0, make_batch(b"a"))))
            log = cluster.partition(1).log
            header = validate_batch(log.read(0, 1 << 20, 1))
            assert found[0].log_append_time.timestamp() * 1_000 == pytest.approx(header.max_timestamp)
            assert header.max_timestamp > 1_000
            assert header.timestamp_type == LOG_APPEND_TIME

    asyncio.run(run())


def test_snappy_of_either_framing_is_taken_and_left_as_it_is(cluster_of):
    """The Java client frames it, librdkafka does not."""
    builder = RecordBatchBuilder("snappy")
    builder.append(b"k", b"v" * 1_000, [], 1_000)
    framed = builder.build()
    plain = RecordBatchBuilder()
    plain.append(b"k", b"v" * 1_000, [], 1_000)
    raw = encode_batch(parse_header(framed), bytes(cramjam.snappy.compress_raw(plain.build()[HEADER_SIZE:])))

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            log = cluster.partition(1).log
            for policy in ("delete", "compact"):
                cluster.partition(1).change_config(dataclasses.replace(TopicConfig(), cleanup_policy=policy))
                for records in (framed, raw):
                    offset = results(begin(cluster.nodes[1], (0, records)))[0][0].base_offset
                    stored = log.read(offset, 1, log.log_end_offset)
                    assert stored[17:] == records[17:]
                    assert [r.value for r in read_records(stored)] == [b"v" * 1_000]

    asyncio.run(run())


def test_refused_records_are_named_by_their_places_in_the_batch(cluster_of):
    def batch(*records, compression="none"):
        builder = RecordBatchBuilder(compression)
        for key, timestamp in records:
            builder.append(key, b"v" * 100, [], timestamp)
        return builder.build()

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))

            def refused(records, version):
                [result] = results(begin(cluster.nodes[1], (0, records), version=version), version)[0].values()
                assert result.base_offset == -1
                return result.error_code.value, [e.batch_index for e in result.record_errors]

            cluster.partition(1).change_config(dataclasses.replace(TopicConfig(), cleanup_policy="compact"))
            for compression in ("none", "gzip"):
                keyless = batch((b"k", 1_000), (None, 1_000), (None, 1_000), compression=compression)
                for version in (8, 9, NEWEST):
                    assert refused(keyless, version) == (ErrorCode.INVALID_RECORD.code, [1, 2])
            many = batch(*[(None, 1_000)] * 500)
            assert refused(many, NEWEST) == (ErrorCode.INVALID_RECORD.code, list(range(100)))

            soon = int(time.time() * 1_000)
            limits = {"message_timestamp_before_max_ms": 1_000_000, "message_timestamp_after_max_ms": 1_000_000}
            cluster.partition(1).change_config(dataclasses.replace(TopicConfig(), **limits))
            untimely = batch((b"k", soon), (b"k", 1_000), (b"k", soon + 10_000_000), (b"k", -1))
            assert refused(untimely, NEWEST) == (ErrorCode.INVALID_TIMESTAMP.code, [1, 2])
            broken = bytearray(batch(*[(b"k", soon)] * 50, compression="gzip"))
            broken[70:80] = b"\0" * 10
            assert refused(with_attributes(broken, 0), NEWEST) == (ErrorCode.INVALID_RECORD.code, [])

    asyncio.run(run())


def test_versions_are_those_that_are_advertised():
    api = ProduceApi()
    assert (api.key, api.versions, api.flexible, api.overlaps) == (0, (0, 13), FLEXIBLE, True)


@pytest.mark.parametrize("version", [3, NEWEST])
def test_request_with_too_many_topics_and_partitions_is_malformed(version):
    count = handlers.MAX_PRODUCE_ELEMENTS
    if version < FLEXIBLE:
        body = struct.pack(">hhiih1si", -1, -1, 1_000, 1, 1, b"t", count)
    else:
        body = struct.pack(">Bhi", 0, -1, 1_000) + b"\2" + TOPIC_ID + b"\xa1\x9c\1"
    caller = Caller("PLAINTEXT", ClientIdentity("client", "/127.0.0.1"), version)
    request = Request(caller, 1, Reader(memoryview(bytearray(body + bytes(10 * count)))))
    with pytest.raises(
        MalformedMessageError, match=f"array before byte .* has {count} elements, at most {count - 1} are possible"
    ):
        ProduceApi().begin(KafkaNode(None, None), request)
