"""Ports that test servers keep over a restart."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterable

_LOWEST, _HIGHEST = 15_000, 32_000
"""Below the kernel's range for outgoing connections, so that no connection takes the port of a server that is down."""
_leases: dict[int, socket.socket] = {}


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ``count`` different ports without a listener and without a lease."""
    ports = lease_ports(count, host)
    release_ports(ports)
    return ports


def lease_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ``count`` free ports, leased until :func:`release_ports` or the end of this process.

    The lease is a UDP socket on the port, which other processes detect. The servers listen on TCP alone, and may be
    down for a while.
    """
    ports: list[int] = []
    try:
        while len(ports) < count:
            ports.append(_lease_any(host))
    except OSError:
        release_ports(ports)
        raise
    return ports


def lease_port(port: int, host: str = "127.0.0.1") -> bool:
    """Lease this port. Return False if another process listens on it or leases it."""
    lease = socket.socket(type=socket.SOCK_DGRAM)
    with contextlib.suppress(OSError), socket.socket() as probe:
        # Closed connections of an earlier server may linger; they do not hinder its successor.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        lease.bind((host, port))
        probe.bind((host, port))
        _leases[port] = lease
        return True
    lease.close()
    return False


def release_ports(ports: Iterable[int]) -> None:
    """Release leased ports."""
    for port in ports:
        if lease := _leases.pop(port, None):
            lease.close()


def _lease_any(host: str) -> int:
    for _ in range(1000):
        port = random.randrange(_LOWEST, _HIGHEST)
        lease = socket.socket(type=socket.SOCK_DGRAM)
        with contextlib.suppress(OSError), socket.socket() as probe:
            lease.bind((host, port))
            probe.bind((host, port))
            _leases[port] = lease
            return port
        lease.close()
    raise OSError(f"no free port from {_LOWEST} to {_HIGHEST} on {host}")
