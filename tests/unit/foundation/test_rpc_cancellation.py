"""A cancellation that meets the end of a gRPC call reaches the task that was cancelled, and no other task."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest

from tidelog.cluster.connections import Connections
from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.transport import error_from_rpc

UNAVAILABLE = grpc.aio.AioRpcError(
    grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), details="gone"
)


async def fail_and_hide_cancellation() -> None:
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    raise UNAVAILABLE


async def repeat_calls() -> None:
    while True:
        try:
            await asyncio.create_task(fail_and_hide_cancellation())
        except grpc.aio.AioRpcError as rpc_error:
            error_from_rpc(rpc_error)


def test_loop_over_calls_ends_although_its_cancellation_met_the_end_of_one() -> None:
    async def run() -> None:
        task = asyncio.create_task(repeat_calls())
        await asyncio.sleep(0.01)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=5)
        assert done
        assert task.cancelled()

    asyncio.run(run())


def test_error_of_a_call_is_told_outside_of_tasks_and_in_tasks_that_go_on() -> None:
    async def told() -> ErrorCode:
        return error_from_rpc(UNAVAILABLE).code

    assert error_from_rpc(UNAVAILABLE).code is asyncio.run(told()) is ErrorCode._TRANSPORT


def test_timeout_over_a_call_stays_a_timeout() -> None:
    async def run() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await repeat_calls()

    asyncio.run(run())


class Waiting(grpc.GenericRpcHandler):
    """Answers no call."""

    def __init__(self) -> None:
        self.called = asyncio.Event()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        return grpc.unary_unary_rpc_method_handler(self._wait)

    async def _wait(self, _: bytes, __: grpc.aio.ServicerContext[bytes, bytes]) -> bytes:
        self.called.set()
        await asyncio.Event().wait()
        return b""


@contextlib.asynccontextmanager
async def waiting_call() -> AsyncIterator[tuple[asyncio.Task[object], Connections, str]]:
    """Start a call without an answer, and yield its task, its client's connections and the address."""
    server, handler = grpc.aio.server(), Waiting()
    server.add_generic_rpc_handlers((handler,))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    connections = Connections("test")
    call = connections.get(address).call(lambda connection: connection.channel.unary_unary("/a.B/C")(b""))
    try:
        task: asyncio.Task[object] = asyncio.ensure_future(call)
        await asyncio.wait_for(handler.called.wait(), 30)
        yield task, connections, address
    finally:
        await connections.close()
        await server.stop(None)


def test_call_on_a_channel_that_closes_fails_and_does_not_cancel_its_task() -> None:
    async def run() -> None:
        async with waiting_call() as (task, connections, address):
            await connections.drop(address)
            with pytest.raises(TidelogError) as failed:
                await task
            assert failed.value.code is ErrorCode._TRANSPORT
            assert failed.value.code.retriable

    asyncio.run(run())


def test_task_that_is_cancelled_during_a_call_stays_cancelled() -> None:
    async def run() -> None:
        async with waiting_call() as (task, _, _):
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()

    asyncio.run(run())
