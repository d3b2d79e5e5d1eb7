from pathlib import Path

import pytest

import tidelog_foundation.authorization
import tidelog_foundation.logs
import tidelog_foundation.monitoring
import tidelog_foundation.oauth
import tidelog_foundation.sasl
import tidelog_foundation.security
import tidelog_foundation.transport
import tidelog_node.handlers
import tidelog_node.server
from tidelog_foundation.config import TopicConfig, describe, parse_config
from tidelog_foundation.config.broker import BROKER_SYNONYMS
from tidelog_foundation.config.endpoints import GRPC, NamedListener
from tidelog_foundation.errors import ConfigError
from tidelog_node.server.config import NodeConfig

REQUIRED = {
    "node.id": "1",
    "cluster.id": "c",
    "listeners": "GRPC://127.0.0.1:9092",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "log.dirs": "/a, /b",
}


def test_node_config_reads_kafkas_keys_and_aliases():
    raw = {k: v for k, v in REQUIRED.items() if k != "node.id"} | {"broker.id": "7", "min.insync.replicas": "2"}
    config = parse_config(NodeConfig, raw)

    assert (config.node_id, config.log_dirs) == (7, ("/a", "/b"))
    assert config.topic_defaults().min_insync_replicas == 2
    assert config.grpc_listener == NamedListener("GRPC", "127.0.0.1", 9092, GRPC)
    assert config.advertised_endpoints({}) == (config.grpc_listener,)


def test_node_config_gives_topics_kafkas_defaults_but_flushes_every_few_seconds():
    defaults = parse_config(NodeConfig, REQUIRED).topic_defaults()

    assert defaults == TopicConfig()
    assert defaults.flush_ms == 5_000


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({"log.retention.hours": "2"}, "retention_ms", 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, "retention_ms", 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, "retention_ms", 4),
        ({"log.retention.hours": "-1"}, "retention_ms", -1),
        ({"log.retention.ms": "-1", "log.retention.minutes": "3"}, "retention_ms", -1),
        ({"log.roll.hours": "1"}, "segment_ms", 3_600_000),
        ({"log.roll.hours": "1", "log.roll.ms": "5"}, "segment_ms", 5),
        ({"log.roll.jitter.hours": "1"}, "segment_jitter_ms", 3_600_000),
        ({"log.roll.jitter.hours": "1", "log.roll.jitter.ms": "0"}, "segment_jitter_ms", 0),
        ({"log.cleanup.policy": "compact,delete"}, "cleanup_policy", ("compact", "delete")),
        ({"log.segment.delete.delay.ms": "7"}, "file_delete_delay_ms", 7),
        ({"log.cleaner.min.cleanable.ratio": "0.1"}, "min_cleanable_dirty_ratio", 0.1),
        ({"compression.type": "zstd"}, "compression_type", "zstd"),
    ],
)
def test_node_config_turns_broker_settings_into_topic_defaults(given, field, expected):
    assert getattr(parse_config(NodeConfig, REQUIRED | given).topic_defaults(), field) == expected


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("node.id", "-1", "at least 0"),
        ("listeners", "PLAINTEXT://x:1", "a listener whose security protocol is one of GRPC"),
        ("listeners", "GRPC://0.0.0.0:9092", "advertised.listeners must name an address"),
        ("advertised.listeners", "GRPC://host:0", "port 0"),
        ("controller.listener.names", "OTHER", "no security protocol is defined for listener OTHER"),
        ("controller.listener.names", "SSL", "controllers speak one of GRPC, GRPC_SSL"),
        ("controller.quorum.voters", "nobody", "id@host:port"),
        ("controller.quorum.bootstrap.servers", "nobody", "host:port"),
        ("log.dirs", "", "must not be empty"),
        ("replica.lag.time.max.m", "3", "did you mean"),
        ("fetch.max.bytes", "1", "from 1024"),
        ("log.retention.hours", "0", "must be one of -1 or must be at least 1"),
        ("log.cleanup.policy", "compact,shred", "delete, compact"),
        ("log.cleaner.threads", "1000", "below 1 MiB for each of 1000 cleaner threads"),
    ],
)
def test_node_config_refuses_what_cannot_work_and_says_why(key, value, text):
    with pytest.raises(ConfigError, match=text):
        parse_config(NodeConfig, REQUIRED | {key: value})


def test_node_config_takes_bootstrap_controllers_in_the_place_of_the_voters():
    raw = {k: v for k, v in REQUIRED.items() if k != "controller.quorum.voters"}
    config = parse_config(NodeConfig, raw | {"controller.quorum.bootstrap.servers": "a:1,b:2"})
    assert (config.voters, config.bootstrap) == ({}, [("a", 1), ("b", 2)])
    both = parse_config(NodeConfig, REQUIRED | {"controller.quorum.bootstrap.servers": "a:1"})
    assert (both.voters, both.bootstrap) == ({1: ("127.0.0.1", 9093)}, [("a", 1)])


@pytest.mark.parametrize("given", [{}, {"controller.quorum.bootstrap.servers": ""}])
def test_node_config_refuses_a_node_that_knows_no_controller(given):
    raw = {k: v for k, v in REQUIRED.items() if k != "controller.quorum.voters"}
    with pytest.raises(ConfigError, match=r"controller\.quorum\.voters or controller\.quorum\.bootstrap\.servers must"):
        parse_config(NodeConfig, raw | given)


def test_node_config_refuses_compaction_lags_that_contradict_each_other():
    lags = {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"}
    with pytest.raises(ConfigError, match=r"min.compaction.lag.ms 2 is above max.compaction.lag.ms 1"):
        parse_config(NodeConfig, REQUIRED | lags)


_READERS = (
    tidelog_node.handlers,
    tidelog_node.server,
    tidelog_foundation.authorization,
    tidelog_foundation.logs,
    tidelog_foundation.monitoring,
    tidelog_foundation.oauth,
    tidelog_foundation.sasl,
    tidelog_foundation.security,
)


def test_every_setting_of_a_node_is_used():
    folders = [Path(package.__file__).parent for package in _READERS]
    sources = "".join(path.read_text() for folder in folders for path in folder.glob("*.py"))
    behind_topics = {synonym.key for synonyms in BROKER_SYNONYMS.values() for synonym in synonyms}
    others = (i.key for i in describe(NodeConfig) if i.key not in behind_topics)
    unused = [key for key in others if f".{key.replace('.', '_')}" not in sources]

    assert unused == [], "accepted and ignored"


def test_protocol_between_nodes_names_the_inter_broker_listener():
    own = {"listeners": "GRPC://a:1,PLAINTEXT://a:2,SSL://a:3", "security.inter.broker.protocol": "SSL"}
    assert parse_config(NodeConfig, REQUIRED | own).inter_broker_listener.name == "SSL"
    with pytest.raises(ConfigError, match=r"only one of inter\.broker\.listener\.name and security"):
        parse_config(NodeConfig, REQUIRED | own | {"inter.broker.listener.name": "SSL"})
