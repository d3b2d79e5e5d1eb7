"""A client does not ask the same node again and again who leads, when that node is the one that may not know."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc.aio
import pytest

from tidelog.cluster import ClusterClient
from tidelog.v1 import log_service_pb2 as pb
from tidelog.v1.log_service_pb2_grpc import LogServiceServicer, add_LogServiceServicer_to_server


class Node(LogServiceServicer):
    """Answers who is there, and counts how often it was asked."""

    def __init__(self) -> None:
        self.server = grpc.aio.server()
        self.port = self.server.add_insecure_port("127.0.0.1:0")
        self.asked = 0
        self.others: list[Node] = []
        add_LogServiceServicer_to_server(self, self.server)

    async def GetMetadata(self, request: pb.GetMetadataRequest, context: object) -> pb.GetMetadataResponse:
        self.asked += 1
        brokers = [
            pb.BrokerMetadata(node_id=node.port, host="127.0.0.1", port=node.port) for node in (self, *self.others)
        ]
        return pb.GetMetadataResponse(cluster_id="c", controller_id=1, brokers=brokers)


@contextlib.asynccontextmanager
async def two_nodes(host: str = "127.0.0.1") -> AsyncIterator[tuple[Node, Node, ClusterClient]]:
    first, second = Node(), Node()
    first.others, second.others = [second], [first]
    client = ClusterClient([f"{host}:{first.port}"])
    try:
        for node in (first, second):
            await node.server.start()
        await client.refresh([])
        yield first, second, client
    finally:
        await client.close()
        for node in (first, second):
            await node.server.stop(0)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_client_asks_another_node_than_the_one_it_doubts_and_stays_with_it(host: str) -> None:
    async def run() -> None:
        async with two_nodes(host) as (first, second, client):
            await client.refresh([])
            assert (first.asked, second.asked) == (2, 0)
            client.doubt(first.port)
            await client.refresh([])
            await client.refresh([])
            assert (first.asked, second.asked) == (2, 2)

    asyncio.run(run())


def test_client_asks_the_node_that_it_doubts_when_no_other_one_answers() -> None:
    async def run() -> None:
        async with two_nodes() as (first, second, client):
            await second.server.stop(0)
            client.doubt(first.port)
            client.doubt(12345)
            await client.refresh([])
            await client.refresh([])
            assert (first.asked, second.asked) == (3, 0)

    asyncio.run(run())
