from dataclasses import dataclass

import pytest

from tidelog_foundation.config import (
    DynamicBrokerConfig,
    TopicConfig,
    at_least,
    between,
    describe,
    one_of,
    parse_config,
    setting,
)
from tidelog_foundation.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Sample:
    node_id: int = setting(doc="the id", check=at_least(0), aliases=("broker.id",))
    replica_lag_time_max_ms: int = setting(30_000, doc="lag", check=at_least(1))
    log_dirs: tuple[str, ...] = setting(("/tmp/a",), doc="folders")
    compression_type: str = setting("none", doc="codec", check=one_of("none", "zstd"))
    fraction: float = setting(0.5, doc="share", check=between(0, 1))
    enabled: bool = setting(False, doc="switch")
    rack: str | None = setting(None, doc="rack", key="broker.rack")
    password: str = setting("", doc="secret", secret=True)


def test_config_reads_text_as_a_properties_file_has_it() -> None:
    raw = {"node.id": " 7", "log.dirs": "/a, /b", "enabled": "TRUE", "broker.rack": "r1", "fraction": "0.25"}
    config = parse_config(Sample, raw)
    assert (config.node_id, config.log_dirs, config.enabled, config.rack) == (7, ("/a", "/b"), True, "r1")
    assert config.fraction == 0.25
    assert config.replica_lag_time_max_ms == 30_000


def test_config_takes_an_alias() -> None:
    assert parse_config(Sample, {"broker.id": 3}).node_id == 3


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({}, 'missing required configuration "node.id": the id'),
        (
            {"node.id": 1, "replica.lag.time.max": 5},
            'unknown configuration "replica.lag.time.max"; did you mean "replica.lag.time.max.ms"?',
        ),
        ({"node.id": "x"}, "invalid value 'x' for configuration \"node.id\": must be a whole number"),
        ({"node.id": "-1"}, "invalid value '-1' for configuration \"node.id\": must be at least 0"),
        ({"node.id": 1.5}, 'invalid value 1.5 for configuration "node.id": must be a whole number'),
        ({"node.id": True}, 'invalid value True for configuration "node.id": must be a whole number'),
        ({"node.id": 1, "enabled": "yes"}, "must be true or false"),
        ({"node.id": 1, "compression.type": "brotli"}, "must be one of none, zstd"),
        ({"node.id": 1, "fraction": "2"}, "must be from 0 to 1"),
    ],
)
def test_config_error_names_the_key_the_value_and_the_limit(raw: dict[str, object], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(Sample, raw)
    assert text in caught.value.message


def test_config_hides_secrets() -> None:
    assert "hunter2" not in repr(parse_config(Sample, {"node.id": 1, "password": "hunter2"}))


def test_describe_lists_every_setting_in_order() -> None:
    rows = describe(Sample)
    assert [row.key for row in rows][:2] == ["node.id", "replica.lag.time.max.ms"]
    assert {row.key: row.type for row in rows}["log.dirs"] == "a comma-separated list"


@dataclass(frozen=True, slots=True)
class Numbers:
    a: int = setting(1, doc="a", config_type="INT")
    b: int | None = setting(None, doc="b", config_type="SHORT")
    c: int = setting(1, doc="c")
    d: float = setting(1.0, doc="d")


def test_describe_gives_kafkas_types_of_numbers() -> None:
    assert [info.config_type for info in describe(Numbers)] == ["INT", "SHORT", "LONG", "DOUBLE"]
    topic = {info.key: info.config_type for info in describe(TopicConfig)}
    assert {key for key, config_type in topic.items() if config_type == "INT"} == {
        "min.insync.replicas",
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "index.interval.bytes",
        "max.message.bytes",
        "segment.bytes",
        "segment.index.bytes",
    }
    assert (topic["retention.bytes"], topic["retention.ms"], topic["flush.messages"]) == ("LONG", "LONG", "LONG")
    broker = {info.key: info.config_type for info in describe(DynamicBrokerConfig)}
    assert (broker["message.max.bytes"], broker["log.cleaner.dedupe.buffer.size"]) == ("INT", "LONG")


@pytest.mark.parametrize(("key", "bits"), [("a", 32), ("b", 16), ("c", 64)])
def test_config_refuses_a_number_that_its_type_cannot_hold(key: str, bits: int) -> None:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    for value in (least, most):
        assert getattr(parse_config(Numbers, {key: str(value)}), key) == value
    for value in (least - 1, most + 1):
        with pytest.raises(ConfigError, match=f"must fit into {bits} bits"):
            parse_config(Numbers, {key: str(value)})
