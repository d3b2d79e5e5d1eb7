"""The port of health checks."""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest
from google.protobuf.message import Message
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tidelog.v1 import admin_service_pb2, admin_service_pb2_grpc
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.transport.budget import ByteBudget
from tidelog_foundation.transport.health import HealthPort
from tidelog_foundation.transport.intake import Charge, Intake
from tidelog_foundation.transport.services import Call, Caller, Method, Service, add_servicer

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
ADMIN = admin_service_pb2.DESCRIPTOR.services_by_name["AdminService"]


def test_health_port_answers_checks_and_no_other_service() -> None:
    async def run() -> None:
        port = HealthPort("127.0.0.1:0", health.aio.HealthServicer())
        await port.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port.port}") as channel:
            answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            request, stub = admin_service_pb2.DescribeClusterRequest(), admin_service_pb2_grpc.AdminServiceStub(channel)
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.DescribeCluster(request, timeout=5)
            assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        with pytest.raises(ConfigError, match="Address already in use"):
            HealthPort(f"127.0.0.1:{port.port}", health.aio.HealthServicer())
        await port.stop()

    asyncio.run(run())


def test_health_port_without_an_address_does_nothing() -> None:
    async def run() -> None:
        port = HealthPort(None, health.aio.HealthServicer())
        await port.start()
        await port.stop()

    asyncio.run(run())


def test_health_checks_that_do_not_end_leave_room_for_other_calls() -> None:
    async def run() -> None:
        server = grpc.aio.server(maximum_concurrent_rpcs=100)
        intake = Intake(Charge(ByteBudget(1)))
        add_servicer(server, intake, HEALTH, health.aio.HealthServicer())
        methods: dict[str, Method] = {m.name: Call(_nothing, Message, Message) for m in ADMIN.methods}
        Service(ADMIN, methods).add_to(server, intake)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch
            watches = [watch(health_pb2.HealthCheckRequest()) for _ in range(120)]
            answers = await asyncio.gather(*(each.read() for each in watches), return_exceptions=True)
            assert 0 < sum(not isinstance(answer, Exception) for answer in answers) <= 64
            describe = admin_service_pb2_grpc.AdminServiceStub(channel).DescribeCluster
            await describe(admin_service_pb2.DescribeClusterRequest(), timeout=5)
            for each in watches:
                each.cancel()
        await server.stop(0)

    asyncio.run(run())


async def _nothing(_: object, caller: Caller) -> admin_service_pb2.DescribeClusterResponse:
    return admin_service_pb2.DescribeClusterResponse()
