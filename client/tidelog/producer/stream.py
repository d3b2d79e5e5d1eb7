"""One ProduceStream to one node: it pipelines requests and matches answers by correlation id."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable

import grpc.aio

from tidelog.cluster.connections import Connection
from tidelog.producer.requests import EncodedRequest
from tidelog.v1 import log_service_pb2 as pb
from tidelog_foundation.errors import INSECURE, ErrorCode, error_for

logger = logging.getLogger(__name__)

_FINISH_TIMEOUT_S = 1.0


class StreamRefusedError(Exception):
    """The node ended the stream with an error that is not retriable; the affected request is unknown."""


class NodeStream:
    """A stream from its first request to its first failure, which fails all pending requests.

    Used on the network thread.

    The owner calls :meth:`close`, also after a failure.
    """

    def __init__(self, connection: Connection) -> None:
        self.address = connection.address
        self._connection = connection
        self._call = connection.produce_stream()
        self._write_lock = asyncio.Lock()
        self._answers: dict[int, asyncio.Future[pb.ProduceResponse]] = {}
        self._next_id = 0
        self._failure: Exception | None = None
        self._reader = asyncio.create_task(self._read(), name=f"produce-stream-{self.address}")

    @property
    def is_broken(self) -> bool:
        """True after a failure; the owner must open a new stream."""
        return self._failure is not None

    async def send(
        self, request: Awaitable[EncodedRequest], timeout_s: float, *, wait: bool = True
    ) -> pb.ProduceResponse:
        """Send a request and wait for its answer; if ``wait`` is false, return an empty answer at once.

        Requests leave in the order of the calls, even if an earlier one is ready later. Each gets its correlation id.

        Raises:
            TidelogError: the transport's error. A timeout after ``timeout_s`` breaks the stream, because the node may
                be paused and later requests wait behind this one.
            StreamRefusedError: the node refused the stream.
        """
        if self._failure is not None:
            raise self._failure
        correlation_id, answer = self._register()
        try:
            async with asyncio.timeout(timeout_s):
                await self._write(correlation_id, request)
                return await answer if wait else pb.ProduceResponse()
        except TimeoutError:
            text = f"{self.address} did not answer a produce request within {timeout_s * 1000:g} ms"
            error = error_for(ErrorCode._TRANSPORT, text)
            self._fail(error)
            raise error from None
        finally:
            self._answers.pop(correlation_id, None)

    async def finish(self) -> None:
        """Give the node a moment to accept all sent requests, then close.

        Otherwise requests without an answer (acks=0) would be lost with the stream.
        """
        if self._failure is None and not self._answers:
            try:
                async with asyncio.timeout(_FINISH_TIMEOUT_S):
                    await self._call.done_writing()
                    await asyncio.wait((self._reader,))
            except asyncio.CancelledError:
                # gRPC also raises this here when a request was cancelled during its write.
                if _is_cancelled():
                    raise
            except Exception as error:  # noqa: BLE001  # gRPC's error for a connection that has just ended is not public
                logger.debug("The produce stream to %s did not end in order: %r", self.address, error)
        await self.close()

    async def close(self) -> None:
        """Cancel the call and wait for the reader."""
        self._fail(error_for(ErrorCode._DESTROY, "the producer is closed"))
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader

    def _register(self) -> tuple[int, asyncio.Future[pb.ProduceResponse]]:
        correlation_id = self._next_id
        self._next_id += 1
        answer: asyncio.Future[pb.ProduceResponse] = asyncio.get_running_loop().create_future()
        self._answers[correlation_id] = answer
        return correlation_id, answer

    async def _write(self, correlation_id: int, request: Awaitable[EncodedRequest]) -> None:
        async with self._write_lock:
            encoded = await request
            if self._failure is not None:
                raise self._failure
            try:
                await self._call.write(encoded.stream_message(correlation_id))
            except grpc.aio.AioRpcError as error:
                self._fail(await self._failure_of(error))
            except asyncio.InvalidStateError:
                # The stream has ended, and the reader gets the reason.
                await asyncio.wait((self._reader,))
            except asyncio.CancelledError:
                # gRPC also raises this here when the stream failed for another request.
                if not self.is_broken or _is_cancelled():
                    raise
        if self._failure is not None:
            raise self._failure

    async def _read(self) -> None:
        try:
            async for response in self._call:
                answer = self._answers.get(response.correlation_id)
                if answer is not None and not answer.done():
                    answer.set_result(response.response)
            self._fail(error_for(ErrorCode._TRANSPORT, f"{self.address} ended the produce stream"))
        except grpc.aio.AioRpcError as error:
            self._fail(await self._failure_of(error))

    async def _failure_of(self, error: grpc.aio.AioRpcError) -> Exception:
        meant = await self._connection.error_of(error)
        return meant if meant.code.retriable or meant.code in INSECURE else StreamRefusedError(str(meant))

    def _fail(self, failure: Exception) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._call.cancel()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(failure)
                answer.exception()


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
