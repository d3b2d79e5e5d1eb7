"""Messages of strangers and broken controllers: they cost the sender its stream, and affect no other peer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc.aio
import pytest

from tidelog.v1 import common_pb2
from tidelog.v1 import raft_service_pb2 as pb
from tidelog.v1.raft_service_pb2_grpc import RaftServiceStub
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.security import Principal
from tidelog_foundation.transport import error_from_rpc, open_channel
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.network import receiver

Engines = Callable[..., Any]
WaitUntil = Callable[..., Any]
CLUSTER_ID = "raft-tests"


def hello(sender_id: int, host: str = "127.0.0.1", port: int = 1, cluster_id: str = CLUSTER_ID) -> pb.ExchangeRequest:
    endpoint = common_pb2.ControllerEndpoint(host=host, port=port)
    return pb.ExchangeRequest(
        hello=pb.RaftHello(cluster_id=cluster_id, sender_id=sender_id, receiver_id=1, sender_endpoints=[endpoint])
    )


async def refusal(address: str, *frames: pb.ExchangeRequest) -> tuple[ErrorCode, str]:
    """Say all that, never end the stream, and return why it was ended."""

    async def requests() -> AsyncIterator[pb.ExchangeRequest]:
        for frame in frames:
            yield frame
        await asyncio.Event().wait()

    async with open_channel(address) as channel:
        try:
            async with asyncio.timeout(7):
                async for _ in RaftServiceStub(channel).Exchange(requests()):
                    pass
        except grpc.aio.AioRpcError as rpc_error:
            error = error_from_rpc(rpc_error)
            return error.code, error.message
    raise AssertionError("the stream ended without a reason")


def append_response(sender_id: int, term: int, match_index: int) -> pb.RaftMessage:
    response = pb.AppendResponse(success=True, match_index=match_index)
    return pb.RaftMessage(sender_id=sender_id, term=term, append_response=response)


def follow_request(sender_id: int, last_index: int = 0) -> pb.RaftMessage:
    return pb.RaftMessage(sender_id=sender_id, term=0, follow_request=pb.FollowRequest(last_index=last_index))


@pytest.mark.parametrize("last_index", [0, 2**63 - 1])
def test_leader_survives_an_observer_that_claims_more_than_there_is(
    new_engines: Engines, wait_until: WaitUntil, last_index: int
) -> None:
    async def run() -> None:
        async with new_engines(1, RaftConfig(heartbeat_interval_ms=20)) as cluster:
            leader = await cluster.settled_leader()
            term, address = leader.engine.leader.epoch, "{}:{}".format(*cluster.addresses[1])
            lies = [follow_request(9, last_index), append_response(9, term, 2**62), follow_request(9)]
            frames = [hello(9), pb.ExchangeRequest(messages=lies), pb.ExchangeRequest(messages=[pb.RaftMessage()])]
            assert (await refusal(address, *frames))[0] is ErrorCode.INVALID_REQUEST
            # Longer than until the next heartbeats.
            for _ in range(30):
                index = leader.engine.propose(b"x", term)
                await wait_until(lambda index=index: leader.listener.last_index >= index)
                await asyncio.sleep(0.01)

    asyncio.run(run())


def test_receiver_refuses_a_large_hello_with_few_words(new_engines: Engines, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with new_engines(1) as cluster:
            await cluster.settled_leader()
            address = "{}:{}".format(*cluster.addresses[1])
            code, text = await refusal(address, hello(9, cluster_id="c" * 1_000_000))
            assert code is ErrorCode.INVALID_REQUEST
            assert len(text) < 300

    asyncio.run(run())
    assert max(len(record.getMessage()) for record in caplog.records) < 1_000


@pytest.mark.parametrize(("host", "port"), [("", 9093), ("h", 0), ("h", -1), ("h", 70_000), ("h" * 300, 9093)])
def test_receiver_refuses_an_observer_that_cannot_be_reached(new_engines: Engines, host: str, port: int) -> None:
    async def run() -> None:
        async with new_engines(1) as cluster:
            await cluster.settled_leader()
            address = "{}:{}".format(*cluster.addresses[1])
            assert (await refusal(address, hello(9, host, port)))[0] is ErrorCode.INVALID_REQUEST

    asyncio.run(run())


def test_receiver_refuses_callers_that_its_listener_does_not_identify() -> None:
    def identify(_: object) -> Principal:
        raise error_for(ErrorCode.SASL_AUTHENTICATION_FAILED, "no rule matches")

    async def run() -> None:
        server = grpc.aio.server()
        receiver.add_raft_service(receiver.RaftReceiver(lambda *_: None), server, identify)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        try:
            code, text = await refusal(f"127.0.0.1:{port}", hello(9))
            assert (code, text) == (ErrorCode.SASL_AUTHENTICATION_FAILED, "no rule matches")
        finally:
            await server.stop(0)

    asyncio.run(run())


def test_receiver_ends_a_stream_without_a_hello(new_engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "_HELLO_TIMEOUT_S", 0.1)

    async def run() -> None:
        async with new_engines(1) as cluster:
            await cluster.settled_leader()
            code, _ = await refusal("{}:{}".format(*cluster.addresses[1]))
            assert code is ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(run())


def test_receiver_ends_the_oldest_of_too_many_streams_of_one_sender(
    new_engines: Engines, wait_until: WaitUntil
) -> None:
    async def run() -> None:
        async with new_engines(1) as cluster:
            await cluster.settled_leader()
            address = "{}:{}".format(*cluster.addresses[1])
            async with open_channel(address) as channel:
                calls = [RaftServiceStub(channel).Exchange() for _ in range(20)]
                for call in calls:
                    await call.write(hello(9))
                    assert isinstance(await call.read(), pb.ExchangeResponse)
                await wait_until(lambda: [call.done() for call in calls] == [True] * 12 + [False] * 8)
                for call in calls:
                    call.cancel()

    asyncio.run(run())


def test_peers_do_not_fill_the_log_file_about_a_name_that_is_none(
    new_engines: Engines, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with new_engines(1, bootstrap=[("h" * 64, 9093), ("a\0b", 9093)]) as cluster:
            await cluster.settled_leader()
            await asyncio.sleep(0.3)

    asyncio.run(run())
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []
    assert sum("h" * 64 in r.getMessage() for r in caplog.records) == 1
