"""The TLS layer of an accepted connection, between its socket and its :class:`Connection`.

The layer uses Python's ``ssl.SSLObject`` instead of asyncio's transport for TLS. That one has no limit on handshakes in
progress, allocates 256 KiB per connection, and encrypts a response of any size in one step, into a buffer that is not
counted. Here handshakes are limited in number and time, and a response is encrypted in steps as the kernel takes it. A
response counts as sent when the kernel has all of it, as without TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.security import ANONYMOUS, Principal
from tidelog_foundation.security.certificate_store import CertificateStore
from tidelog_foundation.security.principal_mapping import PrincipalMapping
from tidelog_node.kafka.protocol.writer import Buffer
from tidelog_node.kafka.server.handshakes import Handshakes

_HANDSHAKE_RECORD: Final = 22
"""The first byte of every TLS connection (RFC 8446, section 5.1)."""
_STEP_BYTES: Final = 256 * 1024
"""The bytes that are encrypted before the kernel must take them."""
_STEPS_PER_TURN: Final = 4
"""The steps of one connection before other tasks run."""


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """The certificates of a listener, and the rules that map the names in those of clients to principals.

    Without rules, certificates do not determine principals: the listener has SASL.
    """

    certificates: CertificateStore
    mapping: PrincipalMapping | None


class TlsConnection(asyncio.BufferedProtocol):
    """The protocol of an accepted socket, and the transport of the layer that begins after the handshake."""

    def __init__(
        self,
        tls: ListenerTls,
        listener: str,
        handshakes: Handshakes,
        scratch: bytearray,
        connect: Callable[[str, Principal], asyncio.BufferedProtocol],
    ) -> None:
        self.listener = listener
        self.host = ""
        self._tls = tls
        self._handshakes = handshakes
        self._scratch = memoryview(scratch)
        self._connect = connect
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = tls.certificates.current.server
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._connection: asyncio.BufferedProtocol | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._has_received = False
        self._waiting: deque[memoryview] = deque()
        """The responses that are not encrypted yet."""
        self._waiting_bytes = 0
        self._is_reading = True
        self._is_full = False
        """True while the kernel has not taken all that is encrypted."""
        self._is_paused = self._is_scheduled = self._is_closed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the client's hello, unless there are too many connections."""
        # uvloop's transports are not of asyncio's class.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=0)
        peer = transport.get_extra_info("peername")
        self.host = peer[0] if peer else ""
        if not peer or not self._handshakes.admit(self):
            self.abort()
            return
        timeout_s = self._handshakes.timeout_s
        text = f"the TLS handshake has not ended after {timeout_s:g} s"
        self._deadline = asyncio.get_running_loop().call_later(timeout_s, self.fail, text)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the shared buffer for encrypted bytes, which are copied before another connection receives."""
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Decrypt received bytes, or continue the handshake."""
        if self._is_closed:
            return
        if not self._has_received and self._scratch[0] != _HANDSHAKE_RECORD:
            self.fail("the client does not speak TLS")
            return
        self._has_received = True
        self._incoming.write(self._scratch[:nbytes])
        if self._connection is not None or self._shake_hands():
            self._read()

    def pause_writing(self) -> None:
        """Record that the kernel takes no more for now."""
        self._is_full = True

    def resume_writing(self) -> None:
        """Encrypt more responses."""
        self._is_full = False
        self._encrypt()

    def connection_lost(self, exc: Exception | None) -> None:
        """End the handshake or the connection."""
        if self._connection is None and self._has_received and not self._is_closed:
            self._handshakes.report(self, "the client ended the TLS handshake")
        self._is_closed = True
        self._end_handshake()
        self._waiting.clear()
        if self._connection is not None:
            self._connection.connection_lost(exc)

    def fail(self, reason: str, level: int = logging.WARNING) -> None:
        """Log the client's failure once, and close at once."""
        if not self._is_closed:
            self._handshakes.report(self, reason, level)
            self.abort()

    # The transport of the next layer.

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Replace the next layer. It has taken all bytes that it was given."""
        assert isinstance(protocol, asyncio.BufferedProtocol)
        self._connection = protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return information on the socket."""
        return self._transport.get_extra_info(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Accept the limit of 0, the only one of this layer."""
        assert high == 0

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the kernel has not taken yet."""
        return self._waiting_bytes + self._transport.get_write_buffer_size()

    def write(self, data: Buffer) -> None:
        """Send bytes."""
        self.writelines((data,))

    def writelines(self, chunks: Any) -> None:
        """Send chunks of bytes."""
        for chunk in chunks:
            view = memoryview(chunk).cast("B") if len(chunk) else memoryview(b"")
            self._waiting.append(view)
            self._waiting_bytes += len(view)
        if not self._is_scheduled:
            self._encrypt()

    def pause_reading(self) -> None:
        """Receive no more for now."""
        self._is_reading = False
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Receive again, after what is received already."""
        self._is_reading = True
        self._transport.resume_reading()
        asyncio.get_running_loop().call_soon(self._read)

    def close(self) -> None:
        """Tell the client that nothing follows, and close when everything is sent."""
        # The client's answer is not awaited.
        with contextlib.suppress(ssl.SSLError):
            self._ssl.unwrap()
        self._flush()
        self._is_closed = True
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._is_closed = True
        self._end_handshake()
        self._transport.abort()

    def _shake_hands(self) -> bool:
        """Continue the handshake, and return whether the connection has begun."""
        try:
            self._ssl.do_handshake()
            principal = self._principal()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            # The client gets an alert that says what is wrong.
            self._flush()
            self.fail(f"the TLS handshake failed: {_reason(error)}")
            return False
        except (ValueError, TidelogError) as error:
            self.fail(str(error))
            return False
        self._end_handshake()
        self._flush()
        self._connection = self._connect(self.listener, principal)
        self._connection.connection_made(cast(asyncio.BaseTransport, self))
        return not self._is_closed

    def _principal(self) -> Principal:
        """Return the principal of the client's certificate.

        Raises:
            ValueError: The certificate has an invalid name.
            TidelogError: No rule maps it.
        """
        certificate = self._ssl.getpeercert(binary_form=True)
        if certificate is None or self._tls.mapping is None:
            return ANONYMOUS
        # Imported late: a node without TLS needs no cryptography. The listener's certificates have loaded it.
        from tidelog_foundation.security.distinguished_name import subject_of

        return self._tls.mapping.principal_of(subject_of(certificate))

    def _read(self) -> None:
        """Pass decrypted bytes to the connection as long as it reads."""
        is_ended = False
        while self._is_reading and not self._is_closed and not is_ended:
            connection = self._connection
            assert connection is not None
            # A protocol's buffer may be any; those of the next layers are memoryviews.
            buffer = cast(memoryview, connection.get_buffer(-1))
            filled = 0
            try:
                while filled < len(buffer) and not is_ended:
                    count = cast(int, self._ssl.read(len(buffer) - filled, buffer[filled:]))
                    filled += count
                    is_ended = not count
            except ssl.SSLWantReadError:
                if not filled:
                    break
            except ssl.SSLZeroReturnError:
                is_ended = True
            except ssl.SSLError as error:
                self.fail(f"the client broke the TLS protocol: {_reason(error)}")
                return
            if filled:
                connection.buffer_updated(filled)
        if not self._is_closed:
            self._flush()
        if is_ended and not self._is_closed:
            self.abort()

    def _encrypt(self) -> None:
        """Encrypt and send waiting responses until the kernel takes no more, with other tasks in between."""
        self._is_scheduled = False
        steps = 0
        while self._waiting and not self._is_full and not self._is_closed:
            if steps == _STEPS_PER_TURN:
                self._is_scheduled = True
                asyncio.get_running_loop().call_soon(self._encrypt)
                break
            self._encrypt_step()
            steps += 1
        self._tell_connection()

    def _encrypt_step(self) -> None:
        room = _STEP_BYTES
        while self._waiting and room:
            view = self._waiting.popleft()
            if len(view) > room:
                self._waiting.appendleft(view[room:])
                view = view[:room]
            if view:
                self._ssl.write(cast(bytes, view))
            room -= len(view)
            self._waiting_bytes -= len(view)
        self._flush()

    def _tell_connection(self) -> None:
        """Pause or resume the connection's responses."""
        is_paused = bool(self._waiting) or self._is_full
        if is_paused is self._is_paused or self._connection is None or self._is_closed:
            return
        self._is_paused = is_paused
        if is_paused:
            self._connection.pause_writing()
        else:
            self._connection.resume_writing()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def _end_handshake(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
            self._handshakes.forget(self)


def _reason(error: ssl.SSLError) -> str:
    """Return the reason in words, such as "certificate has expired" or "no shared cipher"."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not valid: {error.verify_message}"
    return (error.reason or str(error)).replace("_", " ").lower()
