from pathlib import Path

import pytest

import tidelog_node.server
from tidelog.config import describe, parse_config
from tidelog.errors import ConfigError
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

    assert (config.node_id, config.log_dirs, config.listener) == (7, ("/a", "/b"), ("127.0.0.1", 9092))
    assert config.topic_defaults().min_insync_replicas == 2
    assert config.advertised == ("127.0.0.1", 9092)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("node.id", "-1", "at least 0"),
        ("listeners", "PLAINTEXT://x:1", "GRPC://host:port"),
        ("listeners", "GRPC://0.0.0.0:9092", "advertised.listeners must name an address"),
        ("advertised.listeners", "GRPC://host:0", "port 0"),
        ("controller.quorum.voters", "nobody", "id@host:port"),
        ("log.dirs", "", "must not be empty"),
        ("replica.lag.time.max.m", "3", "did you mean"),
        ("fetch.max.bytes", "1", "from 1024"),
    ],
)
def test_node_config_refuses_what_cannot_work_and_says_why(key, value, text):
    with pytest.raises(ConfigError, match=text):
        parse_config(NodeConfig, REQUIRED | {key: value})


def test_every_setting_of_a_node_is_used():
    folder = Path(tidelog_node.server.__file__).parent
    sources = "".join(path.read_text() for path in folder.glob("*.py"))
    unused = [i.key for i in describe(NodeConfig) if f".{i.key.replace('.', '_')}" not in sources]

    assert unused == [], "accepted and ignored"
