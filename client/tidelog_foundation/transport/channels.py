"""The gRPC options of all Tidelog channels and servers, the same at both ends, and the addresses of servers."""

from __future__ import annotations

import resource
import socket
import ssl
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import grpc
import grpc.aio

from tidelog_foundation.config.endpoints import format_address, parse_address
from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ConfigError, TidelogError
from tidelog_foundation.sasl import SaslLogin
from tidelog_foundation.transport.diagnosis import Diagnosis
from tidelog_foundation.transport.open_channels import OpenChannels
from tidelog_foundation.transport.session_channel import SERVER_BACKOFF_S, SessionChannel
from tidelog_foundation.transport.status import error_from_rpc

if TYPE_CHECKING:
    from tidelog_foundation.security.certificate_store import CertificateStore

MAX_MESSAGE_BYTES = 128 * 1024 * 1024
"""The largest message: above fetch.max.bytes (50 MiB) plus one oversized batch. gRPC rejects larger ones."""
_UNREAD_BYTES = 256 * 1024
_MAX_CALLS_PER_CONNECTION = 256
HANDSHAKE_MS = 10_000
"""The time in which a new connection must complete TLS and HTTP/2's preface. gRPC's default is two minutes."""
SHARED_PORTS: Final = ("grpc.so_reuseport", 1)
"""The option of a server with a port that other processes of the same user have too. The kernel spreads connections."""
_INT32_MAX = 2**31 - 1
_MAX_RECEIVED = "grpc.max_receive_message_length"

_COMMON: list[tuple[str, int | str]] = [
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    (_MAX_RECEIVED, MAX_MESSAGE_BYTES),
    # A proxy from the environment must never sit between the parts of a cluster.
    ("grpc.enable_http_proxy", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.optimization_target", "throughput"),
]

CHANNEL_OPTIONS: list[tuple[str, int | str]] = [
    *_COMMON,
    # An unanswered ping reveals a paused or disconnected peer.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Reconnect quickly: in a rolling restart, a restarted peer leads partitions a moment later.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    # Despite its name, the timeout of one connection attempt; a busy peer needs more than 50 ms.
    ("grpc.min_reconnect_backoff_ms", 1_000),
    # One connection per channel, so that a busy peer's stream does not delay others.
    ("grpc.use_local_subchannel_pool", 1),
]


def open_channel(
    address: str,
    client_id: str = "",
    more_options: Iterable[tuple[str, int | str]] = (),
    credentials: grpc.ChannelCredentials | None = None,
    login: SaslLogin | None = None,
    login_backoff_s: float = SERVER_BACKOFF_S,
) -> grpc.aio.Channel:
    """Return a channel to ``host:port``; it connects on the first call, and again whenever the connection breaks.

    ``client_id`` is the first part of the user agent that the peer sees. ``more_options`` override options of the same
    names. With ``credentials`` it uses TLS, with ``login`` it authenticates with SASL. ``login_backoff_s`` is the
    longest wait after a refused login.
    """
    agent = {"grpc.primary_user_agent": client_id} if client_id else {}
    options = list({**dict(CHANNEL_OPTIONS), **dict(more_options), **agent}.items())
    if credentials is not None:
        channel = grpc.aio.secure_channel(address, credentials, options=options)
    else:
        channel = grpc.aio.insecure_channel(address, options=options)
    return channel if login is None else SessionChannel(channel, login, parse_address(address)[0], login_backoff_s)


@dataclass(frozen=True, slots=True)
class ChannelSecurity:
    """The security of a server's connections to others: TLS with ``certificates``, SASL with ``login``."""

    certificates: CertificateStore | None = None
    login: SaslLogin | None = None


OPEN: Final = ChannelSecurity()
"""Connections without encryption and authentication."""


class Channels:
    """The channels of a server to others, opened at first use.

    A channel whose certificates have been replaced serves the calls that it has, and new calls get another one.
    `OpenChannels` describes the other reason for a new channel.
    """

    def __init__(self, security: ChannelSecurity = OPEN) -> None:
        """Raise ConfigError if gRPC does not support a setting of the certificates."""
        self._certificates = certificates = security.certificates
        self._login = security.login
        self._credentials = _credentials_of(certificates)
        self._material = certificates.current if certificates is not None else None
        self._diagnosis = diagnosis_of(certificates)
        self._channels = OpenChannels(self._open)
        self._retired: list[grpc.aio.Channel] = []

    def get(self, address: str) -> grpc.aio.Channel:
        """Return the channel to ``host:port``."""
        if self._certificates is not None and self._certificates.current is not self._material:
            self._material = self._certificates.current
            self._credentials = _credentials_of(self._certificates)
            self._retired += self._channels.take_all()
        return self._channels.get(address)

    async def error_of(self, address: str, rpc_error: grpc.aio.AioRpcError) -> TidelogError:
        """Return the error of a failed call to ``host:port``, which names the cause if the connection failed."""
        return await self._diagnosis.explained(address, error_from_rpc(rpc_error))

    async def close(self) -> None:
        """Close all channels."""
        for channel in self._retired:
            await channel.close()
        self._retired.clear()
        await self._channels.close()

    def _open(self, address: str) -> grpc.aio.Channel:
        return open_channel(address, credentials=self._credentials, login=self._login)


def diagnosis_of(certificates: CertificateStore | None) -> Diagnosis:
    """Return the diagnosis of a server's connections to others, with the current certificates."""
    if certificates is None:
        return Diagnosis()

    def context() -> ssl.SSLContext:
        from tidelog_foundation.security.contexts import client_context

        current = certificates.current
        return client_context(current.settings, current.key, current.authorities)

    return Diagnosis(context)


def _credentials_of(certificates: CertificateStore | None) -> grpc.ChannelCredentials | None:
    # Clients import this module without cryptography.
    if certificates is None:
        return None
    from tidelog_foundation.transport.credentials import channel_credentials

    return channel_credentials(certificates)


def server_options(
    max_request_bytes: int = MAX_MESSAGE_BYTES, *, max_connections: int = _INT32_MAX, max_idle_ms: int = _INT32_MAX
) -> list[tuple[str, int | str]]:
    """Return the options of a gRPC server: the same limits, and permission to ping every 5 s.

    gRPC rejects a request larger than ``max_request_bytes`` once it knows its length. A connection has up to
    ``_MAX_CALLS_PER_CONNECTION`` calls; its client queues more until there is room. A server holds at most
    ``_UNREAD_BYTES`` of unread requests per call. By default, gRPC would let a fast connection send megabytes ahead,
    which no budget of the server would count. Connections get half of the process's file descriptors and leave the rest
    for data, at most ``max_connections``; more connections are closed at once. A connection without a call for
    ``max_idle_ms`` is closed; its client opens another one for its next call.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    connections = _INT32_MAX if files == resource.RLIM_INFINITY else min(files // 2, _INT32_MAX)
    return [
        *(option for option in _COMMON if option[0] != _MAX_RECEIVED),
        (_MAX_RECEIVED, min(max_request_bytes, MAX_MESSAGE_BYTES)),
        ("grpc.max_concurrent_streams", _MAX_CALLS_PER_CONNECTION),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", _UNREAD_BYTES),
        ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_MS),
        ("grpc.max_allowed_incoming_connections", min(connections, max_connections)),
        ("grpc.max_connection_idle_ms", min(max_idle_ms, _INT32_MAX)),
        # Two processes on one port are a visible error, not load balancing.
        ("grpc.so_reuseport", 0),
    ]


def bind_port(
    server: grpc.aio.Server,
    host: str,
    port: int,
    credentials: grpc.ServerCredentials | None = None,
    *,
    is_shared: bool = False,
) -> int:
    """Make a server listen on ``host:port`` once it starts; return the port, chosen by the system for port 0.

    With ``credentials``, which the caller keeps as long as the server, it uses TLS. Other processes of the same user
    may have a shared port too. It takes the option :data:`SHARED_PORTS` of the server.

    Raises:
        ConfigError: the port is in use, or the host is not one of this machine's; the text tells which.
    """
    address = format_address(host, port)
    try:
        # Ask the system first, because gRPC hides its reason and writes its own lines to stderr.
        _probe(host, port, is_shared=is_shared)
        if credentials is not None:
            return server.add_secure_port(address, credentials)
        return server.add_insecure_port(address)
    except OSError as error:
        raise ConfigError(f"cannot listen on {address}: {error.strerror or error}") from error
    except RuntimeError as error:
        raise ConfigError(f"cannot listen on {address}: {error}") from error


def _probe(host: str, port: int, *, is_shared: bool) -> None:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # As gRPC does: closing connections of an earlier process do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        probe.bind(address)
