"""Clusters of Raft engines of either kind in one process and event loop, each engine with its own folder."""

from __future__ import annotations

import asyncio
import enum
import gc
import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc.aio

from tidelog_foundation.transport import server_options
from tidelog_foundation.transport.channels import bind_port
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch, RaftEngine

CLUSTER_ID = "contract"
HOST = "127.0.0.1"
_ENTRY = struct.Struct(">QQI")


class Capability(enum.Enum):
    """Guarantees of one engine that the other one lacks."""

    MEMBERSHIP = "voters can be added and removed"


class RecordingListener:
    """A state machine that stores all payloads and fails on every violation of the contract."""

    def __init__(self) -> None:
        self.entries: list[CommittedEntry] = []
        self.committed: list[CommittedEntry] = []
        self.leaders: list[LeaderAndEpoch] = []
        self.voters: list[VoterSet] = []
        self.restored_at: list[int] = []
        self.order: list[LeaderAndEpoch | CommittedEntry] = []
        self.is_over = False

    @property
    def payloads(self) -> list[bytes]:
        return [entry.payload for entry in self.entries if entry.payload]

    @property
    def last(self) -> CommittedEntry:
        """The last entry, or the position before the first."""
        return self.entries[-1] if self.entries else CommittedEntry(0, 0, b"")

    def on_commit(self, entries: Sequence[CommittedEntry]) -> None:
        assert not self.is_over, "called after the stop"
        for entry in entries:
            last = self.last
            assert entry.index == last.index + 1, (entry.index, last.index)
            assert entry.term >= last.term, (entry, last.term)
            self.entries.append(entry)
            self.committed.append(entry)
            self.order.append(entry)

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        assert not self.is_over or leader.leader_id is None, "called after the stop"
        self.leaders.append(leader)
        self.order.append(leader)

    def reader_of(self, entry: CommittedEntry) -> None:
        """Return None: nothing here takes long."""

    def on_voters_change(self, voters: VoterSet) -> None:
        self.voters.append(voters)

    def capture(self) -> Iterable[bytes]:
        return (_ENTRY.pack(e.index, e.term, len(e.payload)) + e.payload for e in list(self.entries))

    def read_snapshot(self, last_index: int, last_term: int, chunks: Iterable[bytes]) -> Callable[[], None]:
        entries = list(_decode(b"".join(chunks)))
        assert (entries[-1].index, entries[-1].term) == (last_index, last_term)
        before = len(self.entries)

        def install() -> None:
            assert len(self.entries) == before < last_index, "entries came between the two"
            self.entries = entries
            self.restored_at.append(last_index)

        return install


def _decode(data: bytes) -> Iterator[CommittedEntry]:
    position = 0
    while position < len(data):
        index, term, size = _ENTRY.unpack_from(data, position)
        position += _ENTRY.size
        yield CommittedEntry(index, term, data[position : position + size])
        position += size


class EngineProcess:
    """The Raft parts of a controller's process: an engine, its listener, and a server if the engine uses one."""

    def __init__(self, node_id: int, engine: RaftEngine, server: grpc.aio.Server | None) -> None:
        self.node_id = node_id
        self.engine = engine
        self.server = server
        self.listener = RecordingListener()

    async def start(self) -> None:
        await self.engine.start(self.listener)
        if self.server is not None:
            await self.server.start()

    async def stop(self) -> None:
        server, self.server = self.server, None
        await self.engine.stop()
        self.listener.is_over = True
        if server is not None:
            await server.stop(0)


class EngineCluster:
    """Starts and stops the engines of one voter set. Subclasses create the engine. Use it inside the event loop."""

    capabilities: frozenset[Capability] = frozenset()

    def __init__(self, root: Path, count: int, config: RaftConfig) -> None:
        ports = free_ports(2 * count)
        self.root = root
        self.config = config
        self.addresses = {i + 1: (HOST, ports[i]) for i in range(count)}
        self.second_addresses = {i + 1: (HOST, ports[count + i]) for i in range(count)}
        self.voters = VoterSet(Voter.at(i, *address) for i, address in self.addresses.items())
        self.running: dict[int, EngineProcess] = {}

    def new_engine(self, node_id: int, cluster_id: str) -> tuple[RaftEngine, grpc.aio.Server | None]:
        raise NotImplementedError

    async def start(self, node_id: int, cluster_id: str = CLUSTER_ID) -> EngineProcess:
        engine, server = self.new_engine(node_id, cluster_id)
        process = EngineProcess(node_id, engine, server)
        try:
            await process.start()
        except BaseException:
            await process.stop()
            raise
        self.running[node_id] = process
        return process

    async def stop(self, *node_ids: int) -> None:
        await asyncio.gather(*(self.running.pop(node_id).stop() for node_id in node_ids))

    async def stop_all(self) -> None:
        await self.stop(*self.running)
        # A gRPC server schedules its last call when it is collected, which must happen before the loop closes.
        gc.collect()
        await asyncio.sleep(0)

    async def __aenter__(self) -> EngineCluster:
        await asyncio.gather(*(self.start(node_id) for node_id in self.addresses))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_all()

    async def leader(self) -> EngineProcess:
        """Wait until all running engines agree on a leader."""

        def agreed() -> bool:
            seen = {p.engine.leader for p in self.running.values()}
            ids, epochs = {x.leader_id for x in seen}, {x.epoch for x in seen}
            return len(ids) == len(epochs) == 1 and ids <= set(self.running)

        await wait_until(agreed)
        return next(p for p in self.running.values() if p.engine.leader.is_self)

    def followers(self) -> list[EngineProcess]:
        return [p for p in self.running.values() if not p.engine.leader.is_self]


class TidelogCluster(EngineCluster):
    capabilities = frozenset(Capability)

    def new_engine(self, node_id: int, cluster_id: str) -> tuple[RaftEngine, grpc.aio.Server | None]:
        from tidelog_quorum.raft.engine import TidelogRaft

        server = grpc.aio.server(options=server_options())
        host, port = self.addresses[node_id]
        bind_port(server, host, port)
        directory = self.root / str(node_id)
        engine = TidelogRaft(
            node_id, self.voters, directory, cluster_id, self.config, advertised=Endpoints.at(host, port)
        )
        engine.serve_on(server)
        return engine, server


class PySyncObjCluster(EngineCluster):
    def new_engine(self, node_id: int, cluster_id: str) -> tuple[RaftEngine, grpc.aio.Server | None]:
        from tidelog_quorum.raft.pysyncobj.engine import PySyncObjRaft

        directory = self.root / str(node_id)
        arguments: Any = (node_id, self.voters, self.second_addresses, directory, cluster_id, self.config)
        return PySyncObjRaft(*arguments), None


CLUSTERS: dict[str, type[EngineCluster]] = {"tidelog": TidelogCluster, "pysyncobj": PySyncObjCluster}


async def wait_until(condition: Callable[[], bool], timeout_s: float = 15) -> None:
    """Wait for a condition on the event loop, or fail."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports
