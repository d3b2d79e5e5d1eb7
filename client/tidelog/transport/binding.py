"""Binds a gRPC server to an address, with a reason when that fails."""

from __future__ import annotations

import socket

import grpc.aio

from tidelog.config.endpoints import format_address
from tidelog.errors import ConfigError


def bind_port(server: grpc.aio.Server, host: str, port: int) -> int:
    """Make a server listen on ``host:port`` once it starts; return the port, chosen by the system for port 0.

    Raises:
        ConfigError: the port is in use, or the host is not one of this machine's; says which.
    """
    address = format_address(host, port)
    try:
        bound = server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigError(f"cannot listen on {address}: {_reason(host, port)}") from error
    if bound == 0:
        raise ConfigError(f"cannot listen on {address}: {_reason(host, port)}")
    return bound


def _reason(host: str, port: int) -> str:
    """Ask the system, whose own words gRPC swallows."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.bind(address)
    except OSError as error:
        return error.strerror or str(error)
    return "gRPC refused the address"
