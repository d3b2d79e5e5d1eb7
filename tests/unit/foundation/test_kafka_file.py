"""Kafka's own properties files as settings of nodes and controllers."""

from __future__ import annotations

import pytest

from tidelog_foundation.config import describe, parse_config
from tidelog_foundation.config.apache_kafka import DYNAMIC_KEYS, FIXED_KEYS, WITHOUT_MEANING
from tidelog_foundation.config.broker import DYNAMIC_BROKER_KEYS, READ_ONLY_BROKER_KEYS
from tidelog_foundation.config.kafka_file import controller_settings, node_settings, roles_of
from tidelog_foundation.errors import ConfigError
from tidelog_node.server.config import NodeConfig
from tidelog_node.server.dynamic_config import DynamicNodeConfig
from tidelog_quorum.server.config import QuorumConfig, parse_quorum_config

NODE_KEYS = {info.key for info in describe(NodeConfig)}
CONTROLLER_KEYS = {info.key for info in describe(QuorumConfig)}

# The settings of config/server.properties of Apache Kafka 4.1.
COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "inter.broker.listener.name": "PLAINTEXT",
    "advertised.listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,"
    "SASL_SSL:SASL_SSL",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "log.dirs": "/tmp/kraft-combined-logs",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
}
# config/broker.properties and config/controller.properties have these lines in place of it.
BROKER = COMBINED | {
    "process.roles": "broker",
    "node.id": "2",
    "listeners": "PLAINTEXT://localhost:9092",
    "advertised.listeners": "PLAINTEXT://localhost:9092",
    "log.dirs": "/tmp/kraft-broker-logs",
}
CONTROLLER = COMBINED | {
    "process.roles": "controller",
    "listeners": "CONTROLLER://:9093",
    "advertised.listeners": "CONTROLLER://localhost:9093",
    "log.dirs": "/tmp/kraft-controller-logs",
}
FORMATTED = {"cluster.id": "c"}
"""The file that kafka-storage.sh adds to the directories of Kafka."""


@pytest.mark.parametrize("stock", [COMBINED, BROKER])
def test_stock_file_starts_a_node_with_its_listeners_and_one_for_grpc(stock: dict[str, str]) -> None:
    found = node_settings(stock | FORMATTED, NODE_KEYS)
    config = DynamicNodeConfig(found.properties).current
    assert [x.name for x in config.kafka_listeners] == ["PLAINTEXT"]
    assert [(x.name, x.port) for x in config.grpc_listeners] == [("GRPC", 9094)]
    assert [str(x) for x in config.advertised_endpoints({})] == ["PLAINTEXT://localhost:9092", "GRPC://localhost:9094"]
    assert config.inter_broker_listener.name == "PLAINTEXT"
    assert (config.controller_listener.name, config.controller_listener.security_protocol) == ("CONTROLLER", "GRPC")
    assert config.log_dirs == (stock["log.dirs"],)


@pytest.mark.parametrize("stock", [COMBINED, CONTROLLER])
def test_stock_file_starts_a_controller_beside_its_partitions(stock: dict[str, str]) -> None:
    config = parse_quorum_config(controller_settings(stock | FORMATTED, CONTROLLER_KEYS).properties)
    assert [str(x) for x in config.controller_listeners.advertised] == ["CONTROLLER://localhost:9093"]
    assert config.first_listener.security_protocol == "GRPC"
    assert config.metadata_log_dir == f"{stock['log.dirs']}/metadata"


def test_one_line_names_all_settings_without_meaning() -> None:
    warning = (
        "Settings of Apache Kafka that have no effect here: num.io.threads, num.network.threads, "
        "share.coordinator.state.topic.min.isr, share.coordinator.state.topic.replication.factor"
    )
    assert node_settings(COMBINED, NODE_KEYS).warning == warning
    assert controller_settings(CONTROLLER, CONTROLLER_KEYS).warning == warning
    assert node_settings({"node.id": "1"}, NODE_KEYS).warning is None


def test_settings_without_meaning_are_kafkas_and_of_no_role_here() -> None:
    assert WITHOUT_MEANING.keys() <= FIXED_KEYS | DYNAMIC_KEYS.keys()
    assert not WITHOUT_MEANING.keys() & NODE_KEYS
    assert not WITHOUT_MEANING.keys() & CONTROLLER_KEYS


def test_each_role_knows_the_settings_of_the_other() -> None:
    assert DYNAMIC_BROKER_KEYS | READ_ONLY_BROKER_KEYS >= NODE_KEYS | CONTROLLER_KEYS


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num.partitons", "1"),
        ("create.topic.policy.class.name", "com.example.Policy"),
        ("principal.builder.class", "com.example.Builder"),
        ("remote.log.storage.system.enable", "true"),
        ("controlled.shutdown.enable", "false"),
    ],
)
def test_what_is_unknown_or_would_be_missed_remains_an_error(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        parse_config(NodeConfig, node_settings(COMBINED | FORMATTED | {key: value}, NODE_KEYS).properties)


def test_without_process_roles_only_settings_without_meaning_are_left_out() -> None:
    plain = {"node.id": "1", "num.partitions": "3", "num.io.threads": "8"}
    assert node_settings(plain, NODE_KEYS).properties == {"node.id": "1", "num.partitions": "3"}


def test_no_grpc_port_is_opened_beside_listeners_with_security() -> None:
    secured = COMBINED | {"listeners": "SSL://:9092,CONTROLLER://:9093", "inter.broker.listener.name": "SSL"}
    del secured["advertised.listeners"]
    assert node_settings(secured, NODE_KEYS).properties["listeners"] == "SSL://:9092"


def test_security_of_a_controllers_listener_stays_as_it_is() -> None:
    for protocol, expected in (("SSL", "GRPC_SSL"), ("SASL_SSL", "GRPC_SASL_SSL"), ("GRPC_SSL", "GRPC_SSL")):
        given = CONTROLLER | {"listener.security.protocol.map": f"CONTROLLER:{protocol}"}
        found = controller_settings(given, CONTROLLER_KEYS).properties
        assert found["listener.security.protocol.map"] == f"CONTROLLER:{expected}"


def test_settings_of_single_listeners_go_to_the_roles_that_use_them() -> None:
    keys = {"listener.name.controller.ssl.client.auth": "none", "listener.name.plaintext.max.connections": "9"}
    node = node_settings(COMBINED | keys, NODE_KEYS).properties
    controller = controller_settings(COMBINED | keys, CONTROLLER_KEYS).properties
    assert keys.keys() <= node.keys()
    assert [key for key in controller if key.startswith("listener.name.")] == [
        "listener.name.controller.ssl.client.auth"
    ]


def test_roles_are_checked_and_belong_to_programs() -> None:
    assert roles_of({}) == frozenset()
    assert roles_of({"process.roles": "broker, controller"}) == {"broker", "controller"}
    for wrong in ("", "broker,broker", "zookeeper"):
        with pytest.raises(ConfigError, match=r"process\.roles"):
            roles_of({"process.roles": wrong})
    with pytest.raises(ConfigError, match="tidelog-node runs a broker; tidelog-server runs any role"):
        node_settings(CONTROLLER, NODE_KEYS)
    with pytest.raises(ConfigError, match="tidelog-quorum runs a controller"):
        controller_settings(BROKER, CONTROLLER_KEYS)
