"""The contract of followers' transport to their leaders, over gRPC and over the Kafka listener.

The last tests are of the Kafka side alone: its connections, and peers that answer wrongly.
"""

import asyncio
import contextlib
import socket
import struct
import tracemalloc

import pytest

from tests.support.node_listeners import grpc_listener, kafka_listener
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records import RecordBatchBuilder, assign_offsets, read_records
from tidelog_node.fetching import FetchRequest, FetchSpec, SessionStep
from tidelog_node.kafka.apis.api_versions import ApiVersionsApi
from tidelog_node.kafka.apis.fetch import FetchApi
from tidelog_node.kafka.client.replica_transport import KafkaReplicaTransport
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.log import LogConfig, PartitionLog
from tidelog_node.replication import EpochEnd
from tidelog_node.server.grpc_replica_transport import GrpcReplicaTransport

TOPIC_ID = b"0123456789abcdef"
CLUSTER_ID = "test-cluster"
LONG_MS = 30_000


@contextlib.asynccontextmanager
async def over_grpc(context):
    transport = GrpcReplicaTransport()
    async with grpc_listener(context) as address:
        try:
            yield transport, address
        finally:
            await transport.close()


@contextlib.asynccontextmanager
async def over_kafka(context, apis=None):
    apis = apis or {ApiKey.FETCH: FetchApi()}
    served = {ApiKey.API_VERSIONS: ApiVersionsApi(lambda: served), **apis}
    transport = KafkaReplicaTransport("node-2-fetcher")
    async with kafka_listener(context, served) as address:
        try:
            yield transport, address
        finally:
            await transport.close()


@pytest.fixture(params=[over_grpc, over_kafka], ids=["grpc", "kafka"])
def serving(request):
    return request.param


def follower_request(offset, session=(0, 0), max_wait_ms=0, last_epoch=None, cluster_id=CLUSTER_ID, **options):
    spec = FetchSpec(TOPIC_ID, offset, 1 << 20, 0, last_epoch, 0)
    step = SessionStep(*session, **options)
    wanted = {} if session[1] > 0 else {(TOPIC_ID, 0): spec}
    return FetchRequest(wanted, 1 << 20, max_wait_ms, 1, (2, 0), cluster_id=cluster_id, session=step)


async def lead(cluster, *values):
    """Let node 1 lead with records, and node 2 follow by the test's own hands."""
    await cluster.create_topic(replicas=(1, 2))
    cluster.nodes[2].fetchers.stop_all()
    for value in values:
        await cluster.produce(1, value, acks=2)


def test_fetch_brings_what_the_leader_has(cluster_of, serving):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await lead(cluster, b"a" * 10_000, b"b")
            async with serving(cluster.nodes[1].context) as (transport, address):
                response = await transport.fetch(address, follower_request(0), 5)
                result = response.results[TOPIC_ID, 0]
                assert [r.value for r in read_records(bytes(result.records))] == [b"a" * 10_000]
                assert bytes(result.records) == cluster.partition(1).log.read(0, 1 << 20, 2)
                assert (result.error, result.high_watermark, result.log_start_offset) == (None, 0, 0)
                assert response.session_id > 0

    asyncio.run(run())


def test_follower_takes_the_records_as_they_came(cluster_of, serving):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await lead(cluster, b"a" * 10_000, b"b")
            async with serving(cluster.nodes[1].context) as (transport, address):
                follower, offset = cluster.partition(2), 0
                while offset < 2:
                    response = await transport.fetch(address, follower_request(offset), 5)
                    [result] = response.results.values()
                    follower.replicate(0, offset, result.records, result.high_watermark, result.log_start_offset)
                    offset = follower.log.log_end_offset
                assert follower.log.read(0, 1 << 20, 2) == cluster.partition(1).log.read(0, 1 << 20, 2)

    asyncio.run(run())


def test_errors_of_partitions_and_sessions_are_in_the_response_and_those_of_the_call_are_raised(cluster_of, serving):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await lead(cluster, b"a")
            async with serving(cluster.nodes[1].context) as (transport, address):
                out = (await transport.fetch(address, follower_request(9, last_epoch=9), 5)).results[TOPIC_ID, 0]
                assert out.error.code is ErrorCode.OFFSET_OUT_OF_RANGE
                diverging = (await transport.fetch(address, follower_request(9, last_epoch=0), 5)).results[TOPIC_ID, 0]
                assert diverging.diverging == EpochEnd(0, 1)
                lost = await transport.fetch(address, follower_request(0, session=(5, 1)), 5)
                assert lost.error.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
                with pytest.raises(TidelogError) as refused:
                    await transport.fetch(address, follower_request(0, cluster_id="another"), 5)
                assert refused.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID

    asyncio.run(run())


def test_poll_that_waits_is_ended_by_another_call(cluster_of, serving):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await lead(cluster)
            async with serving(cluster.nodes[1].context) as (transport, address):
                session = (await transport.fetch(address, follower_request(0), 5)).session_id
                poll = asyncio.create_task(
                    transport.fetch(address, follower_request(0, (session, 1), LONG_MS), LONG_MS)
                )
                await transport.fetch(address, follower_request(0, (session, 1), ends_wait=True), 5)
                assert (await asyncio.wait_for(poll, 5)).session_id == session

    asyncio.run(run())


def test_calls_that_are_given_up_or_too_late_do_not_spoil_the_next(cluster_of, serving):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await lead(cluster)
            async with serving(cluster.nodes[1].context) as (transport, address):
                for _ in range(3):
                    session = (await transport.fetch(address, follower_request(0), 5)).session_id
                    waiting = follower_request(0, (session, 1), LONG_MS)
                    poll = asyncio.create_task(transport.fetch(address, waiting, 5))
                    await asyncio.sleep(0.02)
                    poll.cancel()
                    await asyncio.wait([poll])
                    session = (await transport.fetch(address, follower_request(0), 5)).session_id
                    with pytest.raises(TidelogError) as late:
                        await transport.fetch(address, follower_request(0, (session, 1), LONG_MS), 0.05)
                    assert late.value.code is ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(run())


def test_leader_that_cannot_be_reached_is_an_error_that_may_be_tried_again(serving, cluster_of):
    async def run():
        async with cluster_of(1) as cluster:
            async with serving(cluster.nodes[1].context) as (_, address):
                pass
            for transport in (GrpcReplicaTransport(), KafkaReplicaTransport("node-2-fetcher")):
                with pytest.raises(TidelogError) as failed:
                    await transport.fetch(address, follower_request(0), 5)
                assert failed.value.code.retriable
                await transport.close()

    asyncio.run(run())


def test_kafka_connections_are_used_again_and_a_call_that_waits_keeps_none_from_others(cluster_of):
    async def run():
        async with cluster_of(1, 2) as cluster:
            await lead(cluster)
            async with over_kafka(cluster.nodes[1].context) as (transport, address):
                opened = transport._connections._address_of
                session = (await transport.fetch(address, follower_request(0), 5)).session_id
                for epoch in range(1, 6):
                    poll = asyncio.create_task(transport.fetch(address, follower_request(0, (session, epoch), 20), 5))
                    await asyncio.sleep(0)
                    await transport.fetch(address, follower_request(0, (0, -1)), 5)
                    assert (await poll).error is None
                assert len(opened) == 2

    asyncio.run(run())


def test_kafka_host_that_is_gone_without_a_word_is_noticed(cluster_of):
    """A poll would wait for its whole time on a path on which nothing comes any more."""

    async def run():
        async with cluster_of(1, 2) as cluster:
            await lead(cluster)
            async with over_kafka(cluster.nodes[1].context) as (transport, address):
                await transport.fetch(address, follower_request(0), 5)
                [connection] = transport._connections._address_of
                connected = connection._transport.get_extra_info("socket")
                assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 15_000
            assert transport._connections._free == {}, "an address that nobody has any more"

    asyncio.run(run())


class OldFetch(FetchApi):
    versions = (4, 12)


def test_kafka_leader_of_too_few_versions_is_told_with_its_versions(cluster_of):
    async def run():
        async with (
            cluster_of(1) as cluster,
            over_kafka(cluster.nodes[1].context, {ApiKey.FETCH: OldFetch()}) as (transport, address),
        ):
            with pytest.raises(TidelogError, match=f"{address} serves FETCH in versions 4 to 12, 15 to 18") as refused:
                await transport.fetch(address, follower_request(0), 5)
            assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION

    asyncio.run(run())


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol"),
        (struct.pack(">ii", 4, 99), "a response to request 99"),
        (struct.pack(">i", -1), "does not speak"),
        (struct.pack(">iih", 6, 1, 0), "does not speak"),
        (struct.pack(">iihi", 10, 1, 0, 2**31 - 1), "array before byte"),
        (b"", "it was closed"),
    ],
    ids=["http", "another-id", "negative-size", "short", "many-elements", "closed"],
)
def test_kafka_peer_that_answers_nonsense_is_an_error_that_says_so(answer, told):
    async def run():
        served = asyncio.Event()

        async def serve(reader, writer):
            with contextlib.suppress(ConnectionError):
                await reader.read(1)
                writer.write(answer)
                if not answer:
                    writer.close()
                await reader.read()
                writer.close()
                await writer.wait_closed()
            served.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        transport = KafkaReplicaTransport("node-2-fetcher")
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(TidelogError, match=told) as failed:
            await transport.fetch(address, follower_request(0), 5)
        assert failed.value.code is ErrorCode._TRANSPORT
        await transport.close()
        await served.wait()
        server.close()
        await server.wait_closed()

    asyncio.run(run())


def test_what_was_received_is_appended_without_a_copy(tmp_path):
    builder = RecordBatchBuilder()
    builder.extend([b"v" * 1_000] * 1_000, timestamp_ms=1)
    received = memoryview(bytearray(b"header!" + builder.build()))
    assign_offsets(received[7:], base_offset=0, leader_epoch=0)
    log = PartitionLog.open(tmp_path / "t-0", LogConfig())
    try:
        log.append_as_follower(received[7:], 1)
        log.truncate_fully_and_start_at(0)
        tracemalloc.start()
        log.append_as_follower(received[7:], 1)
        assert tracemalloc.get_traced_memory()[1] < len(received) // 4
    finally:
        tracemalloc.stop()
        log.close()
    assert log.log_end_offset == 1_000
