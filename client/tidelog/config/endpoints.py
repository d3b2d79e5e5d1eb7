"""Reads the texts that name addresses: listeners, the quorum's voters. No name is resolved and nothing is opened."""

from __future__ import annotations

from tidelog.errors import ConfigError


def parse_listener(text: str) -> tuple[str, int]:
    """Return (host, port) of ``GRPC://host:port``; an IPv6 host stands in brackets and is returned without them.

    Raises:
        ConfigError: the text is of another form.
    """
    protocol, separator, address = text.strip().partition("://")
    if not separator or protocol.upper() != "GRPC":
        raise ConfigError(f'invalid listener "{text}": must be GRPC://host:port')
    return parse_address(address)


def parse_address(text: str) -> tuple[str, int]:
    """Return (host, port) of ``host:port``.

    Raises:
        ConfigError: the text is of another form, or the port is not from 0 to 65535.
    """
    host, separator, port = text.strip().rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not separator or not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
        raise ConfigError(f'invalid address "{text}": must be host:port with a port from 0 to 65535')
    return host, int(port)


def parse_addresses(text: str) -> list[tuple[str, int]]:
    """Return (host, port) of each of ``host:port,host:port``, in their order and each once.

    Raises:
        ConfigError: one is of another form.
    """
    return list(dict.fromkeys(parse_address(part) for part in text.split(",") if part.strip()))


def parse_voters(text: str) -> dict[int, tuple[str, int]]:
    """Return the address of each voter of ``1@host:port,2@host:port``, by id.

    Raises:
        ConfigError: there is no voter, one is of another form, or an id is named twice.
    """
    voters: dict[int, tuple[str, int]] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        voter_id, separator, address = part.partition("@")
        if not separator or not (voter_id.isascii() and voter_id.isdigit()):
            raise ConfigError(f'invalid voter "{part}": must be id@host:port')
        if int(voter_id) in voters:
            raise ConfigError(f"voter {voter_id} is named twice in {text!r}")
        voters[int(voter_id)] = parse_address(address)
    if not voters:
        raise ConfigError("no voter is named: must be id@host:port,id@host:port,...")
    return voters


def format_address(host: str, port: int) -> str:
    """Return ``host:port`` with an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
