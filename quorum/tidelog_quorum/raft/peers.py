"""The gRPC streams between voters: one out to each other voter, one in from each.

Messages may be lost, which Raft expects, but nothing here ever waits on the core's side: each way out has a
bounded queue that drops its oldest message when the peer does not keep up.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING

import grpc
import grpc.aio

from tidelog.config.endpoints import format_address
from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.transport import CHANNEL_OPTIONS, abort_with, error_from_rpc
from tidelog.v1 import raft_service_pb2 as pb
from tidelog.v1.raft_service_pb2_grpc import RaftServiceServicer, RaftServiceStub
from tidelog_quorum.raft.codec import decode_message, encode_message
from tidelog_quorum.raft.core import AppendRequest, Message

if TYPE_CHECKING:
    from tidelog.v1.raft_service_pb2_grpc import RaftServiceAsyncStub

logger = logging.getLogger(__name__)
_QUEUE_LENGTH = 256
_MAX_FRAME_BYTES = 4 * 1024 * 1024
_RETRY_PAUSE_S = 0.05
_MAX_BACKOFF_KEY = "grpc.max_reconnect_backoff_ms"
_OPTIONS = [*(option for option in CHANNEL_OPTIONS if option[0] != _MAX_BACKOFF_KEY), (_MAX_BACKOFF_KEY, 250)]


class PeerLink:
    """The way out to one other voter; :meth:`run` is a task of the engine's and lives until it is cancelled."""

    def __init__(self, hello: pb.RaftHello, address: tuple[str, int]) -> None:
        self._hello = hello
        self._address = format_address(*address)
        self._queue: deque[Message] = deque(maxlen=_QUEUE_LENGTH)
        self._wake = asyncio.Event()
        self._last_error: ErrorCode | None = None

    def send(self, message: Message) -> None:
        """Queue a message; the oldest one is dropped when the queue is full."""
        self._queue.append(message)
        self._wake.set()

    async def run(self) -> None:
        """Keep a stream to the peer and write to it what is queued."""
        async with grpc.aio.insecure_channel(self._address, options=_OPTIONS) as channel:
            stub: RaftServiceAsyncStub = RaftServiceStub(channel)
            while True:
                try:
                    await self._exchange(stub)
                except grpc.aio.AioRpcError as error:
                    self._note_failure(error_from_rpc(error))
                except asyncio.InvalidStateError:
                    # The stream ended between two writes; the next one tells why.
                    pass
                except Exception:
                    # Without this task the peer would never hear of this voter again.
                    logger.exception("the stream to controller %s met a defect", self._hello.receiver_id)
                await asyncio.sleep(_RETRY_PAUSE_S)

    async def _exchange(self, stub: RaftServiceAsyncStub) -> None:
        call = stub.Exchange(wait_for_ready=True)
        call.add_done_callback(lambda _: self._wake.set())
        try:
            await call.write(pb.ExchangeRequest(hello=self._hello))
            if await call.read() is grpc.aio.EOF:
                return
            self._last_error = None
            logger.info("connected to controller %s at %s", self._hello.receiver_id, self._address)
            while not call.done():
                await self._wake.wait()
                self._wake.clear()
                while self._queue:
                    await call.write(self._next_frame())
        finally:
            call.cancel()

    def _next_frame(self) -> pb.ExchangeRequest:
        request, size = pb.ExchangeRequest(), 0
        while self._queue and size < _MAX_FRAME_BYTES:
            message = self._queue.popleft()
            if isinstance(message, AppendRequest):
                size += sum(len(entry.payload) for entry in message.entries)
            request.messages.append(encode_message(message))
        return request

    def _note_failure(self, error: TidelogError) -> None:
        """Log the first of a row of equal failures: a peer that is down is tried again many times a second."""
        if error.code is not self._last_error:
            self._last_error = error.code
            logger.warning("no stream to controller %s at %s: %s", self._hello.receiver_id, self._address, error)


class RaftReceiver(RaftServiceServicer):
    """The ways in: checks who speaks and hands each message to ``deliver``, on the event loop."""

    def __init__(
        self,
        cluster_id: str,
        node_id: int,
        voters: Mapping[int, tuple[str, int]],
        deliver: Callable[[Message], None],
    ) -> None:
        self._cluster_id = cluster_id
        self._node_id = node_id
        self._voters = voters
        self._deliver = deliver
        self._streams: set[asyncio.Task[object]] = set()

    async def Exchange(  # noqa: N802
        self,
        request_iterator: AsyncIterator[pb.ExchangeRequest],
        context: grpc.aio.ServicerContext[object, object],
    ) -> AsyncIterator[pb.ExchangeResponse]:
        """Take messages from one other voter until it or this one ends the stream."""
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        try:
            sender_id = self._check(await anext(request_iterator, pb.ExchangeRequest()))
            hello = pb.RaftHello(cluster_id=self._cluster_id, sender_id=self._node_id, receiver_id=sender_id)
            yield pb.ExchangeResponse(hello=hello)
            async for request in request_iterator:
                for frame in request.messages:
                    self._deliver(_decode_from(sender_id, frame))
        except TidelogError as error:
            logger.warning("refused a stream from %s: %s", context.peer(), error)
            await abort_with(context, error)
        finally:
            self._streams.discard(task)

    async def stop(self) -> None:
        """End all streams, so that the server need not wait for the peers to do it."""
        streams = list(self._streams)
        for task in streams:
            task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    def _check(self, request: pb.ExchangeRequest) -> int:
        hello = request.hello
        if hello.cluster_id != self._cluster_id:
            raise error_for(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f'controller {self._node_id} is of cluster "{self._cluster_id}", the caller of "{hello.cluster_id}"',
            )
        if (
            hello.receiver_id != self._node_id
            or hello.sender_id not in self._voters
            or hello.sender_id == self._node_id
        ):
            raise error_for(
                ErrorCode.INCONSISTENT_VOTER_SET,
                f"controller {hello.sender_id} calls controller {hello.receiver_id}, but this is controller "
                f"{self._node_id} of the voters {sorted(self._voters)}",
            )
        return hello.sender_id


def _decode_from(sender_id: int, frame: pb.RaftMessage) -> Message:
    if frame.sender_id != sender_id:
        raise error_for(
            ErrorCode.INVALID_REQUEST, f"the stream of controller {sender_id} has a message of {frame.sender_id}"
        )
    return decode_message(frame)
