"""Settings: described, altered key by key, and replaced as a whole; and what has settings."""

from __future__ import annotations

from compat.wire.case import Case, Family
from compat.wire.side import Side

from tidelog_node.kafka.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    ListConfigResourcesRequest,
)

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
_TOPIC_KEYS = [
    "cleanup.policy",
    "compression.type",
    "delete.retention.ms",
    "flush.ms",
    "index.interval.bytes",
    "max.message.bytes",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
]
_KEPT = ["my.custom.key", "cleanup.policy", "sasl.kerberos.min.time.before.relogin", ""]
_SESSION, _HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
_THROTTLED = "leader.replication.throttled.replicas"


def _describe(kind: int, name: str, *keys: str, told: bool = False) -> DescribeConfigsRequest:
    return DescribeConfigsRequest([DescribeConfigsResource(kind, name, list(keys) or None)], told, told)


_KEPT_NOW = _describe(BROKER, "1", *_KEPT, told=True)


def _then(name: str, *keys: str) -> Case:
    return Case(name, _describe(TOPIC, "set", *keys), (4,), ["error_message"], settles=True)


_DESCRIBE = (
    Case("describe: a topic", _describe(TOPIC, "plain", *_TOPIC_KEYS, told=True)),
    Case("describe: a topic's own", _describe(TOPIC, "own", *_TOPIC_KEYS, told=True)),
    Case("describe: unknown keys", _describe(TOPIC, "plain", "nope", "retention.ms")),
    Case("describe: no such topic", _describe(TOPIC, "none")),
    Case("describe: a bad name", _describe(TOPIC, "a b")),
    Case("describe: no name", _describe(TOPIC, "")),
    Case("describe: all brokers", _describe(BROKER, "")),
    Case("describe: another broker", _describe(BROKER, "7")),
    Case("describe: no broker's id", _describe(BROKER, "one")),
    Case("describe: a broker", _describe(BROKER, "1", "log.retention.ms", "message.max.bytes", told=True)),
    Case("describe: a group", _describe(GROUP, "group")),
    Case("describe: no group", _describe(GROUP, "")),
    Case("describe: client metrics", _describe(CLIENT_METRICS, "any")),
    Case("describe: client metrics of no name", _describe(CLIENT_METRICS, "")),
    Case("describe: loggers", _describe(LOGGER, "1"), ignore=["configs"]),
    Case("describe: loggers of another broker", _describe(LOGGER, "5")),
    Case("describe: type 9", _describe(9, "any")),
)


_LIST = (
    Case("list: all", ListConfigResourcesRequest()),
    Case("list: topics", ListConfigResourcesRequest([TOPIC]), (1,)),
    Case("list: topics twice", ListConfigResourcesRequest([TOPIC, TOPIC]), (1,)),
    Case("list: brokers", ListConfigResourcesRequest([BROKER]), (1,)),
    Case("list: loggers", ListConfigResourcesRequest([LOGGER]), (1,)),
    Case("list: client metrics", ListConfigResourcesRequest([CLIENT_METRICS]), (1,)),
    Case("list: groups", ListConfigResourcesRequest([GROUP]), (1,)),
    Case("list: several types", ListConfigResourcesRequest([GROUP, BROKER, TOPIC]), (1,)),
    *(Case(f"list: type {kind}", ListConfigResourcesRequest([TOPIC, kind]), (1,)) for kind in (-1, 0, 1, 3, 64)),
)


def _alter(kind: int, name: str, *changes: tuple[str, int, str | None]) -> IncrementalAlterConfigsRequest:
    return IncrementalAlterConfigsRequest([_resource(kind, name, *changes)])


def _resource(kind: int, name: str, *changes: tuple[str, int, str | None]) -> IncrementalAlterConfigsResource:
    return IncrementalAlterConfigsResource(kind, name, [IncrementalAlterableConfig(*change) for change in changes])


def _replace(kind: int, name: str, *configs: tuple[str, str | None]) -> AlterConfigsRequest:
    return AlterConfigsRequest([AlterConfigsResource(kind, name, [AlterableConfig(*config) for config in configs])])


_RESOURCE_TWICE = IncrementalAlterConfigsRequest(
    [_resource(TOPIC, "set", ("retention.ms", SET, "1")), _resource(TOPIC, "set", ("segment.ms", SET, "2000"))]
)
_SOME_BAD = IncrementalAlterConfigsRequest(
    [
        _resource(TOPIC, "set", ("retention.ms", SET, "7000")),
        _resource(TOPIC, "none", ("retention.ms", SET, "1")),
        _resource(TOPIC, "plain", ("nope", SET, "1")),
    ]
)
_ALTER = (
    Case("alter: set", _alter(TOPIC, "set", ("retention.ms", SET, "5000"))),
    Case("alter: append", _alter(TOPIC, "set", ("cleanup.policy", APPEND, "compact"))),
    Case("alter: append what is there", _alter(TOPIC, "set", ("cleanup.policy", APPEND, "compact,delete"))),
    _then("alter: then", "retention.ms", "cleanup.policy"),
    Case("alter: subtract", _alter(TOPIC, "set", ("cleanup.policy", SUBTRACT, "delete"))),
    Case("alter: subtract what is not there", _alter(TOPIC, "set", ("cleanup.policy", SUBTRACT, "delete"))),
    _then("alter: then subtracted", "cleanup.policy"),
    Case("alter: subtract all", _alter(TOPIC, "set", ("cleanup.policy", SUBTRACT, "compact"))),
    Case("alter: append to no list", _alter(TOPIC, "set", ("retention.ms", APPEND, "5"))),
    Case("alter: throttled replicas", _alter(TOPIC, "set", (_THROTTLED, APPEND, "0:1"))),
    Case("alter: more throttled replicas", _alter(TOPIC, "set", (_THROTTLED, APPEND, "1:1,0:1"))),
    _then("alter: then throttled", _THROTTLED),
    Case("alter: no throttled replicas", _alter(TOPIC, "set", (_THROTTLED, SUBTRACT, "0:1,1:1"))),
    Case("alter: delete", _alter(TOPIC, "set", ("retention.ms", DELETE, None), ("cleanup.policy", DELETE, "x"))),
    _then("alter: then deleted", "retention.ms", "cleanup.policy", _THROTTLED),
    Case("alter: delete an unknown key", _alter(TOPIC, "set", ("nope", DELETE, None))),
    Case("alter: an unknown key", _alter(TOPIC, "set", ("nope", SET, "1"))),
    Case("alter: null", _alter(TOPIC, "set", ("retention.ms", SET, None))),
    Case("alter: a bad value", _alter(TOPIC, "set", ("retention.ms", SET, "z"))),
    Case("alter: operation 9", _alter(TOPIC, "set", ("retention.ms", 9, "1"))),
    Case("alter: a key twice", _alter(TOPIC, "set", ("retention.ms", SET, "1"), ("retention.ms", SET, "2"))),
    Case("alter: a topic twice", _RESOURCE_TWICE),
    Case("alter: no such topic", _alter(TOPIC, "none", ("retention.ms", SET, "1"))),
    Case("alter: a bad name", _alter(TOPIC, "a b", ("retention.ms", SET, "1"))),
    Case("alter: another broker", _alter(BROKER, "7", ("log.retention.ms", SET, "100000"))),
    Case("alter: no broker's id", _alter(BROKER, "one", ("log.retention.ms", SET, "100000"))),
    Case("alter: read only", _alter(BROKER, "1", ("node.id", SET, "3"))),
    Case("alter: read only of Kafka's", _alter(BROKER, "1", ("process.roles", SET, "broker"))),
    Case("alter: delete what is read only", _alter(BROKER, "1", ("process.roles", DELETE, None))),
    Case("alter: unknown keys of a broker", _alter(BROKER, "1", *((key, SET, "5") for key in _KEPT))),
    Case("describe: unknown keys of a broker", _KEPT_NOW, (4,), ["documentation"], settles=True),
    Case("alter: no more of a broker", _alter(BROKER, "1", *((key, DELETE, None) for key in _KEPT))),
    Case("alter: append to an unknown key", _alter(BROKER, "1", ("my.custom.key", APPEND, "5"))),
    Case("alter: a bad value of a broker", _alter(BROKER, "1", ("message.max.bytes", SET, "z"))),
    Case("alter: a bad value of Kafka's", _alter(BROKER, "1", ("num.io.threads", SET, "z"))),
    Case("alter: unknown keys of all brokers", _alter(BROKER, "", ("my.custom.key", SET, "v"))),
    Case("describe: unknown keys of all brokers", _describe(BROKER, "", "my.custom.key"), (4,), settles=True),
    Case("alter: no more unknown keys", _alter(BROKER, "", ("my.custom.key", DELETE, None))),
    Case("alter: of a single broker", _alter(BROKER, "", ("sasl.kerberos.min.time.before.relogin", SET, "5"))),
    Case("alter: TLS", _alter(BROKER, "1", ("ssl.keystore.location", SET, "/x"))),
    Case("alter: a listener's", _alter(BROKER, "1", ("listener.name.x.my.own", SET, "5"))),
    Case("alter: not a listener's", _alter(BROKER, "1", ("listener.name.x.my.own", DELETE, None))),
    Case("alter: all brokers", _alter(BROKER, "", ("log.retention.ms", SET, "100000"))),
    _then("alter: then of all brokers", "retention.ms"),
    Case("alter: no more of all brokers", _alter(BROKER, "", ("log.retention.ms", DELETE, None))),
    Case("alter: a logger", _alter(LOGGER, "1", ("kafka.server", SET, "INFO"))),
    Case("alter: a logger of no broker", _alter(LOGGER, "", ("kafka.server", SET, "INFO"))),
    Case("alter: a logger of another broker", _alter(LOGGER, "5", ("kafka.server", SET, "INFO"))),
    Case("alter: client metrics", _alter(CLIENT_METRICS, "any", ("interval.ms", SET, "1000"))),
    Case("alter: client metrics of no name", _alter(CLIENT_METRICS, "", ("interval.ms", SET, "1000"))),
    Case("alter: a group", _alter(GROUP, "group", (_SESSION, SET, "50000"))),
    Case("alter: no group", _alter(GROUP, "", (_SESSION, SET, "50000"))),
    Case("alter: a group below the limit", _alter(GROUP, "group", (_SESSION, SET, "5"))),
    Case("alter: a group above the limit", _alter(GROUP, "group", (_HEARTBEAT, SET, "50000"))),
    Case("alter: a group's bad value", _alter(GROUP, "group", (_SESSION, SET, "z"))),
    Case("alter: append to a group's", _alter(GROUP, "group", (_SESSION, APPEND, "1"))),
    Case("alter: an unknown key of a group", _alter(GROUP, "group", ("nope", SET, "1"))),
    Case("alter: delete an unknown key of a group", _alter(GROUP, "group", ("nope", DELETE, None))),
    Case("describe: a group altered", _describe(GROUP, "group", told=True), (4,), ["documentation"], settles=True),
    Case("list: a group altered", ListConfigResourcesRequest([GROUP]), (1,), settles=True),
    Case("replace: a group", _replace(GROUP, "group", (_HEARTBEAT, "6000"))),
    Case("describe: a group replaced", _describe(GROUP, "group"), (4,), settles=True),
    Case("replace: a group's unknown key", _replace(GROUP, "group", ("nope", "6000"))),
    Case("replace: nothing of a group", _replace(GROUP, "group")),
    Case("alter: a share group", _alter(GROUP, "group", ("share.auto.offset.reset", SET, "latest"))),
    Case("alter: type 9", _alter(9, "", ("retention.ms", SET, "1"))),
    Case("alter: nothing", IncrementalAlterConfigsRequest([])),
    Case("alter: some that are bad", _SOME_BAD),
    _then("alter: then the good one", "retention.ms"),
)


_REPLACE = (
    Case("replace: set", _replace(TOPIC, "set", ("segment.ms", "7000"))),
    _then("replace: then", "retention.ms", "segment.ms"),
    Case("replace: null", _replace(TOPIC, "set", ("segment.ms", None))),
    Case("replace: a key twice", _replace(TOPIC, "set", ("segment.ms", "7000"), ("segment.ms", "7001"))),
    Case("replace: an unknown key", _replace(TOPIC, "set", ("nope", "1"))),
    Case("replace: no such topic", _replace(TOPIC, "none")),
    Case("replace: read only", _replace(BROKER, "1", ("node.id", "4"))),
    Case("replace: a logger", _replace(LOGGER, "1", ("kafka", "INFO"))),
    Case("replace: all brokers", _replace(BROKER, "", ("log.retention.ms", "90000"))),
    Case("replace: nothing of all brokers", _replace(BROKER, "")),
    Case("replace: nothing", _replace(TOPIC, "set")),
    _then("replace: then nothing", "segment.ms"),
)


def _prepare(side: Side) -> None:
    side.create(["plain", "set"], 2)
    side.create(["own"], 1, retention_ms=100_000, cleanup_policy="compact", segment_bytes=2_000_000)


FAMILIES = (Family("settings", (*_DESCRIBE, *_LIST, *_ALTER, *_REPLACE), _prepare),)
