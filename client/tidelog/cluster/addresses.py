"""The parser of ``bootstrap.servers``, a list of ``host:port``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tidelog_foundation.errors import ConfigError

DEFAULT_PORT = 9092
"""The default port of Kafka and librdkafka. A Kafka listener there tells clients the address of gRPC."""
_SPOKEN = ("PLAINTEXT", "GRPC")
_HOST = re.compile(r"[\w.%-]+|\[[0-9A-Fa-f:.]+(%[\w.-]+)?\]")


def parse_bootstrap_servers(value: str | Iterable[str], default_port: int | None = DEFAULT_PORT) -> tuple[str, ...]:
    """Return the addresses in a comma-separated text or a list as ``host:port``, in order and without duplicates.

    As in librdkafka, an address may begin with ``PLAINTEXT://``, and may omit the port if there is a default.

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
