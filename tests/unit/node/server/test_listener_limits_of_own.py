"""The limits of single listeners in a node's properties."""

from __future__ import annotations

import pytest

from tidelog_foundation.errors import ConfigError
from tidelog_node.kafka.server.limits import OwnLimits
from tidelog_node.server.dynamic_config import DynamicNodeConfig

REQUIRED = {
    "node.id": "1",
    "cluster.id": "c",
    "log.dirs": "/data",
    "controller.quorum.voters": "1@localhost:9093",
    "listeners": "GRPC://h:1,OUTSIDE://h:2,INSIDE://h:3",
    "listener.security.protocol.map": "GRPC:GRPC,OUTSIDE:PLAINTEXT,INSIDE:PLAINTEXT",
    "inter.broker.listener.name": "INSIDE",
}


def test_limits_of_a_listener_are_its_own_where_it_has_them() -> None:
    own = {
        "max.connections": "100",
        "connections.max.idle.ms": "60000",
        "listener.name.outside.max.connections": "10",
        "listener.name.outside.max.connection.creation.rate": "5",
        "listener.name.grpc.connections.max.idle.ms": "1000",
    }
    limits = DynamicNodeConfig(REQUIRED | own).listener_limits
    assert limits.of_listeners == {"OUTSIDE": OwnLimits(10, 5), "GRPC": OwnLimits(max_idle_s=1)}
    assert (limits.own("INSIDE"), limits.max_connections) == (OwnLimits(), 100)
    assert [limits.idle_s(name) for name in ("OUTSIDE", "INSIDE", "GRPC")] == [60, 60, 1]


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("listener.name.outside.max.connections", "0", r"outside: .*0.*max.connections"),
        ("listener.name.outside.max.connection.creation.rate", "x", r"outside: .*x.*creation.rate"),
        ("listener.name.other.max.connections", "5", "names none of the listeners"),
        ("listener.name.outside.max.connections.per.ip", "5", "is not a setting of single listeners"),
    ],
)
def test_invalid_limit_of_a_listener_is_named(key: str, value: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        DynamicNodeConfig(REQUIRED | {key: value})
