"""The outgoing connection to another controller: one gRPC stream, reopened whenever it ends.

Messages may be lost, which Raft tolerates, but the core never waits: the queue is bounded, and the oldest message is
dropped when the peer does not keep up. A snapshot chunk is sent alone in a frame, after the messages that are queued
when it comes and before later ones: heartbeats and votes wait for at most one chunk, and the chunk for at most one
frame.

Names are resolved before each attempt to connect, which lasts a second or two. gRPC alone would wait half a minute
between two resolutions, which is long for a controller that returns with another address.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from tidelog.v1 import raft_service_pb2 as pb
from tidelog.v1.raft_service_pb2_grpc import RaftServiceStub
from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.transport import CHANNEL_OPTIONS, error_from_rpc, raise_if_cancelled
from tidelog_foundation.transport.channels import OPEN, ChannelSecurity, diagnosis_of
from tidelog_foundation.transport.credentials import channel_credentials
from tidelog_foundation.transport.session_channel import SessionChannel, log_in
from tidelog_quorum.raft.core.messages import AppendRequest, Message, SnapshotRequest
from tidelog_quorum.raft.network.codec import encode_message

if TYPE_CHECKING:
    from tidelog.v1.raft_service_pb2_grpc import RaftServiceAsyncStub

logger = logging.getLogger(__name__)
Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a host and port in gRPC's form, ``ipv4:127.0.0.1:9093``; raises OSError."""

MAX_FRAME_BYTES = 96 * 1024 * 1024
"""The limit on a frame: a frame is closed at ``_FRAME_BYTES``, and no message has more than 64 MiB."""
_FRAME_BYTES = 4 * 1024 * 1024
_QUEUE_LENGTH = 1_024
_QUEUE_BYTES = 80 * 1024 * 1024
_CONNECT_TIMEOUT_S = 2.0
_RETRY_PAUSE_S = 0.05
_REFUSED_PAUSE_S = 1.0
_REFUSALS = (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INCONSISTENT_VOTER_SET, ErrorCode.INVALID_REQUEST)
_OWN_OPTIONS: dict[str, int] = {
    "grpc.max_reconnect_backoff_ms": 250,
    # The peer's only answer is its hello.
    "grpc.max_receive_message_length": 64 * 1024,
    "grpc.max_send_message_length": MAX_FRAME_BYTES,
}
_OPTIONS = [*(option for option in CHANNEL_OPTIONS if option[0] not in _OWN_OPTIONS), *_OWN_OPTIONS.items()]


class PeerLink:
    """One outgoing connection; the owner runs :meth:`run` as a task until it cancels it.

    ``on_hello`` receives the peer's hello whenever a stream opens, and may raise to refuse it. ``security`` is
    that of the connection, which uses the current version of certificates.
    """

    def __init__(
        self,
        hello: pb.RaftHello,
        address: tuple[str, int],
        on_hello: Callable[[pb.RaftHello], None],
        resolve: Resolve,
        security: ChannelSecurity = OPEN,
    ) -> None:
        self.address = address
        self._hello = hello
        self._on_hello = on_hello
        self._resolve = resolve
        self._security = security
        self._queue: deque[tuple[Message, int]] = deque()
        self._queued_bytes = 0
        self._chunk: SnapshotRequest | None = None
        self._chunk_is_next = False
        self._wake = asyncio.Event()
        self._last_error: ErrorCode | None = None
        self._diagnosis = diagnosis_of(security.certificates)

    def send(self, message: Message) -> None:
        """Queue a message; a full queue drops the oldest one."""
        if isinstance(message, SnapshotRequest):
            self._chunk = message
        else:
            size = sum(e.size for e in message.entries) if isinstance(message, AppendRequest) else 0
            self._queue.append((message, size))
            self._queued_bytes += size
            while len(self._queue) > _QUEUE_LENGTH or self._queued_bytes > _QUEUE_BYTES:
                self._queued_bytes -= self._queue.popleft()[1]
        self._wake.set()

    async def run(self) -> None:
        """Keep a stream to the peer open and write the queued messages to it."""
        while True:
            pause_s = _RETRY_PAUSE_S
            try:
                failure = await self._try_connection()
                raise_if_cancelled()
                if failure is not None:
                    self._note_failure(failure)
                    pause_s = _REFUSED_PAUSE_S if failure.code in _REFUSALS else _RETRY_PAUSE_S
            except asyncio.CancelledError:
                # gRPC raises it too, for a call that it has cancelled itself. Only a cancellation of the task ends it.
                raise_if_cancelled()
            except Exception:
                # Without this task the peer would never hear from this controller again.
                logger.exception("the stream to controller %s failed unexpectedly", self._hello.receiver_id)
            # Messages for the stream that ended would be late on the next one.
            self._queue.clear()
            self._queued_bytes, self._chunk = 0, None
            await asyncio.sleep(pause_s)

    async def _try_connection(self) -> TidelogError | None:
        """Stay connected as long as possible, and return the error that ended the stream."""
        try:
            await self._connect()
        except grpc.aio.AioRpcError as error:
            return await self._diagnosis.explained(format_address(*self.address), error_from_rpc(error))
        except TidelogError as error:
            return error
        except TimeoutError:
            cause = await self._diagnosis.cause(format_address(*self.address))
            return cause or error_for(ErrorCode._TRANSPORT, "it cannot be reached")
        except OSError as error:
            return error_for(ErrorCode._RESOLVE, f"{error.strerror}")
        except asyncio.InvalidStateError:
            # The stream ended between two writes; the next one gets the reason.
            return None
        return None

    async def _connect(self) -> None:
        async with asyncio.timeout(_CONNECT_TIMEOUT_S):
            addresses = await self._resolve(*self.address)
        options = [*_OPTIONS, ("grpc.default_authority", format_address(*self.address))]
        async with self._channel(_target(addresses), options) as channel:
            await log_in(channel)
            await self._exchange(RaftServiceStub(channel))

    def _channel(self, target: str, options: list[tuple[str, Any]]) -> grpc.aio.Channel:
        certificates, login = self._security.certificates, self._security.login
        if certificates is None:
            channel = grpc.aio.insecure_channel(target, options=options)
        else:
            channel = grpc.aio.secure_channel(target, channel_credentials(certificates), options=options)
        return channel if login is None else SessionChannel(channel, login, self.address[0])

    async def _exchange(self, stub: RaftServiceAsyncStub) -> None:
        call = stub.Exchange(wait_for_ready=True)
        call.add_done_callback(lambda _: self._wake.set())
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await call.write(pb.ExchangeRequest(hello=self._hello))
                answer = await call.read()
            if not isinstance(answer, pb.ExchangeResponse):
                return
            self._on_hello(answer.hello)
            self._last_error = None
            logger.info("connected to controller %s at %s", answer.hello.sender_id, format_address(*self.address))
            while not call.done():
                await self._wake.wait()
                self._wake.clear()
                while self._queue or self._chunk:
                    await call.write(self._next_frame())
        finally:
            call.cancel()

    def _next_frame(self) -> pb.ExchangeRequest:
        request, size = pb.ExchangeRequest(), 0
        if self._chunk is not None and (self._chunk_is_next or not self._queue):
            request.messages.append(encode_message(self._chunk))
            self._chunk, self._chunk_is_next = None, False
            return request
        self._chunk_is_next = self._chunk is not None
        while self._queue and size < _FRAME_BYTES:
            message, message_size = self._queue.popleft()
            size += message_size
            request.messages.append(encode_message(message))
        self._queued_bytes -= size
        return request

    def _note_failure(self, error: TidelogError) -> None:
        """Log only the first of several equal failures: a peer that is down is tried many times a minute."""
        if error.code is not self._last_error:
            self._last_error = error.code
            address = format_address(*self.address)
            logger.warning("cannot connect to controller %s at %s: %s", self._hello.receiver_id, address, error)


async def resolve_address(host: str, port: int) -> list[str]:
    """Resolve with the operating system's resolver; see :data:`Resolve`."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (ValueError, OverflowError) as error:
        raise OSError(errno.EINVAL, f"no name or port: {error}") from error
    families = {socket.AF_INET: "ipv4", socket.AF_INET6: "ipv6"}
    pairs = [(families[family], str(address[0])) for family, _, _, _, address in found if family in families]
    return [f"{family}:{format_address(ip, port)}" for family, ip in dict.fromkeys(pairs)]


def _target(addresses: list[str]) -> str:
    """Join addresses to one target, which can only be of one family; the first address decides."""
    if not addresses:
        raise error_for(ErrorCode._RESOLVE, "the name has no address")
    family = addresses[0].partition(":")[0]
    same = [a.partition(":")[2] for a in addresses if a.startswith(f"{family}:")]
    return f"{family}:{','.join(same)}"
