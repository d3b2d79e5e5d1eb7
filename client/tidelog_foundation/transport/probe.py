"""Detection of the server at an address, by a small request on a separate connection."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from typing import Final

from tidelog_foundation.config.endpoints import is_ip_address, parse_address
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.transport.probe_answers import Answer, Protocol, is_whole, probe_request, read_answer
from tidelog_foundation.transport.tls_failures import NO_CLIENT_CERTIFICATE, ssl_reason

MAX_TIMEOUT_S: Final = 2.0
_PAUSE_S: Final = 0.2
"""An answer is complete after a pause of this length."""
_MOST_BYTES: Final = 64 * 1024
_HTTP_2: Final = ["h2"]


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The reason why the server at an address is unknown; it may be temporary.

    ``is_cause`` is true if the reason explains why connections fail.
    """

    code: ErrorCode
    reason: str
    is_cause: bool = True


async def probe(address: str, timeout_s: float = MAX_TIMEOUT_S, tls: ssl.SSLContext | None = None) -> Answer | NoAnswer:
    """Return the kind of server at ``host:port``, over TLS with a context of the caller's own. Never raises."""
    host, port = parse_address(address)
    if tls is not None:
        # A gRPC server closes a connection that does not offer HTTP/2.
        tls.set_alpn_protocols(_HTTP_2)
    is_resolved = is_ip_address(host)
    try:
        async with asyncio.timeout(timeout_s):
            if not is_resolved:
                await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
                is_resolved = True
            received = await _exchange(host, port, probe_request(), tls)
            if received:
                return read_answer(received)
            if tls is not None:
                text = f"it closes connections over TLS without an answer: {NO_CLIENT_CERTIFICATE}"
                return NoAnswer(ErrorCode._SSL, text)
            # Some TLS servers silently close a connection that does not begin with a handshake.
            handshake = await _exchange(host, port, _client_hello())
    except TimeoutError:
        if not is_resolved:
            return NoAnswer(ErrorCode._RESOLVE, "the name server does not answer")
        return NoAnswer(ErrorCode.REQUEST_TIMED_OUT, "it does not answer", is_cause=False)
    except ssl.SSLError as error:
        return NoAnswer(ErrorCode._SSL, ssl_reason(error))
    except OSError as error:
        if not is_resolved:
            return NoAnswer(ErrorCode._RESOLVE, f"the name cannot be resolved: {error.strerror or error}")
        return NoAnswer(ErrorCode._TRANSPORT, _reason(error))
    if handshake and read_answer(handshake).protocol is Protocol.TLS:
        return Answer(Protocol.TLS)
    return NoAnswer(ErrorCode._TRANSPORT, "it closes connections without an answer", is_cause=False)


async def _exchange(host: str, port: int, request: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """Return the server's answer up to the end of the connection; b"" if there is none.

    Raises:
        OSError: the connection failed.
    """
    received = b""
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    try:
        writer.write(request)
        while not is_whole(received) and len(received) < _MOST_BYTES:
            chunk = await asyncio.wait_for(reader.read(_MOST_BYTES), _PAUSE_S if received else None)
            if not chunk:
                break
            received += chunk
    except (ConnectionError, TimeoutError):
        return received
    finally:
        writer.transport.abort()
    return received


def _client_hello() -> bytes:
    """Return the first bytes of a TLS client."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def _reason(error: OSError) -> str:
    """Return the system's reason; for a name with several addresses, asyncio joins all reasons into one text."""
    text = error.strerror or str(error)
    return "Connection refused" if "refused" in text.lower() else text
