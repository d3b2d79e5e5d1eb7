"""The call that a node leaves open goes to the controller that answers its heartbeats."""

import asyncio
import contextlib

import grpc.aio

from tidelog.v1 import controller_service_pb2 as pb
from tidelog.v1.controller_service_pb2_grpc import ControllerServiceServicer, add_ControllerServiceServicer_to_server
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_foundation.ids import BrokerEpoch, BrokerId
from tidelog_foundation.requests.brokers import BrokerHeartbeatRequest
from tidelog_foundation.transport import abort_with, server_options
from tidelog_node.server.controller_client import ControllerClient
from tidelog_node.server.lifecycle import LivenessConnection


class FakeControllerService(ControllerServiceServicer):
    """Leads or points to another one; ``held`` are the registrations whose connections are open now."""

    def __init__(self):
        self.held = []
        self.calls = 0
        self.leader = None
        self.resigned = asyncio.Event()

    async def BrokerHeartbeat(self, request, context):
        if self.leader is not None:
            details = [("tidelog-leader-endpoint", self.leader)]
            await abort_with(context, error_for(ErrorCode.NOT_CONTROLLER, "not me"), details)
        return pb.BrokerHeartbeatResponse()

    async def HoldConnection(self, request, context):
        held = request.broker_id, request.broker_epoch
        self.calls += 1
        self.held.append(held)
        try:
            await self.resigned.wait()
            await abort_with(context, error_for(ErrorCode.NOT_CONTROLLER, "no more"))
        finally:
            self.held.remove(held)


class World:
    def __init__(self, services, client, connection, addresses):
        self.services = services
        self.client = client
        self.connection = connection
        self.addresses = addresses

    async def heartbeat(self, epoch):
        await self.client.broker_heartbeat(BrokerHeartbeatRequest(broker_id=7, broker_epoch=epoch), 5)
        self.connection.hold(BrokerEpoch(epoch))


@contextlib.asynccontextmanager
async def world():
    services, servers, voters = [FakeControllerService(), FakeControllerService()], [], {}
    for index, service in enumerate(services):
        server = grpc.aio.server(options=server_options())
        add_ControllerServiceServicer_to_server(service, server)
        voters[index + 1] = ("127.0.0.1", server.add_insecure_port("127.0.0.1:0"))
        await server.start()
        servers.append(server)
    client = ControllerClient(voters)
    connection = LivenessConnection(BrokerId(7), client)
    task = asyncio.create_task(connection.run(), name="controller-connection")
    try:
        async with asyncio.timeout(10):
            yield World(services, client, connection, [f"{host}:{port}" for host, port in voters.values()])
    finally:
        task.cancel()
        await asyncio.wait([task])
        await client.close()
        for server in servers:
            await server.stop(0)


def test_node_holds_one_connection_however_many_heartbeats_it_sends(wait_for):
    async def run():
        async with world() as w:
            for _ in range(3):
                await w.heartbeat(20)
                await wait_for(lambda: w.services[0].held == [(7, 20)])
            assert w.services[0].calls == 1

    asyncio.run(run())


def test_node_holds_the_connection_of_its_present_registration(wait_for):
    async def run():
        async with world() as w:
            await w.heartbeat(20)
            await wait_for(lambda: w.services[0].held == [(7, 20)])
            await w.heartbeat(30)
            await wait_for(lambda: w.services[0].held == [(7, 30)])

    asyncio.run(run())


def test_node_holds_a_connection_to_the_next_leader_and_no_more_to_a_silent_one(wait_for):
    async def run():
        async with world() as w:
            await w.heartbeat(20)
            await wait_for(lambda: w.services[0].held)
            w.services[0].leader = w.addresses[1]
            await w.heartbeat(20)
            await wait_for(lambda: w.services[1].held == [(7, 20)] and not w.services[0].held)

    asyncio.run(run())


def test_node_holds_the_connection_again_with_the_next_heartbeat_when_it_has_ended(wait_for):
    async def run():
        async with world() as w:
            await w.heartbeat(20)
            await wait_for(lambda: w.services[0].held)
            w.services[0].resigned.set()
            await wait_for(lambda: not w.services[0].held)
            w.services[0].resigned.clear()
            while not w.services[0].held:
                # The end of the first one comes to the node in its own time.
                await w.heartbeat(20)

    asyncio.run(run())


def test_connection_breaks_for_the_controller_when_the_node_ends(wait_for):
    async def run():
        async with world() as w:
            await w.heartbeat(20)
            await wait_for(lambda: w.services[0].held)
            await w.client.close()
            await wait_for(lambda: not w.services[0].held)

    asyncio.run(run())
