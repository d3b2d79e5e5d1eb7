"""Reads ``bootstrap.servers``: a list of ``host:port``."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.errors import ConfigError


def parse_bootstrap_servers(value: str | Iterable[str]) -> tuple[str, ...]:
    """Return the addresses of a comma-separated text or of a list, without repeats, in their order.

    Raises:
        ConfigError: there is none, or one is not ``host:port``.
    """
    parts = value.split(",") if isinstance(value, str) else value
    addresses = dict.fromkeys(_parse_address(p.strip()) for p in parts if p.strip())
    if not addresses:
        raise ConfigError('invalid value "" for configuration "bootstrap.servers": must name a host:port')
    return tuple(addresses)


def _parse_address(text: str) -> str:
    host, separator, port = text.rpartition(":")
    bare_ipv6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not separator or not host or bare_ipv6 or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError(f'invalid value "{text}" for configuration "bootstrap.servers": must be host:port')
    return text
