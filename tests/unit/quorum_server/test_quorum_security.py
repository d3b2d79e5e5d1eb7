"""The security of a controller with an open and a secured listener."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidelog_foundation.authorization.settings import STANDARD_AUTHORIZER
from tidelog_foundation.errors import ConfigError, TidelogError
from tidelog_foundation.security import ANONYMOUS
from tidelog_quorum.server.authorization import controller_guards
from tidelog_quorum.server.config import parse_quorum_config
from tidelog_quorum.server.security import QuorumSecurity

JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required username=a password=b user_a=b;"
BASE = {
    "node.id": "1",
    "cluster.id": "c",
    "listeners": "OPEN://127.0.0.1:1,LOGIN://127.0.0.1:2",
    "listener.security.protocol.map": "OPEN:GRPC,LOGIN:GRPC_SASL_PLAINTEXT",
    "controller.quorum.voters": "1@127.0.0.1:1",
    "metadata.log.dir": "/memory",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.login.plain.sasl.jaas.config": JAAS,
}
LOGIN_FIRST = {"controller.listener.names": "LOGIN,OPEN", "controller.quorum.voters": "1@127.0.0.1:2"}


def security_of(**changes: str) -> QuorumSecurity:
    properties = BASE | {key.replace("_", "."): value for key, value in changes.items()}
    return QuorumSecurity(parse_quorum_config(properties), properties)


def test_callers_of_each_listener_are_identified_by_its_own_security() -> None:
    listeners = security_of().listeners
    caller: Any = SimpleNamespace(peer=lambda: "ipv4:10.0.0.1:5", invocation_metadata=lambda: ())
    assert listeners["OPEN"].identify(caller) == ANONYMOUS
    with pytest.raises(TidelogError):
        listeners["LOGIN"].identify(caller)


def test_controller_logs_in_to_others_if_its_first_listener_has_logins() -> None:
    assert security_of().to_controllers.login is None
    login = security_of(**LOGIN_FIRST).to_controllers.login
    assert login is not None
    assert login.mechanism == "PLAIN"


def test_controllers_cannot_log_in_to_each_other_with_scram_but_nodes_can() -> None:
    scram = {"sasl.enabled.mechanisms": "SCRAM-SHA-512", "sasl.mechanism.controller.protocol": "SCRAM-SHA-512"}
    users = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    scram["listener.name.login.scram-sha-512.sasl.jaas.config"] = users
    own = {key: value for key, value in BASE.items() if ".plain." not in key} | scram
    assert QuorumSecurity(parse_quorum_config(own), own).listeners.keys() == {"OPEN", "LOGIN"}
    own |= LOGIN_FIRST
    with pytest.raises(ConfigError, match=r"sasl\.mechanism\.controller\.protocol SCRAM-SHA-512"):
        QuorumSecurity(parse_quorum_config(own), own)


def test_guards_of_all_listeners_have_one_authorizer() -> None:
    guards = controller_guards(parse_quorum_config({**BASE, "authorizer.class.name": STANDARD_AUTHORIZER}))
    assert list(guards) == ["OPEN", "LOGIN"]
    assert guards["OPEN"].decisions is guards["LOGIN"].decisions
