"""The messages of a link to another controller, and their order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import AsyncIterator

import grpc.aio

from tidelog.v1 import raft_service_pb2 as pb
from tidelog.v1.raft_service_pb2_grpc import RaftServiceServicer, add_RaftServiceServicer_to_server
from tidelog_foundation.transport import server_options
from tidelog_quorum.raft.core.messages import Snapshot, SnapshotRequest, VoteResponse
from tidelog_quorum.raft.core.voters import Voter, VoterSet
from tidelog_quorum.raft.network.links import PeerLink, resolve_address

SNAPSHOT = Snapshot(9, 1, VoterSet([Voter.at(1, "h", 1)]), 100, 0)
CHUNK = SnapshotRequest(1, 1, SNAPSHOT, 0, bytes(100))
HEARTBEAT = VoteResponse(1, 1, True, True)


class Peer(RaftServiceServicer):
    """Says hello, then lets the link send more with every frame that comes."""

    def __init__(self) -> None:
        self.frames_before_chunk: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def Exchange(
        self, request_iterator: AsyncIterator[pb.ExchangeRequest], context: object
    ) -> AsyncIterator[pb.ExchangeResponse]:
        yield pb.ExchangeResponse(hello=(await anext(request_iterator)).hello)
        count = 0
        async for request in request_iterator:
            if request.messages[0].HasField("snapshot_request"):
                self.frames_before_chunk.set_result(count)
                return
            count += 1


def test_link_sends_a_chunk_though_other_messages_never_cease() -> None:
    async def run() -> None:
        server = grpc.aio.server(options=server_options())
        peer = Peer()
        add_RaftServiceServicer_to_server(peer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        connected = asyncio.Event()
        link = PeerLink(pb.RaftHello(sender_id=1), ("127.0.0.1", port), lambda _: connected.set(), resolve_address)
        running = asyncio.create_task(link.run())

        async def load() -> None:
            while True:
                link.send(HEARTBEAT)
                await asyncio.sleep(0)

        await asyncio.wait_for(connected.wait(), 10)
        loading = asyncio.create_task(load())
        await asyncio.sleep(0.05)
        link.send(CHUNK)
        async with asyncio.timeout(5):
            await peer.frames_before_chunk
        for task in (loading, running):
            task.cancel()
        await asyncio.wait([loading, running])
        await server.stop(0)

    asyncio.run(run())


def test_link_ends_although_its_cancellation_met_the_end_of_a_call() -> None:
    async def run() -> None:
        begun = asyncio.Event()

        async def hide_cancellation() -> None:
            begun.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

        async def resolve(_host: str, _port: int) -> list[str]:
            await asyncio.create_task(hide_cancellation())  # as gRPC does in a task of its own
            raise OSError(errno.ENOENT, "no such host")

        link = PeerLink(pb.RaftHello(sender_id=1), ("localhost", 1), lambda _: None, resolve)
        running = asyncio.create_task(link.run())
        await begun.wait()
        running.cancel()
        done, _ = await asyncio.wait([running], timeout=5)
        assert done
        assert running.cancelled()

    asyncio.run(run())
