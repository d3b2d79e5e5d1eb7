from __future__ import annotations

import pytest

from tidelog_foundation.errors import ConfigError
from tidelog_foundation.sasl.jaas import PLAIN_LOGIN_MODULE
from tidelog_foundation.sasl.scram_users import ScramUsers
from tidelog_foundation.security.mechanisms import Accounts
from tidelog_node.server.dynamic_config import DynamicNodeConfig
from tidelog_node.server.sasl import NodeSasl

ACCOUNTS = Accounts(ScramUsers(dict), ScramUsers(dict))
PROPERTIES = {
    "node.id": "1",
    "cluster.id": "c",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "/a",
    "listeners": "GRPC://a:1,PLAINTEXT://a:2,SASL_SSL://a:3,INSIDE://a:4",
    "listener.security.protocol.map": "GRPC:GRPC,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,INSIDE:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-256,PLAIN",
    "connection.failed.authentication.delay.ms": "250",
    "sasl.server.max.receive.size": "1000",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.inside.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.inside.plain.sasl.jaas.config": f"{PLAIN_LOGIN_MODULE} required username=a password=b user_a=b;",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": f"{PLAIN_LOGIN_MODULE} required username=a password=b user_a=b;",
    "listener.name.sasl_ssl.plain.connections.max.reauth.ms": "5000",
}


def sasl_of(**changes: str) -> NodeSasl:
    return NodeSasl(DynamicNodeConfig(PROPERTIES | {key.replace("_", "."): v for key, v in changes.items()}), ACCOUNTS)


def test_each_listener_has_its_mechanisms_and_limits() -> None:
    sasl = sasl_of()
    assert {name: list(each.mechanisms) for name, each in sasl.listeners.items()} == {
        "SASL_SSL": ["SCRAM-SHA-256", "PLAIN"],
        "INSIDE": ["PLAIN"],
    }
    outside = sasl.listeners["SASL_SSL"]
    assert (outside.max_receive_size, outside.failure_delay_s, outside.is_encrypted) == (1_000, 0.25, True)
    assert [each.max_session_ms for each in outside.mechanisms.values()] == [0, 5_000]
    assert not sasl.listeners["INSIDE"].is_encrypted


@pytest.mark.parametrize(
    ("changes", "mechanism"),
    [
        ({}, None),
        ({"inter_broker_listener_name": "INSIDE"}, "PLAIN"),
        ({"security_inter_broker_protocol": "SASL_SSL"}, "PLAIN"),
    ],
)
def test_node_logs_in_to_others_if_their_listener_has_sasl(changes: dict[str, str], mechanism: str | None) -> None:
    login = sasl_of(**changes).login
    assert (login.mechanism if login is not None else None) == mechanism


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        (
            {"inter_broker_listener_name": "INSIDE", "sasl_mechanism_inter_broker_protocol": "SCRAM-SHA-256"},
            "SCRAM-SHA-256 is not in sasl.enabled.mechanisms of the listener INSIDE: PLAIN",
        ),
        (
            {"security_inter_broker_protocol": "SASL_SSL", "sasl_mechanism_inter_broker_protocol": "SCRAM-SHA-256"},
            "SCRAM-SHA-256 over listener SASL_SSL: sasl.jaas.config is missing",
        ),
        ({"connection_failed_authentication_delay_ms": "600000"}, "must be less than connections.max.idle.ms 600000"),
    ],
)
def test_login_that_cannot_work_is_refused_at_the_start(changes: dict[str, str], fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        sasl_of(**changes)
