"""The limits of single listeners in a node's properties."""

from __future__ import annotations

import pytest

from tidelog_foundation.config.connections import OwnLimits
from tidelog_foundation.errors import ConfigError
from tidelog_foundation.requests.configs import ConfigResourceType
from tidelog_node.server.dynamic_config import DynamicNodeConfig
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import ConfigRecord

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


def image(settings: dict[str, str], own: dict[str, str]) -> MetadataImage:
    records = [ConfigRecord(ConfigResourceType.BROKER, "", *pair) for pair in settings.items()]
    records += [ConfigRecord(ConfigResourceType.BROKER, "1", *pair) for pair in own.items()]
    return MetadataImage().apply(1, 1, records)


def test_limits_of_a_listener_change_at_run_time_and_back_to_those_of_the_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    connections, rate = (f"listener.name.outside.{x}" for x in ("max.connections", "max.connection.creation.rate"))
    settings = DynamicNodeConfig(REQUIRED | {connections: "10"})
    seen: list[OwnLimits] = []
    settings.subscribe(lambda _: seen.append(settings.listener_limits.own("OUTSIDE")))
    settings.follow(image({connections: "20", rate: "7"}, {connections: "30"}))
    settings.follow(image({connections: "20", rate: "7"}, {connections: "30"}))
    settings.follow(image({connections: "20", "max.connections": "99"}, {}))
    settings.follow(image({}, {}))
    assert seen == [OwnLimits(30, 7), OwnLimits(20), OwnLimits(10)]
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    settings.follow(image({"listener.name.other.max.connections": "1"}, {}))
    assert "listener.name.other.max.connections" in caplog.text, "it has no effect"
    settings.follow(image({connections: "x"}, {}))
    assert "limits of listeners are invalid" in caplog.text
    assert settings.listener_limits.own("OUTSIDE") == OwnLimits(10)


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
