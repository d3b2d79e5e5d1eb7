"""Binding of a gRPC server to an address, with the system's reason for a failure."""

from __future__ import annotations

import socket

import grpc.aio

from tidelog_foundation.config.endpoints import format_address
from tidelog_foundation.errors import ConfigError


def bind_port(server: grpc.aio.Server, host: str, port: int) -> int:
    """Make a server listen on ``host:port`` once it starts; return the port, chosen by the system for port 0.

    Raises:
        ConfigError: the port is in use, or the host is not one of this machine's; the text tells which.
    """
    address = format_address(host, port)
    try:
        # Ask the system first, because gRPC hides its reason and writes its own lines to stderr.
        _probe(host, port)
        return server.add_insecure_port(address)
    except OSError as error:
        raise ConfigError(f"cannot listen on {address}: {error.strerror or error}") from error
    except RuntimeError as error:
        raise ConfigError(f"cannot listen on {address}: {error}") from error


def _probe(host: str, port: int) -> None:
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        # As gRPC does: closing connections of an earlier process do not block the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
