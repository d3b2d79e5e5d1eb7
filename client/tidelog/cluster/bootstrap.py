"""The addresses of ``bootstrap.servers``, and the gRPC addresses that they or their Kafka listeners lead to.

gRPC is tried first, so that the address of a gRPC listener costs nothing extra. After a failure, the address is probed.
A Kafka listener of Tidelog then names the node's gRPC address, and any other server is recognized as foreign.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from tidelog_foundation.config.endpoints import GRPC_PROTOCOLS
from tidelog_foundation.errors import ConfigError, ErrorCode, TidelogError, error_for
from tidelog_foundation.transport.diagnosis import TlsContext
from tidelog_foundation.transport.probe import MAX_TIMEOUT_S, NoAnswer, probe
from tidelog_foundation.transport.probe_answers import Answer, Protocol

_UNIMPLEMENTED = "UNIMPLEMENTED: "
_LEAST_TIMEOUT_S = 0.5
"""The time by which a call may exceed its timeout to find the reason for a missing answer."""
PROBED = frozenset(
    (ErrorCode._TRANSPORT, ErrorCode._RESOLVE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNSUPPORTED_VERSION)
)
"""Errors of a call after which the address may not be a gRPC listener of Tidelog."""


class Bootstrap:
    """The bootstrap servers of one client, and the results of probing them. Used on the network thread.

    ``tls_context`` returns the TLS context of a client with TLS, which also encrypts the probes.
    """

    def __init__(self, servers: tuple[str, ...], tls_context: TlsContext | None = None) -> None:
        self.servers = servers
        self._tls_context = tls_context
        self._targets: dict[str, str] = {}
        self._foreign: set[str] = set()

    def target(self, server: str) -> str:
        """Return the known gRPC address of a bootstrap server; return other addresses unchanged."""
        return self._targets.get(server, server)

    def are_foreign(self, servers: Collection[str]) -> bool:
        """Return True if none of the servers is Tidelog's, so that retries are useless."""
        return self._foreign.issuperset(servers)

    async def find(self, server: str, failure: TidelogError, timeout_s: float) -> str | None:
        """Return the gRPC address after a call failed at :meth:`target`, or None if a probe finds nothing new.

        Raises:
            TidelogError: no Tidelog node answers at the address; the text tells what answers, or why nothing does.
        """
        self._foreign.discard(server)
        if failure.code is ErrorCode.UNSUPPORTED_VERSION:
            if failure.message.startswith(_UNIMPLEMENTED):
                raise self._refuse(server, "the server speaks gRPC but does not serve clients; it may be a controller")
            return None
        tls = self._tls_context() if self._tls_context is not None else None
        found = await probe(server, min(max(timeout_s, _LEAST_TIMEOUT_S), MAX_TIMEOUT_S), tls)
        match found:
            case NoAnswer():
                raise error_for(found.code, f"{server}: {found.reason}")
            case Answer(Protocol.GRPC):
                self._targets.pop(server, None)
                return None
            case Answer(Protocol.TIDELOG):
                return self._follow(server, found.grpc_listener, failure)
        raise self._refuse(server, f"{found.protocol.value} answers there")

    def _follow(self, server: str, listener: str, failure: TidelogError) -> str:
        if not listener:
            raise error_for(ErrorCode._TRANSPORT, f"{server}: the node does not know its gRPC address yet")
        if self._targets.get(server) == listener:
            text = f"{server}: a node that serves gRPC at {with_address(listener, failure.message)}"
            raise error_for(failure.code, text)
        self._targets[server] = listener
        return listener

    def _refuse(self, server: str, reason: str) -> TidelogError:
        self._foreign.add(server)
        return error_for(ErrorCode._TRANSPORT, f"{server}: {reason}")


def with_address(address: str, text: str) -> str:
    """Return a text that begins with the address."""
    return text if text.startswith(address) else f"{address}: {text}"


DEFAULT_PORT = 9092
"""The default port of Kafka and librdkafka. A Kafka listener there tells clients the address of gRPC."""
_SPOKEN = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", *GRPC_PROTOCOLS)
_HOST = re.compile(r"[\w.%-]+|\[[0-9A-Fa-f:.]+(%[\w.-]+)?\]")


def parse_bootstrap_servers(value: str | Iterable[str], default_port: int | None = DEFAULT_PORT) -> tuple[str, ...]:
    """Return the addresses in a comma-separated text or a list as ``host:port``, in order and without duplicates.

    As in librdkafka, an address may begin with a protocol, ``PLAINTEXT://`` or ``SSL://``, and may omit the port if
    there is a default.

    Raises:
        ConfigError: there is no address, or one is not ``host:port``.
    """
    parts = value.split(",") if isinstance(value, str) else value
    addresses = dict.fromkeys(_parse_address(p.strip(), default_port) for p in parts if p.strip())
    if not addresses:
        raise _invalid("", "must name a host:port")
    return tuple(addresses)


def _parse_address(text: str, default_port: int | None) -> str:
    protocol, separator, address = text.rpartition("://")
    if separator and protocol.upper() not in _SPOKEN:
        raise _invalid(text, f"the protocol {protocol} is not supported, must be host:port")
    if address.count(":") > 1 and "[" not in address:
        raise _invalid(text, f"an IPv6 address must be in brackets: [{address}]:{default_port or 'port'}")
    host, port = _split(address, default_port)
    if not _HOST.fullmatch(host):
        raise _invalid(text, "must be host:port")
    if not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        raise _invalid(text, f'the port must be from 1 to 65535, not "{port}"')
    return f"{host}:{port}"


def _split(address: str, default_port: int | None) -> tuple[str, str]:
    has_port = ":" in address and not address.endswith("]")
    if has_port or default_port is None:
        host, _, port = address.rpartition(":")
        return host, port
    return address, str(default_port)


def _invalid(text: str, reason: str) -> ConfigError:
    return ConfigError(f'invalid value "{text}" for configuration "bootstrap.servers": {reason}')
