"""Large compressed batches are checked beside the event loop, in the order of their requests, within bounds."""

import asyncio
import contextlib
import dataclasses
import random
import threading

import cramjam
import pytest

from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.records import HEADER_SIZE, RecordBatchBuilder, encode_batch, parse_header, read_records
from tidelog_node import handlers
from tidelog_node.handlers import produce_admission
from tidelog_node.server import log_service

MIB = 1024 * 1024
TURNS_MEANWHILE = 10


def _batch(value, compression="gzip"):
    builder = RecordBatchBuilder(compression)
    builder.append(b"k", value, (), 1_000)
    return builder.build()


LARGE = _batch(bytes(32 * MIB))


def _request(*batches):
    items = [pb.ProducePartition(index=index, records=records) for index, records in batches]
    return pb.ProduceRequest(acks=pb.ACKS_ALL, timeout_ms=5_000, topics=[pb.ProduceTopic(name="t", partitions=items)])


async def _with_turns(answer):
    """Return an answer and how often the event loop had a turn for others meanwhile."""
    task, turns = asyncio.ensure_future(answer), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return task.result(), turns


async def _beside_the_thread(context, answer):
    """Return an answer that needs the node's thread, which is busy until the event loop has had turns for others."""
    with _busy_thread(context):
        task = asyncio.ensure_future(answer)
        for _ in range(TURNS_MEANWHILE):
            await asyncio.sleep(0)
        assert not task.done(), "it needs no thread"
    return await task


@contextlib.contextmanager
def _busy_thread(context):
    """Keep the node's thread from other work."""
    release = threading.Event()
    busy = asyncio.ensure_future(context.decoding.run_in_thread(lambda _: release.wait(30)))
    try:
        yield busy
    finally:
        release.set()


def _codes(response):
    return [item.error.code for item in response.topics[0].partitions]


def _empty_members():
    """Return a batch whose bytes are nearly all empty members of gzip: they cost time and become nothing."""
    builder = RecordBatchBuilder()
    builder.append(b"k", b"v", (), 1_000)
    plain = builder.build()
    member = bytes(cramjam.gzip.compress(b""))
    packed = bytes(cramjam.gzip.compress(plain[HEADER_SIZE:])) + member * (1_000_000 // len(member))
    return encode_batch(parse_header(plain)._replace(attributes=1), packed)


def _uncompressed():
    return _batch(random.Random(3).randbytes(900_000), "none")


@pytest.mark.costly
@pytest.mark.parametrize(
    ("topic_codec", "batch", "searches"),
    [
        ("producer", LARGE, True),
        ("lz4", LARGE, True),
        ("producer", _empty_members(), True),
        ("gzip", _uncompressed(), False),
    ],
    ids=["large", "large for another codec", "of empty members", "uncompressed for another codec"],
)
def test_loop_goes_on_while_a_large_batch_is_checked_and_searched(cluster_of, topic_codec, batch, searches):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,))
            partition = cluster.partition(1)
            partition.change_config(dataclasses.replace(partition.log.config, compression_type=topic_codec))
            context = cluster.nodes[1].context
            response = await _beside_the_thread(context, log_service.produce(context, _request((0, batch))))
            assert _codes(response) == [0]
            for timestamp_ms in (500, -3) if searches else ():
                item = pb.ListOffsetsPartition(index=0, timestamp_ms=timestamp_ms)
                request = pb.ListOffsetsRequest(topics=[pb.ListOffsetsTopic(name="t", partitions=[item])])
                found = await _beside_the_thread(context, handlers.list_offsets(context, request))
                assert (found.topics[0].partitions[0].offset, found.topics[0].partitions[0].timestamp_ms) == (0, 1_000)

    asyncio.run(run())


def test_batches_of_a_partition_keep_their_order_when_one_is_checked_in_the_thread(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=2)
            context = cluster.nodes[1].context
            with _busy_thread(context):
                first = asyncio.ensure_future(handlers.begin_produce(context, _request((0, LARGE))))
                await asyncio.sleep(0)
                second = asyncio.ensure_future(handlers.begin_produce(context, _request((0, _batch(b"small", "none")))))
                other = await handlers.begin_produce(context, _request((1, _batch(b"small", "none"))))
                assert [outcome.base_offset for outcome in other.outcomes[0].partitions] == [0]
                assert not second.done(), "a batch overtook the one before"
            offsets = [(await pending).outcomes[0].partitions[0].base_offset for pending in (first, second)]
            assert offsets == [0, 1]
            assert parse_header(cluster.partition(1).log.read(0, 1, 2)).compression == "gzip"

    asyncio.run(run())


def _many_bytes(partitions):
    return _request(*[(index, _uncompressed()) for index in range(partitions)])


async def _until_appended(log):
    for _ in range(1_000_000):
        if log.log_end_offset:
            return
        await asyncio.sleep(0)
    pytest.fail("nothing is appended")


def test_loop_goes_on_while_a_request_of_many_bytes_is_appended(cluster_of, monkeypatch):
    monkeypatch.setattr("tidelog_foundation.time_slices.SLICE_S", 0.0)

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=20)
            context = cluster.nodes[1].context
            assert handlers.try_begin_produce(context, _many_bytes(4)) is not None, "few bytes need no turn"
            response, turns = await _with_turns(log_service.produce(context, _many_bytes(20)))
            assert _codes(response) == [0] * 20
            assert turns > TURNS_MEANWHILE

    asyncio.run(run())


def test_batches_of_a_partition_keep_their_order_when_the_appends_of_a_request_give_way(cluster_of, monkeypatch):
    monkeypatch.setattr("tidelog_foundation.time_slices.SLICE_S", 0.0)

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=21)
            context = cluster.nodes[1].context
            first = asyncio.ensure_future(handlers.begin_produce(context, _many_bytes(20)))
            await _until_appended(cluster.partition(1, 0).log)
            last = cluster.partition(1, 19).log
            assert last.log_end_offset == 0, "nothing gave way"
            second = asyncio.ensure_future(handlers.begin_produce(context, _request((19, _batch(b"later", "none")))))
            other = await handlers.begin_produce(context, _request((20, _batch(b"other", "none"))))
            assert [outcome.base_offset for outcome in other.outcomes[0].partitions] == [0]
            assert not first.done()
            assert [outcome.base_offset for outcome in (await first).outcomes[0].partitions] == [0] * 20
            assert [outcome.base_offset for outcome in (await second).outcomes[0].partitions] == [1]

    asyncio.run(run())


def test_request_that_is_cancelled_amid_its_appends_leaves_the_partitions_to_others(cluster_of, monkeypatch):
    monkeypatch.setattr("tidelog_foundation.time_slices.SLICE_S", 0.0)

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=20)
            context = cluster.nodes[1].context
            first = asyncio.ensure_future(handlers.begin_produce(context, _many_bytes(20)))
            await _until_appended(cluster.partition(1, 0).log)
            first.cancel()
            response = await log_service.produce(context, _request((0, _batch(b"k")), (19, _batch(b"k"))))
            assert [item.base_offset for item in response.topics[0].partitions] == [1, 0]

    asyncio.run(run())


def test_large_batch_is_refused_for_what_is_in_it_and_the_rest_of_its_request_is_appended(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=2)
            context = cluster.nodes[1].context
            oversized = _batch(bytes(65 * MIB), "zstd")
            response = await log_service.produce(context, _request((0, oversized), (1, LARGE)))
            assert _codes(response) == [ErrorCode.MESSAGE_TOO_LARGE.code, 0]
            text = response.topics[0].partitions[0].error.message
            assert "at most 64 times max.message.bytes (1048588)" in text
            assert [cluster.partition(1, index).log.log_end_offset for index in (0, 1)] == [0, 1]

    asyncio.run(run())


def test_request_has_a_bound_on_what_its_batches_decompress_to(cluster_of, monkeypatch):
    monkeypatch.setattr(produce_admission, "MAX_REQUEST_PLAIN_BYTES", 60 * MIB)

    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=4)
            request = _request(*[(index, LARGE) for index in range(4)])
            response = await log_service.produce(cluster.nodes[1].context, request)
            assert _codes(response) == [0, 0, *[ErrorCode.MESSAGE_TOO_LARGE.code] * 2]
            text = response.topics[0].partitions[3].error.message
            assert f"the batches of the request decompress to more than {60 * MIB} bytes" in text

    asyncio.run(run())


@pytest.mark.parametrize("times", [2, 3_000])
def test_partition_that_a_request_names_more_than_once_gets_nothing(cluster_of, times):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=2)
            request = _request(*[(0, _batch(bytes(100_000)))] * times, (1, _batch(b"b", "none")))
            response = await log_service.produce(cluster.nodes[1].context, request)
            assert _codes(response) == [*[ErrorCode.INVALID_REQUEST.code] * times, 0]
            text = f"the request has {times} batches for t-0"
            assert {item.error.message for item in response.topics[0].partitions[:times]} == {text}
            assert [cluster.partition(1, index).log.log_end_offset for index in (0, 1)] == [0, 1]

    asyncio.run(run())


def test_small_compressed_batches_are_checked_without_a_pause_up_to_a_bound(cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            await cluster.create_topic(replicas=(1,), partitions=20)
            context = cluster.nodes[1].context
            few = [(index, _batch(bytes(100_000))) for index in range(10)]
            assert handlers.try_begin_produce(context, _request(*few)) is not None
            many = [(index, _batch(bytes(100_000))) for index in range(20)]
            assert handlers.try_begin_produce(context, _request(*many)) is None
            slow = [(index, _batch(random.Random(3).randbytes(15_000))) for index in range(20)]
            assert handlers.try_begin_produce(context, _request(*slow)) is not None, "they are not compressed"
            slow = [(index, _batch(random.Random(3).randbytes(7_500).hex().encode())) for index in range(20)]
            assert handlers.try_begin_produce(context, _request(*slow)) is None
            [value] = [record.value for record in read_records(cluster.partition(1, 9).log.read(0, 1, 1))]
            assert value == bytes(100_000)

    asyncio.run(run())
