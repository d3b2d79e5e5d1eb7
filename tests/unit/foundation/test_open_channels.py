"""A channel that has lost its connection is replaced, so that the name of its host is resolved again."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.testing.ports import free_ports
from tidelog_foundation.transport import open_channels
from tidelog_foundation.transport.open_channels import OpenChannels

State = grpc.ChannelConnectivity
BEFORE, AFTER = "127.0.0.2", "127.0.0.3"
HOST = "moved.test"
SOON_S = 3.0
"""gRPC's own wait for the next resolution of a name is 30 s."""


class Channel:
    """A channel in the state that a test gives it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.state = State.IDLE
        self.graces: list[float | None] = []

    def get_state(self) -> grpc.ChannelConnectivity:
        return self.state

    async def close(self, grace: float | None = None) -> None:
        self.graces.append(grace)


class World:
    """Channels, a clock, and every channel that was opened."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.opened: list[Channel] = []
        self.channels = OpenChannels(self._open, lambda: self.now_s)

    def _open(self, address: str) -> Any:
        self.opened.append(Channel(address))
        return self.opened[-1]


@pytest.mark.parametrize(
    ("state", "age_s", "is_kept"),
    [
        (State.READY, 100, True),
        (State.CONNECTING, 100, True),
        (State.IDLE, 0.19, True),
        (State.IDLE, 0.2, False),
        (State.TRANSIENT_FAILURE, 0.99, True),
        (State.TRANSIENT_FAILURE, 1.0, False),
    ],
)
def test_channel_is_replaced_by_its_state_and_age(state: State, age_s: float, is_kept: bool) -> None:
    async def run() -> None:
        world = World()
        first: Any = world.channels.get("node:1")
        first.state, world.now_s = state, age_s
        assert (world.channels.get("node:1") is first) == is_kept
        await world.channels.close()
        assert world.opened[-1].graces == [None]

    asyncio.run(run())


@pytest.mark.parametrize("address", ["127.0.0.1:1", "[::1]:1", "unix:/run/node"])
def test_channel_to_an_address_is_kept(address: str) -> None:
    world = World()
    first: Any = world.channels.get(address)
    first.state, world.now_s = State.TRANSIENT_FAILURE, 100
    assert world.channels.get(address) is first


@given(st.lists(st.tuples(st.floats(0, 3), st.sampled_from([*State][:4]), st.sampled_from(["a:1", "b:1"]))))
def test_every_channel_is_closed_once_it_is_not_used(steps: list[tuple[float, State, str]]) -> None:
    async def run() -> None:
        world = World()
        for passed_s, state, address in steps:
            world.now_s += passed_s
            channel: Any = world.channels.get(address)
            assert channel.address == address
            channel.state = state
        current = set(world.channels.all())
        for channel in world.opened:
            channel.state = State.IDLE
        await asyncio.sleep(0.01)
        assert all(channel.graces for channel in world.opened if channel not in current)
        assert not any(channel.graces for channel in current)
        await world.channels.close()
        assert all(channel.graces for channel in world.opened)

    original = open_channels._RETIRED_S
    open_channels._RETIRED_S = 0.001
    try:
        asyncio.run(run())
    finally:
        open_channels._RETIRED_S = original


MOVES = f"""
import asyncio, sys, time
from pathlib import Path
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from tidelog_foundation.transport.channels import Channels

async def start(host, port):
    server = grpc.aio.server()
    server.add_insecure_port(f"{{host}}:{{port}}")
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    await server.start()
    return server

async def answered(channels, address):
    began_s = time.monotonic()
    while True:
        try:
            stub = health_pb2_grpc.HealthStub(channels.get(address))
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
            return time.monotonic() - began_s
        except grpc.aio.AioRpcError:
            await asyncio.sleep(0.05)

async def main(hosts, port, pause_s):
    address = f"{HOST}:{{port}}"
    channels = Channels()
    hosts.write_text("{BEFORE} {HOST}\\n")
    server = await start("{BEFORE}", port)
    await answered(channels, address)
    await server.stop(0)
    if pause_s:
        hosts.write_text("")
        waits = asyncio.create_task(answered(channels, address))
        await asyncio.sleep(pause_s)
        hosts.write_text("{AFTER} {HOST}\\n")
        back_s = time.monotonic()
        server = await start("{AFTER}", port)
        await waits
        print(time.monotonic() - back_s)
    else:
        hosts.write_text("{AFTER} {HOST}\\n")
        server = await start("{AFTER}", port)
        await asyncio.sleep(0.3)
        print(await answered(channels, address))
    await channels.close()
    await server.stop(0)

asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
"""
INSIDE = 'mount --bind "$1" /etc/hosts && exec "$2" -c "$3" "$1" "$4" "$5"'


def _may_mount() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.costly
@pytest.mark.skipif(not _may_mount(), reason="needs a mount namespace, for names of its own")
@pytest.mark.parametrize("away_s", [0.0, 4.0])
def test_server_with_another_address_is_reached_soon(tmp_path: Path, away_s: float) -> None:
    hosts = tmp_path / "hosts"
    hosts.touch()
    [port] = free_ports(1)
    arguments = [str(hosts), sys.executable, MOVES, str(port), str(away_s)]
    command = ["unshare", "--mount", "sh", "-c", INSIDE, "sh", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < SOON_S
