import asyncio
import contextlib
import socket

import grpc.aio
import pytest

from tidelog.v1 import controller_service_pb2 as pb
from tidelog.v1 import quorum_service_pb2 as quorum_pb
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceServicer, add_ControllerServiceServicer_to_server
from tidelog.v1.quorum_service_pb2_grpc import QuorumServiceServicer, add_QuorumServiceServicer_to_server
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.requests.brokers import BrokerHeartbeatRequest
from tidelog_foundation.requests.quorum import DescribeQuorumRequest
from tidelog_foundation.transport import abort_with, server_options
from tidelog_node.server import controller_client
from tidelog_node.server.controller_client import ControllerClient

REQUEST = BrokerHeartbeatRequest(broker_id=1, broker_epoch=0)


class FakeControllerService(ControllerServiceServicer):
    """Answers heartbeats as ``answer`` says; counts them."""

    def __init__(self, answer):
        self.answer = answer
        self.calls = 0

    async def BrokerHeartbeat(self, request, context):
        self.calls += 1
        return await self.answer(context)


@contextlib.asynccontextmanager
async def controllers(*answers):
    services = [FakeControllerService(answer) for answer in answers]
    servers, voters = [], {}
    for index, service in enumerate(services):
        server = grpc.aio.server(options=server_options())
        add_ControllerServiceServicer_to_server(service, server)
        voters[index + 1] = ("127.0.0.1", server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        servers.append(server)
    client = ControllerClient(voters)
    try:
        yield client, services, voters
    finally:
        await client.close()
        for server in servers:
            await server.stop(0)


async def leads(context):
    return pb.BrokerHeartbeatResponse(is_caught_up=True)


async def hangs(context):
    await asyncio.sleep(60)


def follows(hint=None):
    async def answer(context):
        details = [("tidelog-leader-endpoint", hint())] if hint else []
        await abort_with(context, error_for(ErrorCode.NOT_CONTROLLER, "not me"), details)

    return answer


def test_call_follows_the_hint_to_the_leader_and_stays_there():
    async def run():
        addresses = {}
        hint = follows(lambda: f"127.0.0.1:{addresses[3][1]}")
        async with controllers(hint, leads, leads) as (client, services, voters):
            addresses.update(voters)
            for _ in range(3):
                assert (await client.broker_heartbeat(REQUEST, 5)).is_caught_up
            assert [s.calls for s in services] == [1, 0, 3]

    asyncio.run(run())


def test_call_follows_a_hint_to_a_controller_that_has_joined_since():
    async def run():
        async with controllers(leads) as (_, joined, voters):
            hint = follows(lambda: f"127.0.0.1:{voters[1][1]}")
            async with controllers(hint, hint) as (client, services, _):
                for _ in range(2):
                    assert (await client.broker_heartbeat(REQUEST, 5)).is_caught_up
                assert [s.calls for s in (*services, *joined)] == [1, 0, 2]

    asyncio.run(run())


def test_client_calls_the_voters_that_it_was_told_of_and_then_the_configured_ones():
    async def run():
        async with controllers(follows()) as (_, gone, voters), controllers(follows()) as (client, old, configured):
            view = client.voters
            assert view == configured
            client.set_voters({9: voters[1], 4: ("127.0.0.1", 1)})
            assert list(view) == [4, 9]
            with pytest.raises(TidelogError, match="no controller answered"):
                await client.broker_heartbeat(REQUEST, 0.6)
            assert old[0].calls > 0
            assert gone[0].calls > 0

    asyncio.run(run())


def test_call_passes_over_a_controller_that_is_gone_or_silent(monkeypatch):
    monkeypatch.setattr(controller_client, "_ATTEMPT_TIMEOUT_S", 0.2)

    async def run():
        async with controllers(hangs, follows(), leads) as (client, services, _):
            assert (await client.broker_heartbeat(REQUEST, 5)).is_caught_up
            assert services[2].calls == 1

    asyncio.run(run())


def test_heartbeat_passes_over_a_silent_controller_as_soon_as_it_is_told_to():
    async def run():
        async with controllers(hangs, leads) as (client, services, _), asyncio.timeout(1.5):
            assert (await client.broker_heartbeat(REQUEST, 5, 0.2)).is_caught_up
            assert [service.calls for service in services] == [1, 1]

    asyncio.run(run())


def test_call_finds_the_leader_from_a_bootstrap_controller_and_learns_the_voters():
    async def run():
        async with controllers(follows(lambda: leader), leads) as (_, services, voters):
            leader = "{}:{}".format(*voters[2])
            client = ControllerClient({}, [voters[1]])
            assert client.voters == {}
            assert (await client.broker_heartbeat(REQUEST, 5)).is_caught_up
            client.set_voters({2: voters[2]})
            assert client.voters == {2: voters[2]}
            assert (await client.broker_heartbeat(REQUEST, 5)).is_caught_up
            assert [service.calls for service in services] == [1, 2]
            await client.close()

    asyncio.run(run())


def test_call_ends_in_time_when_nobody_leads():
    async def run():
        async with controllers(follows(), follows()) as (client, _, _):
            with pytest.raises(TidelogError, match="no controller answered") as raised:
                await client.broker_heartbeat(REQUEST, 0.4)
            assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT

    asyncio.run(run())


def test_call_raises_the_leaders_own_error():
    async def refuses(context):
        await abort_with(context, error_for(ErrorCode.STALE_BROKER_EPOCH, "old"))

    async def run():
        async with controllers(refuses) as (client, services, _):
            with pytest.raises(TidelogError, match="old") as raised:
                await client.broker_heartbeat(REQUEST, 5)
            assert raised.value.code is ErrorCode.STALE_BROKER_EPOCH
            assert services[0].calls == 1

    asyncio.run(run())


def test_call_tries_again_while_no_controller_is_up_yet():
    async def run():
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        client = ControllerClient({1: ("127.0.0.1", port)})
        call = asyncio.create_task(client.broker_heartbeat(REQUEST, 10))
        await asyncio.sleep(0.2)
        server = grpc.aio.server(options=server_options())
        add_ControllerServiceServicer_to_server(FakeControllerService(leads), server)
        server.add_insecure_port(f"127.0.0.1:{port}")
        await server.start()
        assert (await call).is_caught_up
        await client.close()
        await server.stop(0)

    asyncio.run(run())


def test_describe_quorum_asks_the_leading_controller():
    class FakeQuorumService(QuorumServiceServicer):
        def __init__(self, leads):
            self.leads = leads

        async def DescribeQuorum(self, request, context):
            if not self.leads:
                await abort_with(context, error_for(ErrorCode.NOT_CONTROLLER, "not me"))
            return quorum_pb.DescribeQuorumResponse(leader_id=2, high_watermark=9)

    async def run():
        servers, voters = [], {}
        for voter_id in (1, 2):
            server = grpc.aio.server(options=server_options())
            add_QuorumServiceServicer_to_server(FakeQuorumService(voter_id == 2), server)
            voters[voter_id] = ("127.0.0.1", server.add_insecure_port("127.0.0.1:0"))
            await server.start()
            servers.append(server)
        client = ControllerClient(voters)
        try:
            quorum = await client.ask(DescribeQuorumRequest(), 5.0)
            assert (quorum.leader_id, quorum.high_watermark) == (2, 9)
        finally:
            await client.close()
            for server in servers:
                await server.stop(0)

    asyncio.run(run())
