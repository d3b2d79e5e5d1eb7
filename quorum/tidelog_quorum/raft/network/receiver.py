"""The incoming streams of other controllers: checks the sender and passes each message on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import cast

import grpc.aio

from tidelog.v1 import raft_service_pb2 as pb
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.transport.intake import parse
from tidelog_foundation.transport.services import Caller, Guard, Identify, Read, RequestStream, Service, anyone
from tidelog_quorum.raft.core.endpoints import Endpoints
from tidelog_quorum.raft.core.messages import Message
from tidelog_quorum.raft.network.codec import decode_message
from tidelog_quorum.raft.network.links import MAX_FRAME_BYTES
from tidelog_quorum.raft.network.peers import Introduction, Peers, endpoints_in

logger = logging.getLogger(__name__)
_HELLO_TIMEOUT_S = 5.0
_MAX_HELLO_BYTES = 8 * 1024
_MAX_STREAMS_PER_SENDER = 8
"""A peer has one or two streams; a peer that was cut off may have left some that nobody has noticed yet."""


def add_raft_service(
    receiver: RaftReceiver, server: grpc.aio.Server, identify: Identify = anyone, guard: Guard | None = None
) -> None:
    """Add the service to ``server`` for the callers that ``identify`` and ``guard`` accept.

    The receiver parses the bytes itself, within its limits.
    """
    table = {"Exchange": RequestStream(receiver.exchange)}
    service = Service(pb.DESCRIPTOR.services_by_name["RaftService"], table)
    service.add_to(server, identify=identify, guard=guard)


class RaftReceiver:
    """The service for other controllers from the engine's start to its stop, on the event loop; else it refuses calls.

    ``deliver`` receives each message with its sender's directory id and addresses.
    """

    def __init__(self, deliver: Callable[[Message, bytes, Endpoints | None], None]) -> None:
        self._deliver = deliver
        self._me: Introduction | None = None
        self._peers: Peers | None = None
        self._streams: set[asyncio.Task[object]] = set()
        self._stream_timeouts: dict[int, list[asyncio.Timeout]] = {}

    def start(self, me: Introduction, peers: Peers) -> None:
        """Accept callers from now on."""
        self._me, self._peers = me, peers

    async def exchange(self, read: Read, caller: Caller) -> AsyncGenerator[pb.ExchangeResponse, None]:
        """Receive serialized messages from one other controller until either side ends the stream."""
        if self._me is None or self._peers is None:
            raise error_for(ErrorCode.BROKER_NOT_AVAILABLE, "this controller is starting or stopping")
        me, peers = self._me, self._peers
        task = asyncio.current_task()
        assert task is not None
        self._streams.add(task)
        hello: pb.RaftHello | None = None
        try:
            first = await _first_of(read)
            if first is None:
                return
            peers.check_hello(first.hello)
            peers.connected(first.hello)
            hello = first.hello
            async with self._admitted(hello.sender_id):
                yield pb.ExchangeResponse(hello=me.hello_to(hello.sender_id))
                endpoints = endpoints_in(hello)
                while isinstance(raw := await read(), bytes):
                    self._take(hello, endpoints, len(raw), await parse(pb.ExchangeRequest, raw))
        except TidelogError as error:
            logger.warning("refused a stream from %s: %s", caller.connection, error)
            raise
        finally:
            self._streams.discard(task)
            if hello is not None:
                peers.disconnected(hello)

    async def stop(self) -> None:
        """End all streams, so that the server need not wait for the other controllers."""
        self._peers = None
        streams = list(self._streams)
        for task in streams:
            task.cancel()
        await asyncio.gather(*streams, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _admitted(self, sender_id: int) -> AsyncIterator[None]:
        """Count a sender's stream; if there are too many, its oldest one ends.

        Raises:
            TidelogError: INVALID_REQUEST, in the oldest stream.
        """
        streams = self._stream_timeouts.setdefault(sender_id, [])
        try:
            async with asyncio.timeout(None) as timeout:
                streams.append(timeout)
                if len(streams) > _MAX_STREAMS_PER_SENDER:
                    streams.pop(0).reschedule(0)
                yield
        except TimeoutError as error:
            text = f"controller {sender_id} has opened {_MAX_STREAMS_PER_SENDER} newer streams"
            raise error_for(ErrorCode.INVALID_REQUEST, text) from error
        finally:
            if timeout in streams:
                streams.remove(timeout)
            if not streams and self._stream_timeouts.get(sender_id) is streams:
                del self._stream_timeouts[sender_id]

    def _take(self, hello: pb.RaftHello, endpoints: Endpoints | None, size: int, request: pb.ExchangeRequest) -> None:
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
            self._deliver(decode_message(frame), hello.sender_directory_id, endpoints)


async def _first_of(read: Read) -> pb.ExchangeRequest | None:
    """Return the message with the hello, or None if the stream ends at once.

    Raises:
        TidelogError: REQUEST_TIMED_OUT, no hello came; INVALID_REQUEST, it is too large.
    """
    try:
        async with asyncio.timeout(_HELLO_TIMEOUT_S):
            first = await read()
    except TimeoutError as error:
        raise error_for(ErrorCode.REQUEST_TIMED_OUT, f"no hello came within {_HELLO_TIMEOUT_S} s") from error
    if not isinstance(first, bytes):
        return None
    if len(first) > _MAX_HELLO_BYTES:
        text = f"a hello of {len(first)} bytes is above the {_MAX_HELLO_BYTES} allowed"
        raise error_for(ErrorCode.INVALID_REQUEST, text)
    return cast(pb.ExchangeRequest, await parse(pb.ExchangeRequest, first))
