"""One voter of a quorum in a process of its own, which a benchmark of the Raft engine queries for figures.

The process answers questions on a pipe: whether it leads, how long single commits take, how many it makes with many in
progress, and, for the comparison, how long a synced write to RocksDB and a call over loopback take.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from rocksdict import Options, Rdict, WriteOptions

from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.transport import open_channel, server_options
from tidelog_quorum.raft.core.config import RaftConfig
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.engine import TidelogRaft
from tidelog_quorum.raft.protocol import CommittedEntry, LeaderAndEpoch

_PAYLOAD = bytes(100)


@dataclass(frozen=True, slots=True)
class VoterPlace:
    """The identity of a voter, its peers, and its data directory."""

    voter_id: int
    ports: dict[int, int]
    directory: Path


class VoterProcess:
    """A voter's process, from its start to :meth:`stop`."""

    def __init__(self, place: VoterPlace) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_main, args=(place, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, question: str, *arguments: Any) -> Any:
        """Return the answer of a method of the voter."""
        self._pipe.send((question, arguments))
        return self._pipe.recv()

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()


class _Listener:
    """Counts commits and notifies the waiting callers."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def capture(self) -> Iterable[bytes]:
        return ()

    def read_snapshot(self, last_index: int, last_term: int, chunks: Iterable[bytes]) -> Callable[[], None]:
        return lambda: None

    def on_commit(self, entries: Sequence[CommittedEntry]) -> None:
        while self._waiting and self._waiting[0][0] <= entries[-1].index:
            self._waiting.popleft()[1].set_result(None)

    def reader_of(self, entry: CommittedEntry) -> None:
        """Return None: nothing here takes long."""

    def on_voters_change(self, voters: VoterSet) -> None:
        pass

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        pass

    def committed(self, index: int) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((index, future))
        return future


class _Voter:
    """Answers the questions on the event loop of its process."""

    def __init__(self, place: VoterPlace) -> None:
        self._place = place
        self._server = grpc.aio.server(options=server_options())
        self._server.add_insecure_port(format_address("127.0.0.1", place.ports[place.voter_id]))
        health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), self._server)
        self._listener = _Listener()
        voters = VoterSet(Voter.at(i, "127.0.0.1", port) for i, port in place.ports.items())
        self._engine = TidelogRaft(
            place.voter_id,
            voters,
            place.directory / "raft",
            "bench",
            RaftConfig(),
            advertised=Endpoints.at("127.0.0.1", place.ports[place.voter_id]),
        )
        self._engine.serve_on(self._server)

    async def start(self) -> None:
        (self._place.directory / "raft").mkdir(parents=True)
        await self._engine.start(self._listener)
        await self._server.start()

    async def leads(self) -> bool:
        return self._engine.leader.is_self

    async def commit_one_by_one(self, count: int) -> float:
        """Return the mean seconds of ``count`` single commits."""
        epoch = self._engine.leader.epoch
        started = time.perf_counter()
        for _ in range(count):
            await self._listener.committed(self._engine.propose(_PAYLOAD, epoch))
        return (time.perf_counter() - started) / count

    async def commit_many(self, in_flight: int, seconds: float) -> float:
        """Return the commits per second with ``in_flight`` of them in progress."""
        epoch, done, deadline = self._engine.leader.epoch, 0, time.perf_counter() + seconds

        async def propose() -> None:
            nonlocal done
            while time.perf_counter() < deadline:
                await self._listener.committed(self._engine.propose(_PAYLOAD, epoch))
                done += 1

        started = time.perf_counter()
        await asyncio.gather(*(propose() for _ in range(in_flight)))
        return done / (time.perf_counter() - started)

    async def write_synced(self, count: int) -> float:
        """Return the mean seconds of ``count`` synced writes of one entry to RocksDB."""
        database, options = Rdict(str(self._place.directory / "reference"), Options(raw_mode=True)), WriteOptions()
        options.sync = True
        database.set_write_options(options)
        database[b"warm"] = _PAYLOAD
        started = time.perf_counter()
        for index in range(count):
            database[index.to_bytes(8, "big")] = _PAYLOAD
        seconds = (time.perf_counter() - started) / count
        database.close()
        return seconds

    async def call_a_neighbour(self, count: int) -> float:
        """Return the mean seconds of ``count`` small calls to another voter's process."""
        port = next(p for i, p in self._place.ports.items() if i != self._place.voter_id)
        async with open_channel(format_address("127.0.0.1", port)) as channel:
            stub, request = health_pb2_grpc.HealthStub(channel), health_pb2.HealthCheckRequest()
            await stub.Check(request)
            started = time.perf_counter()
            for _ in range(count):
                await stub.Check(request)
            return (time.perf_counter() - started) / count


def _main(place: VoterPlace, pipe: Connection) -> None:
    import uvloop

    uvloop.run(_answer(place, pipe))


async def _answer(place: VoterPlace, pipe: Connection) -> None:
    # A gRPC server belongs to the loop that runs when it is created.
    voter = _Voter(place)
    await voter.start()
    questions: asyncio.Queue[tuple[str, tuple[Any, ...]]] = asyncio.Queue()
    asyncio.get_running_loop().add_reader(pipe.fileno(), lambda: questions.put_nowait(pipe.recv()))
    while True:
        question, arguments = await questions.get()
        pipe.send(await getattr(voter, question)(*arguments))
