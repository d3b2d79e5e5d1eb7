"""The end of a ProduceStream: whatever the connection does at that moment, the producer closes."""

from __future__ import annotations

import asyncio
import importlib
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidelog.cluster import Connection
from tidelog.producer.stream import NodeStream

EXECUTE_BATCH_ERROR = importlib.import_module("grpc._cython.cygrpc").ExecuteBatchError


class EndingCall:
    """gRPC's call whose connection ends while it is closed: it raises errors that are no ``grpc.aio.AioRpcError``."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.is_cancelled = False

    def __aiter__(self) -> EndingCall:
        return self

    async def __anext__(self) -> Any:
        await asyncio.Event().wait()

    async def done_writing(self) -> None:
        raise self._error

    def cancel(self) -> None:
        self.is_cancelled = True


@pytest.mark.parametrize("error", [EXECUTE_BATCH_ERROR("Failed"), asyncio.InvalidStateError(), TimeoutError()])
def test_stream_whose_connection_ends_as_it_is_finished_is_closed_all_the_same(error: Exception) -> None:
    async def finish() -> EndingCall:
        call = EndingCall(error)
        stub = SimpleNamespace(address="node:9094", produce_stream=lambda: call)
        stream = NodeStream(cast(Connection, stub))
        await stream.finish()
        assert stream.is_broken
        return call

    assert asyncio.run(finish()).is_cancelled
