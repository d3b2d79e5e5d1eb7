"""The SASL layer of an accepted connection: it authenticates the client, then its :class:`Connection` replaces it.

The connection object, which can call handlers, does not exist before the client is authenticated. Until then the client
can make the node keep one request of ``sasl.server.max.receive.size`` bytes and has a deadline. The number of such
clients and the memory of their requests are limited.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from struct import Struct
from typing import Final, Protocol, cast

from tidelog_foundation.sasl import Deferred
from tidelog_node.kafka.protocol.frames import check_size
from tidelog_node.kafka.protocol.reader import Http2PrefaceError, MalformedMessageError
from tidelog_node.kafka.server.authentication import Authentication, Failure, Outcome, Session
from tidelog_node.kafka.server.connection import Connection
from tidelog_node.kafka.server.handshakes import Handshakes
from tidelog_node.kafka.server.logins import ListenerSasl, Logins, now

_LENGTH: Final = Struct(">i")
_SETTING: Final = "sasl.server.max.receive.size"


class _Transport(Protocol):
    """The part of a transport that the layer uses; that of a connection with TLS is the layer below."""

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None: ...


class SaslConnection(asyncio.BufferedProtocol):
    """The layer of one connection. ``connect`` makes the connection of a session and its host."""

    def __init__(
        self,
        sasl: ListenerSasl,
        listener: str,
        logins: Logins,
        handshakes: Handshakes,
        scratch: bytearray,
        connect: Callable[[Session, str], Connection],
    ) -> None:
        self.listener = listener
        self.host = ""
        """The client's address."""
        self._sasl = sasl
        self._logins = logins
        self._handshakes = handshakes
        self._connect = connect
        self._scratch = memoryview(scratch)
        self._received = bytearray()
        """The bytes of frames that are not processed yet."""
        self._counted = 0
        self._loop = asyncio.get_running_loop()
        self._deadline: asyncio.TimerHandle | None = None
        self._delay: asyncio.TimerHandle | None = None
        self._step: asyncio.Task[None] | None = None
        self._is_muted = self._is_paused = self._is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request, unless there are too many connections."""
        # uvloop's transports, and the TLS layer, are not of asyncio's class.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if peer else ""
        file = transport.get_extra_info("socket").fileno()
        if not peer or not self._handshakes.has_file(self.listener, file) or not self._handshakes.admit(self):
            self._abort()
            return
        self._exchange: Authentication = self._logins.begin(self._sasl, self.listener, self.host)
        timeout_s = self._handshakes.timeout_s
        text = f"the client has not authenticated in {timeout_s:g} s"
        self._deadline = self._loop.call_later(timeout_s, self.fail, text)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the shared buffer for received bytes, which are copied before another connection receives."""
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes."""
        if not self._is_closed:
            self._received += self._scratch[:nbytes]
            self._go_on()
            self._count()

    def pause_writing(self) -> None:
        """Record that the client does not take the replies, whose number the exchange limits."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """Record that the client has taken the replies."""
        self._is_paused = False

    def connection_lost(self, exc: Exception | None) -> None:
        """End the exchange."""
        if not self._is_closed and self._exchange.refusal is not None:
            self._logins.failed(self.listener, self.host, self._exchange.mechanism, self._exchange.refusal, None)
        self._is_closed = True
        self._received.clear()
        if self._step is not None:
            self._step.cancel()
        self._end_handshake()

    def fail(self, reason: str, level: int = logging.WARNING) -> None:
        """Log the client's failure once, and close at once."""
        if not self._is_closed:
            self._handshakes.report(self, reason, level)
            self._abort()

    def _go_on(self) -> None:
        """Process the complete frames, as long as the next one may be processed."""
        try:
            while not (self._is_closed or self._is_muted):
                frame = self._take_frame()
                if frame is None:
                    return
                self._react(self._exchange.receive(frame, now()))
        except Http2PrefaceError as error:
            self.fail(str(error), logging.DEBUG)
        except MalformedMessageError as error:
            # Kafka treats a size beyond the limit as a failed authentication.
            self._end(Failure(str(error)))
        except Exception as error:  # noqa: BLE001  # logged; one connection ends, not the node
            self._fail_unexpectedly(error)

    def _count(self) -> None:
        """Count the kept bytes, and end the exchange if all exchanges together keep too many."""
        kept = len(self._received) if not self._is_closed else 0
        more, self._counted = kept - self._counted, kept
        if not self._logins.may_keep(more):
            self.fail("clients that are not authenticated have sent too many bytes")

    def _take_frame(self) -> bytes | None:
        if len(self._received) < _LENGTH.size:
            return None
        [size] = _LENGTH.unpack_from(self._received)
        check_size(size, self._sasl.max_receive_size, _SETTING)
        end = _LENGTH.size + size
        if len(self._received) < end:
            return None
        frame = bytes(self._received[_LENGTH.size : end])
        del self._received[:end]
        return frame

    def _react(self, outcome: Outcome) -> None:
        if isinstance(outcome, Failure):
            self._end(outcome)
        elif isinstance(outcome, Deferred):
            self._mute(is_muted=True)
            self._step = self._loop.create_task(self._run(outcome), name="sasl-step")
        else:
            self._transport.write(outcome.to_frame())
            if self._exchange.session is not None:
                self._hand_over(self._exchange.session)

    async def _run(self, deferred: Deferred) -> None:
        try:
            outcome = await self._logins.run(deferred)
            self._step = None
            if not self._is_closed:
                self._mute(is_muted=False)
                self._react(self._exchange.resolve(outcome, now()))
                self._go_on()
        except Exception as error:  # noqa: BLE001  # logged; one connection ends, not the node
            self._fail_unexpectedly(error)

    def _hand_over(self, session: Session) -> None:
        """Let the connection take the transport, and what the client has sent already."""
        self._logins.succeeded(self.listener, session.mechanism, None)
        self._is_closed = True
        self._end_handshake()
        connection = self._connect(session, self.host)
        cast(_Transport, self._transport).set_protocol(connection)
        connection.connection_made(self._transport)
        if self._is_paused:
            connection.pause_writing()
        received, self._received = self._received, bytearray()
        if received:
            buffer = connection.get_buffer(-1)
            assert len(received) <= len(buffer), "a chunk at most follows the frame in progress"
            buffer[: len(received)] = received
            connection.buffer_updated(len(received))

    def _end(self, failure: Failure) -> None:
        """Close after the reply; if the failure is delayed, process and keep nothing until then."""
        self._logins.failed(self.listener, self.host, self._exchange.mechanism, failure.reason, None)
        self._received = bytearray()
        self._mute(is_muted=True)
        if not failure.is_delayed:
            self._abort()
            return
        delay_s = self._sasl.failure_delay_s
        self._extend_deadline(delay_s)
        self._delay = self._loop.call_later(delay_s, self._close, failure)

    def _close(self, failure: Failure) -> None:
        if failure.reply is not None:
            self._transport.write(failure.reply.to_frame())
        self._is_closed = True
        self._transport.close()

    def _mute(self, *, is_muted: bool) -> None:
        self._is_muted = is_muted
        if is_muted:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _extend_deadline(self, delay_s: float) -> None:
        """Let the reply of a failure have the delay and the time of a handshake to be taken."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._loop.call_later(delay_s + self._handshakes.timeout_s, self._abort)

    def _fail_unexpectedly(self, error: Exception) -> None:
        self._logins.failed_unexpectedly(self.listener, self.host, error)
        self._abort()

    def _abort(self) -> None:
        self._is_closed = True
        self._end_handshake()
        self._transport.abort()

    def _end_handshake(self) -> None:
        for timer in (self._deadline, self._delay):
            if timer is not None:
                timer.cancel()
        self._deadline = self._delay = None
        self._handshakes.forget(self)
        self._count()
