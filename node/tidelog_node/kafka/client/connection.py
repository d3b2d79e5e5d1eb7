"""A connection to another node's Kafka listener with one request at a time.

A response is received into a buffer of its own size, so that reading from it needs no copy. The caller may leave before
the answer arrives. The connection is free again after the answer, and is closed if the answer does not arrive in time.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from functools import partial
from struct import Struct
from typing import Any, Final, Protocol, cast

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.sasl import SaslLogin
from tidelog_foundation.transport.tls_failures import ssl_reason
from tidelog_node.kafka.client.session import PeerSession
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.fields import Message
from tidelog_node.kafka.protocol.headers import read_response_header, request_head, response_has_tags
from tidelog_node.kafka.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog_node.kafka.protocol.reader import MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Buffer, Writer
from tidelog_node.partitions.fetchers.short_steps import Steps

_LENGTH: Final = Struct(">i")
_SCRATCH_BYTES: Final = 4 * 1024
_JOINED_BYTES: Final = 4 * 1024
"""A request below this size is sent as one chunk."""
_HANDSHAKE_BYTES: Final = 1024 * 1024
_MOST_BYTES: Final = 512 * 1024 * 1024
"""The maximum size of a response. A larger announced size is invalid."""
FIRST_CORRELATION_ID: Final = 1
LAST_CORRELATION_ID: Final = 2**31 - 1
_PATH_OPTIONS: Final = (
    (socket.SOL_SOCKET, "SO_KEEPALIVE", 1),
    (socket.IPPROTO_TCP, "TCP_KEEPIDLE", 10),
    (socket.IPPROTO_TCP, "TCP_KEEPINTVL", 5),
    (socket.IPPROTO_TCP, "TCP_KEEPCNT", 1),
    (socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", 15_000),
)
"""A host that disappears silently is detected after 15 s, as with gRPC, and not only by request timeouts."""
_OLDEST: Final = 0
"""The version of ApiVersions that every server supports."""
NO_ANSWER: Final = Reader(memoryview(b""))
"""The outcome of a request whose answer, and those of the requests after it, the short way has taken."""


class ShortPolls(Protocol):
    """The short way of a connection, see :mod:`tidelog_node.kafka.client.short_polls`."""

    def begin(self, steps: Steps, future: asyncio.Future[Reader], timeout_s: float, empty: bytes, body: int) -> None:
        """Let ``steps`` take the answer to the request in progress, whose outcome is ``future``.

        ``empty`` is such a request without partitions. Its body begins at ``body``.
        """

    def serve(self, buffer: memoryview, filled: int) -> bool:
        """Serve the answer in the buffer with its length before it. Return False if it must take the general way."""

    def serve_frame(self, frame: bytearray) -> bool:
        """Serve an answer without its length. Return False if it must take the general way."""


class PeerConnection(asyncio.BufferedProtocol):
    """A connection, started with :meth:`open`. ``on_free`` is called after each response, until ``on_lost``.

    ``peer`` is the other node's name in errors.
    """

    def __init__(
        self,
        peer: str,
        client_id: str,
        on_free: Callable[[PeerConnection], None],
        on_lost: Callable[[PeerConnection], None],
    ) -> None:
        self._peer = peer
        self._client_id = client_id.encode()
        self.loop = asyncio.get_running_loop()
        self._on_free = on_free
        self._on_lost = on_lost
        self._versions: dict[int, tuple[int, int]] = {}
        self._transport: asyncio.Transport | None = None
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._frame: bytearray | None = None
        self._filled = 0
        self._most_bytes = _HANDSHAKE_BYTES
        self._correlation_id = 0
        self._has_tags = False
        self._answer: asyncio.Future[Reader] | None = None
        self._deadline: float | None = None
        """The time, in the loop's seconds, at which the request in progress fails."""
        self._timeout_s = 0.0
        """The wait of that request for its answer."""
        self._timer: asyncio.TimerHandle | None = None
        """A look at the deadline. It outlives its request, because most requests are answered long before."""
        self._failure: TidelogError | None = None
        self._session: PeerSession | None = None
        self._is_setting_up = True
        """True while the connection's own requests are in progress, after which it is not free."""
        self.polls: ShortPolls | None = None
        """The short way of followers' fetches, once there was one."""
        self.empty_poll: tuple[Any, tuple[bytes, int]] | None = None
        """The common values of the last fetches on the short way, and such a request without partitions."""

    @property
    def is_open(self) -> bool:
        """True if the connection is open as far as known."""
        return self._transport is not None and not self._transport.is_closing()

    async def open(
        self,
        host: str,
        port: int,
        timeout_s: float,
        tls: ssl.SSLContext | None = None,
        login: SaslLogin | None = None,
    ) -> None:
        """Connect, with ``tls`` if it is given, request the APIs of the other node, and log in, if there is a login.

        Raises:
            TidelogError: _TRANSPORT, REQUEST_TIMED_OUT, or an error of SASL.
        """
        async with self._setup(timeout_s):
            await asyncio.get_running_loop().create_connection(lambda: self, host, port, ssl=tls)
            request = ApiVersionsRequest()
            response = decode(ApiVersionsResponse, await self._ask(request, _OLDEST, timeout_s), _OLDEST)
            self._versions = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
            if login is not None:
                self._session = PeerSession(login, host, self._peer)
                await self._session.log_in(self.version_of, partial(self._ask, timeout_s=timeout_s))
        self._most_bytes = _MOST_BYTES

    async def renew_session(self, timeout_s: float) -> None:
        """Log in again if the session ends soon (KIP-368). No request is in progress.

        Raises:
            TidelogError: _TRANSPORT, REQUEST_TIMED_OUT, or an error of SASL. The connection is closed.
        """
        if self._session is not None and self._session.ends_soon():
            async with self._setup(timeout_s):
                await self._session.log_in(self.version_of, partial(self._ask, timeout_s=timeout_s))

    @contextlib.asynccontextmanager
    async def _setup(self, timeout_s: float) -> AsyncIterator[None]:
        """Close the connection if its own requests fail."""
        self._is_setting_up = True
        try:
            async with asyncio.timeout(timeout_s):
                yield
        except TimeoutError as error:
            self.close()
            raise error_for(ErrorCode.REQUEST_TIMED_OUT, f"{self._peer} did not answer in {timeout_s:g} s") from error
        except ssl.SSLError as error:
            self.close()
            raise error_for(ErrorCode._SSL, f"cannot connect to {self._peer}: {ssl_reason(error)}") from error
        except OSError as error:
            self.close()
            raise error_for(ErrorCode._TRANSPORT, f"cannot connect to {self._peer}: {error}") from error
        except MalformedMessageError as error:
            self.close()
            raise self._is_no_node(str(error)) from error
        except BaseException:
            self.close()
            raise
        self._is_setting_up = False

    def version_of(self, key: ApiKey, served: tuple[int, int]) -> int:
        """Return the newest common version of an API. ``served`` has the first and last version of this side.

        Raises:
            TidelogError: UNSUPPORTED_VERSION: there is no common version.
        """
        first, last = self._versions.get(key, (0, -1))
        version = min(last, served[1])
        if version < max(first, served[0]):
            theirs = f"{first} to {last}" if last >= 0 else "none"
            text = f"{self._peer} serves {key.name} in versions {theirs}, {served[0]} to {served[1]} are needed"
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, text)
        return version

    def send(
        self, key: ApiKey, version: int, body: Writer, *, is_flexible: bool, timeout_s: float
    ) -> asyncio.Future[Reader]:
        """Send a request on a free connection and return a future of the response's body, which may be cancelled.

        The future raises TidelogError with _TRANSPORT, or with REQUEST_TIMED_OUT after ``timeout_s``, which closes the
        connection.
        """
        assert self._deadline is None, "a request is in progress"
        loop = self.loop
        self._answer = loop.create_future()
        if self._transport is None or not self.is_open:
            self._answer.set_exception(self._failure or self._lost("it is closed"))
            return self._answer
        last = self._correlation_id
        self._correlation_id = FIRST_CORRELATION_ID if last == LAST_CORRELATION_ID else last + 1
        self._has_tags = response_has_tags(key, is_flexible=is_flexible)
        self._timeout_s = timeout_s
        self._expire_at(loop.time() + timeout_s)
        self._transport.writelines(self.request(key, version, body, is_flexible=is_flexible))
        return self._answer

    def close(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        # uvloop's transports are not of asyncio's class.
        self._transport = cast(asyncio.Transport, transport)
        _watch_path(transport.get_extra_info("socket"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request in progress."""
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
        self._settle(self._failure or self._lost(exc or "it was closed"))
        self._on_lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for received bytes: the response's own, once its size is known."""
        if self._frame is not None:
            return memoryview(self._frame)[self._filled :]
        return self._scratch[self._filled :] if self._filled else self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes."""
        self._filled += nbytes
        polls = self.polls
        if polls is not None and self._frame is None and polls.serve(self._scratch, self._filled):
            self._filled = 0
            return
        try:
            if self._frame is None:
                self._begin_frame()
            if self._frame is not None and self._filled == len(self._frame):
                frame, self._frame, self._filled = self._frame, None, 0
                if polls is None or not polls.serve_frame(frame):
                    self._take(frame)
        except MalformedMessageError as error:
            self._failure = self._is_no_node(str(error))
            self.close()

    def _begin_frame(self) -> None:
        if self._filled < _LENGTH.size:
            return
        [size] = _LENGTH.unpack_from(self._scratch)
        if not _LENGTH.size <= size <= self._most_bytes:
            raise MalformedMessageError(f"a response of {size} bytes, at most {self._most_bytes} are allowed")
        received = self._filled - _LENGTH.size
        if received > size:
            raise MalformedMessageError(f"{received - size} bytes after the only expected response")
        self._frame = bytearray(size)
        self._frame[:received] = self._scratch[_LENGTH.size : self._filled]
        self._filled = received

    def _take(self, frame: bytearray) -> None:
        if self._deadline is None:
            raise MalformedMessageError("a response without a request")
        reader = Reader(memoryview(frame))
        correlation_id = read_response_header(reader, has_tags=self._has_tags)
        if correlation_id != self._correlation_id:
            raise MalformedMessageError(f"a response to request {correlation_id}, not to {self._correlation_id}")
        self._settle(reader)
        if not self._is_setting_up:
            self._on_free(self)

    def end_polls(self, error: Exception | None) -> None:
        """Settle the request in progress, after the short way has taken its answer or failed to do so."""
        self._settle(error or NO_ANSWER)
        if error is None:
            self._on_free(self)
        else:
            self.close()

    def _settle(self, outcome: Reader | Exception) -> None:
        self._deadline = None
        answer, self._answer = self._answer, None
        if answer is None or answer.done():
            return
        if isinstance(outcome, Reader):
            answer.set_result(outcome)
        else:
            answer.set_exception(outcome)

    def _expire_at(self, deadline: float) -> None:
        """Fail the request at the deadline, unless it is settled before."""
        self._deadline = deadline
        timer = self._timer
        if timer is not None and timer.when() > deadline:
            timer.cancel()
            timer = None
        if timer is None:
            self._timer = self.loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self._deadline is None:
            return
        if self._deadline > self.loop.time():
            self._expire_at(self._deadline)
            return
        text = f"{self._peer} has not answered in {self._timeout_s:g} s"
        self._failure = error_for(ErrorCode.REQUEST_TIMED_OUT, text)
        self.close()

    def _ask(self, request: Message, version: int, timeout_s: float) -> asyncio.Future[Reader]:
        body = Writer()
        encode(request, body, version)
        is_flexible = version >= request.FLEXIBLE
        return self.send(ApiKey(request.API_KEY), version, body, is_flexible=is_flexible, timeout_s=timeout_s)

    def request(self, key: ApiKey, version: int, body: Writer, *, is_flexible: bool) -> list[Buffer]:
        """Return a request with its head and the last correlation id."""
        chunks = body.chunks()
        size = sum(map(len, chunks))
        head = request_head(size, key, version, self._correlation_id, self._client_id, is_flexible=is_flexible)
        return [b"".join((head, *chunks))] if size < _JOINED_BYTES else [head, *chunks]

    def _lost(self, why: str | Exception) -> TidelogError:
        if isinstance(why, ssl.SSLError):
            return error_for(ErrorCode._SSL, f"the connection to {self._peer} is lost: {ssl_reason(why)}")
        return error_for(ErrorCode._TRANSPORT, f"the connection to {self._peer} is lost: {why}")

    def _is_no_node(self, why: str) -> TidelogError:
        return error_for(ErrorCode._TRANSPORT, f"{self._peer} does not speak Kafka's protocol: {why}")


def _watch_path(connected: socket.socket) -> None:
    """Make the system detect that the other host is gone, as far as it can."""
    for level, name, value in _PATH_OPTIONS:
        if hasattr(socket, name):
            connected.setsockopt(level, getattr(socket, name), value)
