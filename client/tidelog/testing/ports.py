"""Ports for test servers that are still theirs after a restart."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterable

_LOWEST, _HIGHEST = 15_000, 32_000
"""Below the range from which the kernel gives ports to outgoing connections: while a server is down, nobody's
connection may take its port by accident."""
_leases: dict[int, socket.socket] = {}


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ``count`` different ports on which nobody listens now, and which nobody has leased."""
    ports = lease_ports(count, host)
    release_ports(ports)
    return ports


def lease_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ``count`` free ports that no other process gets from here until :func:`release_ports` or this one's end.

    A UDP socket on the port is what others see: the servers listen on TCP alone, and may be down for a while.
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
    """Lease this port and return True, or return False where another process listens on it or has leased it."""
    lease = socket.socket(type=socket.SOCK_DGRAM)
    with contextlib.suppress(OSError), socket.socket() as probe:
        # Connections of a server that has ended may not be closed yet, which hinders no server that follows it.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        lease.bind((host, port))
        probe.bind((host, port))
        _leases[port] = lease
        return True
    lease.close()
    return False


def release_ports(ports: Iterable[int]) -> None:
    """Let others have leased ports."""
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
