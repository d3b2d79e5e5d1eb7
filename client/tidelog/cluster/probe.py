"""Detection of the server at an address, by a small request on a separate connection."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
from dataclasses import dataclass
from typing import Final

from tidelog.cluster.probe_answers import Answer, Protocol, is_whole, probe_request, read_answer
from tidelog_foundation.config.endpoints import parse_address
from tidelog_foundation.errors import ErrorCode

MAX_TIMEOUT_S: Final = 2.0
_PAUSE_S: Final = 0.2
"""An answer is complete after a pause of this length."""
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "UNSUPPORTED_PROTOCOL", "RECORD_LAYER_FAILURE")
_MOST_BYTES: Final = 64 * 1024
_CLIENT_CERTIFICATE: Final = (
    "it may require a certificate of the client, of an authority that it trusts (ssl.certificate.location and "
    "ssl.key.location)"
)
_CLIENT_ALERTS: Final = (
    "CERTIFICATE_REQUIRED",
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_UNKNOWN",
    "HANDSHAKE_FAILURE",
)
"""The ends of TLS alerts by which servers refuse a client's certificate, or its absence."""
_EXPIRED: Final = 10
_UNKNOWN_AUTHORITY: Final = (2, 18, 19, 20, 21)
_OTHER_HOST: Final = (62, 64)
"""OpenSSL's numbers, X509_V_ERR_..., of the reasons why a certificate is not valid."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The reason why the server at an address is unknown; it may be temporary."""

    code: ErrorCode
    reason: str


async def probe(address: str, timeout_s: float = MAX_TIMEOUT_S, tls: ssl.SSLContext | None = None) -> Answer | NoAnswer:
    """Return the kind of server at ``host:port``, over TLS with a context. Never raises."""
    host, port = parse_address(address)
    is_resolved = _is_number(host)
    try:
        async with asyncio.timeout(timeout_s):
            if not is_resolved:
                await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
                is_resolved = True
            received = await _exchange(host, port, probe_request(), tls)
            if received:
                return read_answer(received)
            if tls is not None:
                text = f"it closes connections over TLS without an answer: {_CLIENT_CERTIFICATE}"
                return NoAnswer(ErrorCode._TRANSPORT, text)
            # Some TLS servers silently close a connection that does not begin with a handshake.
            handshake = await _exchange(host, port, _client_hello())
    except TimeoutError:
        if not is_resolved:
            return NoAnswer(ErrorCode._RESOLVE, "the name server does not answer")
        return NoAnswer(ErrorCode.REQUEST_TIMED_OUT, "it does not answer")
    except ssl.SSLError as error:
        return NoAnswer(ErrorCode._TRANSPORT, _reason_of_tls(error))
    except OSError as error:
        if not is_resolved:
            return NoAnswer(ErrorCode._RESOLVE, f"the name cannot be resolved: {error.strerror or error}")
        return NoAnswer(ErrorCode._TRANSPORT, _reason(error))
    if handshake and read_answer(handshake).protocol is Protocol.TLS:
        return Answer(Protocol.TLS)
    return NoAnswer(ErrorCode._TRANSPORT, "it closes connections without an answer")


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


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _client_hello() -> bytes:
    """Return the first bytes of a TLS client."""
    outgoing = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    return outgoing.read()


def _reason_of_tls(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not valid: {error.verify_message.rstrip('.')}{_remedy(error.verify_code)}"
    reason = error.reason or str(error)
    if reason in _NOT_TLS:
        return "it does not use TLS (security.protocol=plaintext or sasl_plaintext)"
    if reason.endswith(_CLIENT_ALERTS):
        return f"it refuses the TLS handshake, {reason}: {_CLIENT_CERTIFICATE}"
    return f"the TLS handshake failed: {reason}"


def _remedy(code: int) -> str:
    """Return what mends a certificate that is not valid."""
    if code in _UNKNOWN_AUTHORITY:
        return "; ssl.ca.location must name a file with the authority that issued it"
    if code in _OTHER_HOST:
        return "; bootstrap.servers and advertised.listeners must name a host of the certificate"
    return "; the server needs a new one, or this machine's clock is wrong" if code == _EXPIRED else ""


def _reason(error: OSError) -> str:
    """Return the system's reason; for a name with several addresses, asyncio joins all reasons into one text."""
    text = error.strerror or str(error)
    return "Connection refused" if "refused" in text.lower() else text
