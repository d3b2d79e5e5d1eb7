"""A cancellation that meets the end of a gRPC call reaches the task that was cancelled."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
import grpc.aio
import pytest

from tidelog_foundation.errors import ErrorCode
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
