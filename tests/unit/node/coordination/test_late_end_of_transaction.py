"""EndTxn that the network delivers after the client has repeated it on another connection (KAFKA-17754)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kafka_transactions import ID, kafka_transactions
from node_listeners import kafka_listener

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_node.kafka.apis.registry import all_apis
from tidelog_node.kafka.client.connection import PeerConnection
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.messages import transactions as wire
from tidelog_node.kafka.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from tidelog_node.kafka.protocol.writer import Writer

TIMEOUT_S = 10.0


class SlowPath:
    """A proxy before a listener. :meth:`hold` delays what a client sends until :meth:`release`."""

    def __init__(self, address: str) -> None:
        self._target = address.rpartition(":")
        self._may_pass = asyncio.Event()
        self._may_pass.set()
        self.delayed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when bytes wait."""
        self.answered = asyncio.Event()
        """Set when the listener has answered what was delayed, or closed the connection."""

    def hold(self) -> None:
        self._may_pass.clear()

    def release(self) -> None:
        self._may_pass.set()

    @contextlib.asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._forward, "127.0.0.1", 0)
        async with server:
            yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_node, to_node = await asyncio.open_connection(self._target[0], int(self._target[2]))
        back = asyncio.create_task(self._answer(from_node, writer))
        while data := await reader.read(65_536):
            if not self._may_pass.is_set():
                self.delayed.set_result(None)
            await self._may_pass.wait()
            to_node.write(data)
        # The client has gone, which the listener does not learn.
        await self.answered.wait()
        to_node.close()
        await back

    async def _answer(self, from_node: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await from_node.read(65_536):
            if self.delayed.done():
                break
            writer.write(data)
        self.answered.set()
        writer.close()


class Connection:
    """A connection of a client."""

    def __init__(self) -> None:
        self._peer = PeerConnection("the node", "client", lambda _: None, lambda _: None)

    async def open(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        await self._peer.open(host, int(port), TIMEOUT_S)

    def close(self) -> None:
        self._peer.close()

    async def ask(self, request: Any, response: type[Any], version: int) -> Any:
        """Return the response, after repetitions while the coordinator is not ready, as clients do."""
        while True:
            answer = await self.send(request, response, version)
            if getattr(answer, "error_code", 0) not in {
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS.code,
                ErrorCode.CONCURRENT_TRANSACTIONS.code,
                ErrorCode.NOT_COORDINATOR.code,
            }:
                return answer
            await asyncio.sleep(0.005)

    async def send(self, request: Any, response: type[Any], version: int) -> Any:
        body = Writer()
        encode(request, body, version)
        key, is_flexible = ApiKey(request.API_KEY), version >= request.FLEXIBLE
        answer = await self._peer.send(key, version, body, is_flexible=is_flexible, timeout_s=TIMEOUT_S)
        return decode(response, answer, version)

    async def add(self, producer: tuple[int, int]) -> set[int]:
        topics = [wire.AddPartitionsToTxnTopic("t", [0])]
        request = wire.AddPartitionsToTxnRequest([], ID, *producer, topics)
        while True:
            answer = await self.send(request, wire.AddPartitionsToTxnResponse, 3)
            [result] = answer.results_by_topic_v3_and_below
            codes = {partition.partition_error_code for partition in result.results_by_partition}
            if codes != {ErrorCode.CONCURRENT_TRANSACTIONS.code}:
                return codes

    async def end(self, producer: tuple[int, int], version: int) -> int:
        answer = await self.ask(wire.EndTxnRequest(ID, *producer, True), wire.EndTxnResponse, version)
        code: int = answer.error_code
        return code

    async def state(self) -> str:
        answer = await self.ask(wire.DescribeTransactionsRequest([ID]), wire.DescribeTransactionsResponse, 0)
        state: str = answer.transaction_states[0].transaction_state
        return state


@pytest.mark.parametrize("version", [0, 2, 4])
def test_late_end_of_a_transaction_over_another_connection_does_not_commit_the_next_one(
    tmp_path: Path, version: int
) -> None:
    async def run() -> None:
        async with contextlib.AsyncExitStack() as stack:
            nodes = await stack.enter_async_context(kafka_transactions(tmp_path))
            address = await stack.enter_async_context(kafka_listener(nodes.nodes[1].context, all_apis()))
            path = SlowPath(address)
            first, second = Connection(), Connection()
            await first.open(await stack.enter_async_context(path.serving()))
            initialized = await first.ask(InitProducerIdRequest(ID, 60_000), InitProducerIdResponse, 4)
            producer = (initialized.producer_id, initialized.producer_epoch)
            assert await first.add(producer) == {0}
            path.hold()
            lost = asyncio.ensure_future(first.end(producer, version))
            await path.delayed
            # The client gives its connection up, repeats EndTxn on another one, and begins its next transaction.
            first.close()
            with pytest.raises(TidelogError):
                await lost
            await second.open(address)
            assert await second.end(producer, version) == 0
            assert await second.add(producer) == {0}
            path.release()
            await path.answered.wait()
            assert await second.state() == "Ongoing"
            assert await second.end(producer, version) == 0
            second.close()

    asyncio.run(asyncio.wait_for(run(), 30))
