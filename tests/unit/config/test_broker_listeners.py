"""Listeners by name: what listeners, advertised.listeners, their protocols and inter.broker.listener.name say."""

from __future__ import annotations

import dataclasses
import socket

import pytest

from tidelog_foundation.config import parse_config
from tidelog_foundation.config.endpoints import (
    DEFAULT_PROTOCOL_MAP,
    GRPC,
    PLAINTEXT,
    NamedListener,
    parse_bootstrap_listeners,
    parse_broker_listeners,
    parse_listeners,
    parse_protocol_map,
)
from tidelog_foundation.errors import ConfigError
from tidelog_node.server.config import NodeConfig

MAP = "GRPC:GRPC,PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,OUTSIDE:PLAINTEXT,TOOLS:GRPC,SAFE:SASL_SSL"


def listeners(text: str, advertised: str | None = None, inter_broker: str | None = None, protocols: str = MAP):
    return parse_broker_listeners(text, protocols, advertised, inter_broker)


def test_listeners_have_names_addresses_and_what_they_speak():
    found = listeners(" grpc://a:9094, PLAINTEXT://[::1]:9092,internal://a:0,OUTSIDE://a:0 ")
    assert found.bound == (
        NamedListener("GRPC", "a", 9094, GRPC),
        NamedListener("PLAINTEXT", "::1", 9092, PLAINTEXT),
        NamedListener("INTERNAL", "a", 0, PLAINTEXT),
        NamedListener("OUTSIDE", "a", 0, PLAINTEXT),
    )
    assert found.advertised == found.bound
    assert (found.grpc, found.kafka) == (found.bound[:1], found.bound[1:])
    assert str(found.bound[1]) == "PLAINTEXT://[::1]:9092"


def test_listeners_that_are_advertised_are_some_of_those_that_are_bound():
    found = listeners(
        "GRPC://0.0.0.0:9094,PLAINTEXT://0.0.0.0:9092,INTERNAL://[::]:9093",
        "PLAINTEXT://b:1,GRPC://b:1",
    )
    assert [str(x) for x in found.advertised] == ["PLAINTEXT://b:1", "GRPC://b:1"]
    assert [x.name for x in found.kafka] == ["PLAINTEXT", "INTERNAL"]


def test_listener_without_a_host_is_everywhere_and_told_by_the_machine_s_name():
    """Kafka's ListenerInfo.withWildcardHostnamesResolved; ``PLAINTEXT://:9092`` is the form of Kafka's own default."""
    settings = {"node.id": "1", "cluster.id": "c", "log.dirs": "/x", "controller.quorum.voters": "1@a:1"}
    config = parse_config(NodeConfig, {**settings, "listeners": "GRPC://:9094,PLAINTEXT://:9092"})
    assert [str(x) for x in (config.grpc_listener, *config.kafka_listeners)] == [
        "GRPC://0.0.0.0:9094",
        "PLAINTEXT://0.0.0.0:9092",
    ]
    advertised = config.advertised_endpoints({"GRPC": 9094, "PLAINTEXT": 9092})
    assert [(x.name, x.host, x.port) for x in advertised] == [
        ("GRPC", socket.getfqdn(), 9094),
        ("PLAINTEXT", socket.getfqdn(), 9092),
    ]


@pytest.mark.parametrize(
    ("text", "advertised", "name", "expected"),
    [
        ("GRPC://a:1", None, None, "GRPC"),
        ("TOOLS://a:1", None, None, "TOOLS"),
        ("GRPC://a:1,INTERNAL://a:2,PLAINTEXT://a:3", None, None, "PLAINTEXT"),
        ("GRPC://a:1,OUTSIDE://a:2,INTERNAL://a:3", None, None, "OUTSIDE"),
        ("GRPC://a:1,OUTSIDE://a:2,INTERNAL://a:3", None, "internal", "INTERNAL"),
        ("GRPC://a:1,PLAINTEXT://a:3", None, "GRPC", "GRPC"),
        ("GRPC://a:1,PLAINTEXT://a:2", "GRPC://b:1", None, "GRPC"),
    ],
)
def test_nodes_reach_each_other_by_the_listener_that_is_named_or_a_kafka_listener(text, advertised, name, expected):
    assert listeners(text, advertised, name).inter_broker.name == expected


@pytest.mark.parametrize(
    ("text", "advertised", "inter_broker", "sentence"),
    [
        ("", None, None, "no listener is named"),
        ("a:1", None, None, 'invalid listener "a:1": must be NAME://host:port'),
        ("://a:1", None, None, 'invalid listener "://a:1"'),
        ("GRPC://:", None, None, "must be host:port with a port from 0 to 65535"),
        ("GRPC://:65536", None, None, "with a port from 0 to 65535"),
        ("GRPC://a", None, None, 'invalid address "a": must be host:port'),
        ("GRPC://a:1,PLAINTEXT://a:65536", None, None, "with a port from 0 to 65535"),
        ("GRPC://a:1,grpc://a:2", None, None, "each listener must have a different name, but GRPC occurs twice"),
        ("GRPC://a:1,PLAINTEXT://b:1", None, None, "each listener must have a different port, but 1 occurs twice"),
        ("GRPC://a:1,OTHER://a:2", None, None, "no security protocol is defined for listener OTHER in listener.securi"),
        ("PLAINTEXT://a:1", None, None, r"listeners must have a listener whose .*: Tidelog's own clients"),
        ("GRPC://0.0.0.0:1", None, None, "must name an address that others can reach, not GRPC://0.0.0.0:1"),
        ("GRPC://a:1,PLAINTEXT://[::]:2", None, None, r"not PLAINTEXT://\[::\]:2"),
        ("GRPC://a:1", "GRPC://0.0.0.0:1", None, "advertised.listeners must name an address"),
        ("GRPC://a:1", "GRPC://b:0", None, "advertised.listeners GRPC://b:0 has port 0"),
        ("GRPC://a:1", "GRPC://b:1,INTERNAL://b:2", None, "INTERNAL://b:2, which is not one of the listeners: GRPC"),
        ("GRPC://a:1,PLAINTEXT://a:2", "PLAINTEXT://b:2", None, "advertised.listeners must have a listener whose"),
        ("GRPC://a:1", "GRPC://b:1,GRPC://b:2", None, "different name, but GRPC occurs twice"),
        (
            "GRPC://a:1",
            None,
            "INTERNAL",
            "inter.broker.listener.name INTERNAL is not one of the advertised",
        ),
        ("GRPC://a:1,INTERNAL://a:2", "GRPC://a:1", "INTERNAL", "is not one of the advertised listeners: GRPC"),
    ],
)
def test_listeners_that_cannot_be_are_refused_by_name(text, advertised, inter_broker, sentence):
    with pytest.raises(ConfigError, match=sentence):
        listeners(text, advertised, inter_broker)


def test_protocol_map_names_the_protocol_of_each_listener():
    assert parse_protocol_map(" a:plaintext ,B:GRPC,") == {"A": "PLAINTEXT", "B": "GRPC"}
    assert parse_protocol_map(DEFAULT_PROTOCOL_MAP)["SASL_SSL"] == "SASL_SSL"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("A", 'invalid entry "A": must be NAME:PROTOCOL'),
        (":GRPC", 'invalid entry ":GRPC"'),
        (
            "A:TLS",
            "GRPC, GRPC_SSL, GRPC_SASL_PLAINTEXT, GRPC_SASL_SSL, PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ("A:GRPC,a:PLAINTEXT", "listener A is named twice"),
    ],
)
def test_protocol_map_that_cannot_be_is_refused(text, sentence):
    with pytest.raises(ConfigError, match=sentence):
        parse_protocol_map(text)


def test_ports_that_the_system_chooses_may_be_the_same():
    assert len(parse_listeners("A://h:0,B://h:0")) == 2


def node(**given: str) -> NodeConfig:
    required = {"node.id": "1", "cluster.id": "c", "controller.quorum.voters": "1@h:1", "log.dirs": "/a"}
    return parse_config(NodeConfig, required | {k.replace("_", "."): v for k, v in given.items()})


def test_node_has_a_grpc_listener_and_any_number_of_kafkas():
    config = node(listeners="GRPC://a:0,PLAINTEXT://a:0,INTERNAL://a:7", listener_security_protocol_map=MAP)
    assert (config.grpc_listener.port, [x.name for x in config.kafka_listeners]) == (0, ["PLAINTEXT", "INTERNAL"])
    assert config.inter_broker_listener.name == "PLAINTEXT"
    assert [str(x) for x in config.advertised_endpoints({"GRPC": 5, "PLAINTEXT": 6, "INTERNAL": 8})] == [
        "GRPC://a:5",
        "PLAINTEXT://a:6",
        "INTERNAL://a:7",
    ]


def test_node_names_the_key_of_a_listener_that_cannot_be():
    for key, value in (
        ("listeners", "GRPC"),
        ("advertised.listeners", "GRPC"),
        ("listener.security.protocol.map", "X"),
    ):
        with pytest.raises(ConfigError, match=f'configuration "{key}"'):
            node(**{"listeners": "GRPC://a:1", key: value})


def test_node_with_kafkas_own_example_needs_a_grpc_listener():
    protocols = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    with pytest.raises(ConfigError, match="a listener whose security protocol is one of GRPC"):
        node(listeners="PLAINTEXT://localhost:9092", listener_security_protocol_map=protocols)
    config = node(
        listeners="PLAINTEXT://localhost:9092,GRPC://localhost:9094",
        listener_security_protocol_map=f"{protocols},GRPC:GRPC",
        inter_broker_listener_name="PLAINTEXT",
    )
    assert dataclasses.astuple(config.inter_broker_listener) == ("PLAINTEXT", "localhost", 9092, PLAINTEXT)


def test_bootstrap_listeners_have_the_protocols_of_the_listeners() -> None:
    bound = parse_broker_listeners("GRPC://h:1,SSL://h:2", DEFAULT_PROTOCOL_MAP).bound
    assert parse_bootstrap_listeners(None, bound) == ()
    assert parse_bootstrap_listeners("ssl://:9", bound) == (NamedListener("SSL", "0.0.0.0", 9, "SSL"),)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("GRPC://h:0", "bootstrap.listeners GRPC://h:0 has port 0"),
        ("GRPC://h:2", "bootstrap.listeners GRPC://h:2 has the port of the listener SSL://h:2"),
        ("PLAINTEXT://h:9", "bootstrap.listeners has PLAINTEXT://h:9, which is not one of the listeners: GRPC, SSL"),
    ],
)
def test_bootstrap_listeners_that_do_not_fit_are_refused(text: str, reason: str) -> None:
    bound = parse_broker_listeners("GRPC://h:1,SSL://h:2", DEFAULT_PROTOCOL_MAP).bound
    with pytest.raises(ConfigError) as refusal:
        parse_bootstrap_listeners(text, bound)
    assert refusal.value.message == reason
