"""Ports for test servers that are still theirs after a restart."""

from __future__ import annotations

import contextlib
import random
import socket

_LOWEST, _HIGHEST = 15_000, 32_000
"""Below the range from which the kernel gives ports to outgoing connections: while a server is down, nobody's
connection may take its port by accident."""


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Return ``count`` different ports on which nobody listens now."""
    with contextlib.ExitStack() as stack:
        return [_bind_any(stack, host) for _ in range(count)]


def _bind_any(stack: contextlib.ExitStack, host: str) -> int:
    for _ in range(1000):
        port = random.randrange(_LOWEST, _HIGHEST)
        probe = stack.enter_context(socket.socket())
        with contextlib.suppress(OSError):
            probe.bind((host, port))
            return port
    raise OSError(f"no free port from {_LOWEST} to {_HIGHEST} on {host}")
