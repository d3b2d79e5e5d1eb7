"""Listeners, addresses and voters as text."""

from __future__ import annotations

from typing import Any

import pytest

from tidelog_foundation.config.endpoints import (
    format_address,
    parse_address,
    parse_controller_listener,
    parse_controller_listeners,
    parse_voters,
)
from tidelog_foundation.errors import ConfigError

MAP = "GRPC:GRPC,TLS:GRPC_SSL,KAFKA:PLAINTEXT"


@pytest.mark.parametrize(
    ("settings", "bound", "advertised"),
    [
        (("grpc://a:1",), "GRPC://a:1", "GRPC://a:1"),
        (("GRPC://[::1]:9092",), "GRPC://[::1]:9092", "GRPC://[::1]:9092"),
        (("GRPC://a:1,TLS://a:2",), "GRPC://a:1 TLS://a:2", "GRPC://a:1 TLS://a:2"),
        (("GRPC://a:1,TLS://a:2", "tls, GRPC"), "TLS://a:2 GRPC://a:1", "TLS://a:2 GRPC://a:1"),
        (("GRPC://a:1,TLS://:2", None, "TLS://b:3"), "GRPC://a:1 TLS://0.0.0.0:2", "GRPC://a:1 TLS://b:3"),
        (("GRPC://:1,TLS://a:2", None, None, ("b", 1)), "GRPC://0.0.0.0:1 TLS://a:2", "GRPC://b:1 TLS://a:2"),
        (
            ("GRPC://:1,TLS://a:2", "TLS,GRPC", "GRPC://b:1", ("b", 7)),
            "TLS://a:2 GRPC://0.0.0.0:1",
            "TLS://b:7 GRPC://b:1",
        ),
    ],
)
def test_listeners_of_a_controller_are_in_the_order_of_their_names(settings: Any, bound: str, advertised: str) -> None:
    listeners, *more = settings
    found = parse_controller_listeners(listeners, MAP, *more)
    assert " ".join(map(str, found.bound)) == bound
    assert " ".join(map(str, found.advertised)) == advertised


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (("a:1",), "must be NAME://host:port"),
        (("GRPC://a:x",), "must be host:port with a port from 0 to 65535"),
        (("HTTP://a:1",), "no security protocol is defined for listener HTTP"),
        (("KAFKA://a:1",), "listeners: KAFKA has the security protocol PLAINTEXT, but controllers speak one of GRPC"),
        (("GRPC://a:1", "GRPC,TLS"), "controller.listener.names GRPC,TLS must name all listeners .*, which are GRPC"),
        (("GRPC://a:1,TLS://a:2", "TLS"), "controller.listener.names TLS must name all .*, which are GRPC, TLS"),
        (("GRPC://a:1", " ,"), "no listener is named"),
        (
            ("GRPC://a:1", None, "TLS://b:1"),
            "advertised.listeners has TLS://b:1, which is not one of the listeners: GRPC",
        ),
        (
            ("GRPC://a:1,TLS://a:2", "TLS,GRPC", None, ("a", 1)),
            "controller.quorum.voters has a:1 .*, which is its listener GRPC: the addresses must be those of TLS, the",
        ),
    ],
)
def test_listeners_of_a_controller_that_do_not_fit_are_refused(settings: Any, text: str) -> None:
    listeners, *more = settings
    with pytest.raises(ConfigError, match=text):
        parse_controller_listeners(listeners, MAP, *more)


def test_controller_has_a_bounded_number_of_listeners() -> None:
    names = [f"L{i}" for i in range(9)]
    protocols = ",".join(f"{name}:GRPC" for name in names)
    with pytest.raises(ConfigError, match="has 9 listeners, at most 8"):
        parse_controller_listeners(",".join(f"{name}://a:{i + 1}" for i, name in enumerate(names)), protocols)


def test_node_uses_the_first_of_the_controllers_listeners() -> None:
    first = parse_controller_listener("tls, GRPC", MAP)
    assert (first.name, first.security_protocol) == ("TLS", "GRPC_SSL")
    with pytest.raises(ConfigError, match=r"controller\.listener\.names: KAFKA has the security protocol PLAINTEXT"):
        parse_controller_listener("TLS,KAFKA", MAP)


def test_parse_voters_reads_ids_and_addresses() -> None:
    assert parse_voters("1@a:1, 2@[::1]:2,") == {1: ("a", 1), 2: ("::1", 2)}


@pytest.mark.parametrize("text", ["", ",", "a:1", "x@a:1", "1@a", "1@a:1,1@b:2", "-1@a:1"])
def test_parse_voters_names_what_it_cannot_read(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_voters(text)


@pytest.mark.parametrize("address", [("a", 1), ("::1", 2)])
def test_format_address_is_read_back(address: tuple[str, int]) -> None:
    assert parse_address(format_address(*address)) == address
