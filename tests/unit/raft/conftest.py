"""Real engines on loopback, in one process and one event loop, each with a folder and a server of its own."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc.aio
import pytest

from tidelog.transport import server_options
from tidelog_quorum.raft import CommittedEntry, LeaderAndEpoch, RaftConfig, TidelogRaft

CLUSTER_ID = "raft-tests"


class RecordingListener:
    """Keeps what it is told, and refuses what the contract rules out."""

    def __init__(self) -> None:
        self.entries: list[CommittedEntry] = []
        self.leaders: list[LeaderAndEpoch] = []

    def on_commit(self, entries: Sequence[CommittedEntry]) -> None:
        for entry in entries:
            assert entry.index == len(self.entries) + 1, (entry.index, len(self.entries))
            self.entries.append(entry)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)

    @property
    def payloads(self) -> list[bytes]:
        return [entry.payload for entry in self.entries if entry.payload]


class EngineProcess:
    """What a controller's process has of Raft: a server, an engine, a listener."""

    def __init__(self, engine: TidelogRaft, server: grpc.aio.Server, listener: RecordingListener) -> None:
        self.engine = engine
        self._server: grpc.aio.Server | None = server
        self.listener = listener

    async def stop(self) -> None:
        server, self._server = self._server, None
        assert server is not None
        await self.engine.stop()
        await server.stop(0)


class EngineCluster:
    """Starts and stops the engines of one voter set; use inside the event loop."""

    def __init__(self, root: Path, ports: list[int], config: RaftConfig) -> None:
        self.root = root
        self.voters = {i + 1: ("127.0.0.1", port) for i, port in enumerate(ports)}
        self.config = config
        self.running: dict[int, EngineProcess] = {}

    async def start(self, node_id: int, cluster_id: str = CLUSTER_ID) -> EngineProcess:
        server = grpc.aio.server(options=server_options())
        host, port = self.voters[node_id]
        server.add_insecure_port(f"{host}:{port}")
        directory = self.root / str(node_id)
        engine = TidelogRaft(node_id, self.voters, directory, cluster_id, self.config, server)
        process = self.running[node_id] = EngineProcess(engine, server, RecordingListener())
        await engine.start(process.listener)
        await server.start()
        return process

    async def stop(self, node_id: int) -> None:
        await self.running.pop(node_id).stop()

    async def __aenter__(self) -> EngineCluster:
        for node_id in self.voters:
            await self.start(node_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(self.stop(node_id) for node_id in list(self.running)))
        # A gRPC server schedules its last call when it is collected, which must not be after the loop has closed.
        gc.collect()
        await asyncio.sleep(0)

    async def leader(self) -> EngineProcess:
        """Wait until all running engines agree on one of them."""

        def agreed() -> bool:
            seen = {p.engine.leader.leader_id for p in self.running.values()}
            return len(seen) == 1 and seen <= set(self.running)

        await wait_until(agreed)
        return next(p for p in self.running.values() if p.engine.leader.is_self)


async def wait_until(condition: Callable[[], bool], timeout_s: float = 15) -> None:
    """Wait for a condition on the event loop, or fail."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


@pytest.fixture(name="new_engines")
def _new_engines(tmp_path: Path) -> Callable[..., EngineCluster]:
    def build(count: int, config: RaftConfig | None = None) -> EngineCluster:
        return EngineCluster(tmp_path, free_ports(count), config or RaftConfig())

    return build


@pytest.fixture(name="wait_until")
def _wait_until() -> Callable[..., object]:
    return wait_until
