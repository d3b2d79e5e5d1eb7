"""Readiness and liveness over gRPC."""

from __future__ import annotations

import asyncio

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tidelog_foundation.monitoring.checks import Check
from tidelog_foundation.transport.health import HealthPort
from tidelog_foundation.transport.health_service import HealthService

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


def test_health_service_answers_with_the_checks_of_the_moment_and_tells_watchers() -> None:
    checks = [Check("fencing", False, "the controllers have fenced the node")]

    async def run() -> None:
        service = HealthService(lambda: checks)
        port = HealthPort("127.0.0.1:0", service)
        await port.start()
        watching = asyncio.create_task(service.run())
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port.port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)

            async def status(name: str) -> int:
                answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=5)
                return int(answer.status)

            watch = stub.Watch(health_pb2.HealthCheckRequest(), timeout=20)
            assert (await watch.read()).status == NOT_SERVING
            assert [await status(name) for name in ("", "readiness", "liveness")] == [NOT_SERVING, NOT_SERVING, SERVING]
            checks.clear()
            assert [await status(name) for name in ("", "readiness", "liveness")] == [SERVING] * 3
            assert (await watch.read()).status == SERVING
            with pytest.raises(grpc.aio.AioRpcError) as unknown:
                await status("other")
            assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
            watch.cancel()
        watching.cancel()
        await port.stop()

    asyncio.run(run())


@pytest.mark.skipif(not hasattr(health_pb2, "HealthListResponse"), reason="this release of the library has no List")
def test_health_service_lists_the_states_of_all_services_at_the_moment() -> None:
    checks = [Check("fencing", False, "the controllers have fenced the node")]

    async def run() -> None:
        port = HealthPort("127.0.0.1:0", HealthService(lambda: checks))
        await port.start()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port.port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)

            async def statuses() -> dict[str, int]:
                answer = await stub.List(health_pb2.HealthListRequest(), timeout=5)
                return {name: each.status for name, each in answer.statuses.items()}

            assert await statuses() == {"": NOT_SERVING, "readiness": NOT_SERVING, "liveness": SERVING}
            checks.clear()
            assert set((await statuses()).values()) == {SERVING}
        await port.stop()

    asyncio.run(run())
