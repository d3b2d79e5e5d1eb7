"""The port of health checks."""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tidelog.v1 import admin_service_pb2, admin_service_pb2_grpc
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.transport.health import HealthPort


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
