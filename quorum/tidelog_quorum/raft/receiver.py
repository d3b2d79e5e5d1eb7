"""The ways in from other controllers: checks who speaks and hands each message on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import grpc.aio

from tidelog.errors import ErrorCode, TidelogError, error_for
from tidelog.transport import abort_with
from tidelog.v1 import raft_service_pb2 as pb
from tidelog.v1.raft_service_pb2_grpc import RaftServiceServicer
from tidelog_quorum.raft.codec import decode_message
from tidelog_quorum.raft.core import Message
from tidelog_quorum.raft.links import MAX_FRAME_BYTES
from tidelog_quorum.raft.peers import Introduction, Peers

logger = logging.getLogger(__name__)


class RaftReceiver(RaftServiceServicer):
    """Serves from the engine's start to its stop, on the event loop; before and after, it turns callers away.

    ``deliver`` gets each message with its sender's directory id.
    """

    def __init__(self, deliver: Callable[[Message, bytes], None]) -> None:
        self._deliver = deliver
        self._me: Introduction | None = None
        self._peers: Peers | None = None
        self._streams: set[asyncio.Task[object]] = set()

    def start(self, me: Introduction, peers: Peers) -> None:
        """Take callers from now on."""
        self._me, self._peers = me, peers

    async def Exchange(  # noqa: N802
        self,
        request_iterator: AsyncIterator[pb.ExchangeRequest],
        context: grpc.aio.ServicerContext[object, object],
    ) -> AsyncIterator[pb.ExchangeResponse]:
        """Take messages from one other controller until it or this one ends the stream."""
        if self._me is None or self._peers is None:
            await abort_with(
                context, error_for(ErrorCode.BROKER_NOT_AVAILABLE, "this controller is starting or stopping")
            )
        me, peers = self._me, self._peers
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        hello: pb.RaftHello | None = None
        try:
            first = await anext(request_iterator, None)
            if first is None:
                return
            peers.check_hello(first.hello)
            peers.connected(first.hello)
            hello = first.hello
            yield pb.ExchangeResponse(hello=me.hello_to(hello.sender_id))
            async for request in request_iterator:
                self._take(hello, request)
        except TidelogError as error:
            logger.warning("refused a stream from %s: %s", context.peer(), error)
            await abort_with(context, error)
        finally:
            self._streams.discard(task)
            if hello is not None:
                peers.disconnected(hello)

    async def stop(self) -> None:
        """End all streams, so that the server need not wait for the others to do it."""
        self._peers = None
        streams = list(self._streams)
        for task in streams:
            task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    def _take(self, hello: pb.RaftHello, request: pb.ExchangeRequest) -> None:
        size = request.ByteSize()
        if size > MAX_FRAME_BYTES:
            raise error_for(
                ErrorCode.INVALID_REQUEST,
                f"controller {hello.sender_id} sent a frame of {size} bytes, above {MAX_FRAME_BYTES}",
            )
        for frame in request.messages:
            if frame.sender_id != hello.sender_id:
                raise error_for(
                    ErrorCode.INVALID_REQUEST,
                    f"the stream of controller {hello.sender_id} has a message of {frame.sender_id}",
                )
            self._deliver(decode_message(frame), hello.sender_directory_id)
