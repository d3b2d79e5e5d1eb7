"""A peer that was away is called again soon after it is back: in a rolling restart it leads a moment later."""

from __future__ import annotations

import asyncio
import time

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from tidelog.testing.ports import free_ports
from tidelog_foundation.transport import open_channel, server_options

_CHANNELS = 8
_AWAY_S = 2.5
_SOON_S = 0.6


async def start(port: int) -> grpc.aio.Server:
    server = grpc.aio.server(options=server_options())
    server.add_insecure_port(f"127.0.0.1:{port}")
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    await server.start()
    return server


async def call_until_it_answers(channel: grpc.aio.Channel) -> float:
    """Return when a call was answered, by the monotonic clock."""
    stub = health_pb2_grpc.HealthStub(channel)
    while True:
        try:
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.02)
        else:
            return time.monotonic()


def test_channel_reaches_a_peer_soon_after_it_is_back() -> None:
    async def run() -> float:
        [port] = free_ports(1)
        server = await start(port)
        channels = [open_channel(f"127.0.0.1:{port}") for _ in range(_CHANNELS)]
        await asyncio.gather(*map(call_until_it_answers, channels))
        await server.stop(0)
        calls = [asyncio.create_task(call_until_it_answers(channel)) for channel in channels]
        # Time for the pauses between two attempts to grow as long as they become.
        await asyncio.sleep(_AWAY_S)
        server = await start(port)
        back_s = time.monotonic()
        answered_s = await asyncio.gather(*calls)
        for channel in channels:
            await channel.close()
        await server.stop(0)
        return max(answered_s) - back_s

    assert asyncio.run(run()) < _SOON_S
