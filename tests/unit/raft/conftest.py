"""Real engines on loopback, in one process and one event loop, each with a folder and a server of its own."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from tidelog_foundation.transport import server_options
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.engine import TidelogRaft
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch

CLUSTER_ID = "raft-tests"
_FRAME = 4


class RecordingListener:
    """Keeps what it is told, and refuses what the contract rules out.

    A snapshot of it is the payloads of its entries, each behind its length; ``first_index`` is that of the first entry
    that it was given since the start or the last snapshot that was put in place.
    """

    def __init__(self) -> None:
        self.entries: list[CommittedEntry] = []
        self.restored: list[tuple[int, int]] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.voters = VoterSet()
        self.payloads: list[bytes] = []
        self.last_index = 0

    def capture(self) -> Iterable[bytes]:
        payloads = list(self.payloads)
        return (len(p).to_bytes(_FRAME, "big") + p for p in payloads)

    def read_snapshot(self, last_index: int, last_term: int, chunks: Iterable[bytes]) -> Callable[[], None]:
        data, payloads, position = b"".join(chunks), [], 0
        while position < len(data):
            end = position + _FRAME + int.from_bytes(data[position : position + _FRAME], "big")
            payloads.append(data[position + _FRAME : end])
            position = end

        def replace() -> None:
            assert last_index > self.last_index
            self.payloads, self.last_index = payloads, last_index
            self.entries.clear()
            self.restored.append((last_index, last_term))

        return replace

    def on_commit(self, entries: Sequence[CommittedEntry]) -> None:
        for entry in entries:
            assert entry.index == self.last_index + 1, (entry.index, self.last_index)
            self.last_index = entry.index
            self.entries.append(entry)
            if entry.payload:
                self.payloads.append(entry.payload)

    def reader_of(self, entry: CommittedEntry) -> None:
        del entry

    def on_voters_change(self, voters: VoterSet) -> None:
        self.voters = voters

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)


class EngineProcess:
    """The Raft part of a controller's process: a server, an engine, a listener."""

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
    """Starts and stops engines; the first ``voters`` of them are the configured voters. Use inside the event loop."""

    def __init__(self, root: Path, ports: list[int], voters: int, config: RaftConfig, options: dict[str, Any]) -> None:
        self.root = root
        self.addresses = {i + 1: ("127.0.0.1", port) for i, port in enumerate(ports)}
        self.voters = VoterSet(Voter.at(i, *self.addresses[i]) for i in range(1, voters + 1))
        self.config = config
        self.options = options
        self.endpoints: dict[int, Endpoints] = {}
        """The addresses of engines with several listeners, for their next start."""
        self.running: dict[int, EngineProcess] = {}

    async def start(
        self,
        node_id: int,
        cluster_id: str = CLUSTER_ID,
        prepare: Callable[[RecordingListener], None] = lambda _: None,
        **options: Any,
    ) -> EngineProcess:
        server = grpc.aio.server(options=server_options())
        endpoints = self.endpoints.get(node_id, Endpoints.at(*self.addresses[node_id]))
        for endpoint in endpoints:
            server.add_insecure_port(f"{endpoint.host}:{endpoint.port}")
        arguments = {"voters": self.voters, "data_dir": self.root / str(node_id), **self.options, **options}
        engine = TidelogRaft(node_id, cluster_id=cluster_id, config=self.config, advertised=endpoints, **arguments)
        engine.serve_on(server)
        process = EngineProcess(engine, server, RecordingListener())
        prepare(process.listener)
        await engine.start(process.listener)
        self.running[node_id] = process
        await server.start()
        return process

    async def stop(self, node_id: int) -> None:
        await self.running.pop(node_id).stop()

    async def __aenter__(self) -> EngineCluster:
        for node_id in self.voters.ids:
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

    async def settled_leader(self) -> EngineProcess:
        """Wait for a leader, and until the engines' own entries are committed: all voters must be running."""
        leader = await self.leader()

        await wait_until(lambda: all(voter.directory_id for voter in leader.listener.voters))
        index = leader.engine.propose(b"", leader.engine.leader.epoch)
        await wait_until(lambda: leader.listener.last_index >= index)
        return leader


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
    def build(voters: int, config: RaftConfig | None = None, *, others: int = 0, **options: Any) -> EngineCluster:
        return EngineCluster(tmp_path, free_ports(voters + others), voters, config or RaftConfig(), options)

    return build


@pytest.fixture(name="wait_until")
def _wait_until() -> Callable[..., object]:
    return wait_until
