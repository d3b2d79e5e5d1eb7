"""Listeners, addresses and voters as text."""

from __future__ import annotations

import pytest

from tidelog_foundation.config.endpoints import format_address, parse_address, parse_listener, parse_voters
from tidelog_foundation.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("GRPC://a:1", ("a", 1)),
        ("grpc_ssl://a:1", ("a", 1)),
        ("grpc://127.0.0.1:0", ("127.0.0.1", 0)),
        (" GRPC://[::1]:9092 ", ("::1", 9092)),
    ],
)
def test_parse_listener_accepts_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert parse_listener(text) == address


@pytest.mark.parametrize(
    "text",
    ["", "a:1", "HTTP://a:1", "GRPC://a", "GRPC://:1", "GRPC://a:", "GRPC://a:65536", "GRPC://a:-1", "GRPC://a:x"],
)
def test_parse_listener_names_what_it_cannot_read(text: str) -> None:
    with pytest.raises(ConfigError, match="must be"):
        parse_listener(text)


def test_parse_voters_reads_ids_and_addresses() -> None:
    assert parse_voters("1@a:1, 2@[::1]:2,") == {1: ("a", 1), 2: ("::1", 2)}


@pytest.mark.parametrize("text", ["", ",", "a:1", "x@a:1", "1@a", "1@a:1,1@b:2", "-1@a:1"])
def test_parse_voters_names_what_it_cannot_read(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_voters(text)


@pytest.mark.parametrize("address", [("a", 1), ("::1", 2)])
def test_format_address_is_read_back(address: tuple[str, int]) -> None:
    assert parse_address(format_address(*address)) == address
