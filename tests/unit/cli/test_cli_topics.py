"""``tidelog topic``, ``config``, ``cluster`` and ``log-dirs``: what they choose, change and print."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import Result

from tidelog.admin import Node, PartitionReassignment, TopicPartitionInfo
from tidelog.testing import FakeCluster
from tidelog_cli.topics.describe import PartitionView, TopicFilter


@pytest.fixture(autouse=True)
def topic(cluster: FakeCluster) -> Iterator[str]:
    cluster.create_topic("flights", 2, configs={"retention.ms": "1000"})
    cluster.create_topic("orders")
    cluster.create_topic("__consumer_offsets")
    yield "flights"
    for name in ("flights", "orders", "__consumer_offsets"):
        cluster.delete_topic(name)


def view(
    isr: tuple[int, ...], *, leader: int | None = 1, min_isr: int = 2, moved: PartitionReassignment | None = None
) -> PartitionView:
    replicas = (1, 2, 3) if moved is None else moved.replicas
    info = TopicPartitionInfo(
        0, None if leader is None else Node(leader), [Node(n) for n in replicas], [Node(n) for n in isr], 5
    )
    return PartitionView(info, moved, min_isr, {1, 2, 3})


@pytest.mark.parametrize(
    ("partition", "expected"),
    [
        (view((1, 2, 3)), set()),
        (view((1, 2)), {"under_replicated", "at_min_isr"}),
        (view((1,)), {"under_replicated", "under_min_isr"}),
        (view((1, 2, 3), min_isr=3), {"at_min_isr"}),
        (view((2, 3), leader=None), {"under_replicated", "at_min_isr", "under_min_isr", "unavailable"}),
        (view((1, 2, 3), leader=9), {"unavailable"}),
        # Of a move what is added does not count yet, and nothing of one that is over (KIP-455).
        (view((1, 2, 3), moved=PartitionReassignment((4, 1, 2, 3), (4,), (3,))), set()),
        (view((1, 2), moved=PartitionReassignment((4, 1, 2, 3), (4,), (3,))), {"under_replicated", "at_min_isr"}),
        (view((1, 2), moved=PartitionReassignment((1, 2), (7,), (8,))), {"at_min_isr"}),
    ],
)
def test_describe_chooses_partitions_as_kafka_topics_does(partition: PartitionView, expected: set[str]) -> None:
    options = ("under_replicated", "at_min_isr", "under_min_isr", "unavailable")
    assert {name for name in options if TopicFilter(**{name: True}).wants(partition)} == expected
    assert TopicFilter().wants(partition)
    assert TopicFilter(under_replicated=True, unavailable=True).wants(partition) is bool(
        expected & {"under_replicated", "unavailable"}
    )


def test_describe_without_names_shows_all_topics(run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    shown = run("topic", "describe")
    assert [line.partition(":")[0] for line in shown.stdout.splitlines() if "replication factor" in line] == [
        *("__consumer_offsets", "flights", "orders")
    ]
    described = run_json("topic", "describe", "--exclude-internal")["topics"]
    assert [topic["topic"] for topic in described] == ["flights", "orders"]
    assert described[0]["config"] == {"retention.ms": "1000"}
    assert described[0]["partitions"][1] == {
        "partition": 1,
        "leader": 1,
        "leader_epoch": 0,
        "replicas": [1],
        "isr": [1],
        "adding": [],
        "removing": [],
    }


def test_describe_with_overrides_shows_topics_that_have_settings(run: Callable[..., Result]) -> None:
    shown = run("topic", "describe", "--with-overrides")
    assert shown.stdout == "flights: 2 partitions, replication factor 1\n  retention.ms=1000\n"
    refused = run("topic", "describe", "--with-overrides", "--unavailable")
    assert (refused.exit_code, "cannot be combined with options" in refused.stderr) == (2, True)


def test_describe_of_chosen_partitions_is_one_table(run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    chosen = run("topic", "describe", "flights", "orders", "--at-min-isr")
    assert chosen.stdout == (
        "TOPIC    PARTITION  LEADER  LEADER EPOCH  REPLICAS  ISR\n"
        "flights          0       1             0  1         1\n"
        "flights          1       1             0  1         1\n"
        "orders           0       1             0  1         1\n"
    )
    none = run("topic", "describe", "--under-replicated", "--unavailable", "--under-min-isr")
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "No partition matches.\n")
    assert run_json("topic", "describe", "--unavailable") == {"topics": []}


def test_topics_are_altered_and_get_partitions(cluster: FakeCluster, run: Callable[..., Result]) -> None:
    checked = run("topic", "alter", "flights", "-c", "retention.ms=5", "--validate-only")
    assert checked.stdout == "can change retention.ms of flights\n"
    altered = run("topic", "alter", "flights", "-c", "segment.bytes=2000000", "--delete-config", "retention.ms")
    assert altered.stdout == "changed segment.bytes, retention.ms of flights\n"
    assert run("topic", "add-partitions", "flights", "-p", "5").stdout == "flights has 5 partitions\n"
    described = json.loads(run("topic", "describe", "flights", "--json").stdout)["topics"][0]
    assert described["config"] == {"segment.bytes": "2000000"}
    assert len(described["partitions"]) == 5
    fewer = run("topic", "add-partitions", "flights", "-p", "2")
    assert (fewer.exit_code, fewer.stderr.rstrip().endswith("[INVALID_PARTITIONS]")) == (1, True)
    assert run("topic", "alter", "flights").exit_code == 2


def test_offsets_shows_where_partitions_begin_and_end(
    run: Callable[..., Result], run_json: Callable[..., Any], cluster: FakeCluster
) -> None:
    run("produce", "flights", "-p", "1", stdin="a\nb\nc\n")
    cluster.delete_records("flights", 1, 1)
    assert run("topic", "offsets", "flights").stdout == (
        "TOPIC    PARTITION  LOG START OFFSET  HIGH WATERMARK  OFFSETS\n"
        "flights          0                 0               0        0\n"
        "flights          1                 1               3        2\n"
    )


def test_json_of_several_has_the_error_of_each_that_failed(run: Callable[..., Result], cluster: FakeCluster) -> None:
    cluster.create_topic("gone")
    result = run("topic", "delete", "gone", "nope", "--yes", "--json")
    assert result.exit_code == 1
    gone, nope = json.loads(result.stdout)["topics"]
    assert gone == {"topic": "gone", "deleted": True}
    assert (nope["deleted"], nope["error"]["name"]) == (False, "UNKNOWN_TOPIC_OR_PARTITION")
    assert result.stderr.rstrip().endswith("[UNKNOWN_TOPIC_OR_PARTITION]")


def test_config_shows_values_with_their_source_and_default(
    run: Callable[..., Result], run_json: Callable[..., Any]
) -> None:
    assert run("config", "describe", "--topic", "flights", "--topic", "orders").stdout == (
        "topic flights:\n"
        "SETTING              VALUE  SOURCE     DEFAULT\n"
        "min.insync.replicas  1      all nodes  1\n"
        "retention.ms         1000   topic      604800000\n"
        "\n"
        "topic orders:\n"
        "SETTING              VALUE  SOURCE     DEFAULT\n"
        "min.insync.replicas  1      all nodes  1\n"
    )
    [described] = run_json("config", "describe", "-t", "flights", "--all")["resources"]
    found = {config["setting"]: config for config in described["configs"]}
    assert (described["type"], described["name"]) == ("topic", "flights")
    assert found["cleanup.policy"]["source"] == "default"
    assert found["cleanup.policy"]["default"] == found["cleanup.policy"]["value"] == "delete"
    assert found["cleanup.policy"]["documentation"]


@pytest.mark.parametrize(
    ("args", "nearest", "code_with_yes"),
    [
        (("set", "log.retention.mss=1", "--node", "1"), "log.retention.ms", 0),
        (("set", "cleanup.policy=compact", "--all-nodes"), "log.cleanup.policy", 0),
        (("delete", "log.retention.mss", "--all-nodes"), "log.retention.ms", 0),
        (("delete", "retention.mss", "-t", "flights"), "retention.ms", 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_config_asks_before_a_setting_that_has_no_effect(
    run: Callable[..., Result], args: tuple[str, ...], nearest: str, code_with_yes: int
) -> None:
    asked = run("config", *args)
    assert asked.exit_code == 2, "there is nobody to answer"
    assert f'did you mean "{nearest}"?' in asked.stderr
    assert run("config", *args, "--yes").exit_code == code_with_yes


def test_config_shows_and_sets_what_is_set_on_a_group(run: Callable[..., Result]) -> None:
    assert run("config", "set", "consumer.session.timeout.ms=50000", "--group", "billing").stdout == (
        "changed consumer.session.timeout.ms of group billing\n"
    )
    assert run("config", "describe", "-g", "billing").stdout == (
        "group billing:\n"
        "SETTING                      VALUE  SOURCE  DEFAULT\n"
        "consumer.session.timeout.ms  50000  group   -\n"
    )
    assert run("config", "delete", "consumer.session.timeout.ms", "-g", "billing").exit_code == 0
    assert "no setting is changed" in run("config", "describe", "-g", "billing").stdout
    asked = run("config", "delete", "session.timeout.ms", "-g", "billing")
    assert (asked.exit_code, 'did you mean "consumer.session.timeout.ms"?' in asked.stderr) == (2, True)


def test_config_sets_deletes_appends_and_subtracts(run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    def policy() -> Any:
        [described] = run_json("config", "describe", "-t", "flights", "-k", "cleanup.policy")["resources"]
        return described["configs"][0]["value"]

    assert run("config", "set", "cleanup.policy=compact", "-t", "flights").stdout == (
        "changed cleanup.policy of topic flights\n"
    )
    run("config", "append", "cleanup.policy=delete", "-t", "flights")
    assert policy() == "compact,delete"
    run("config", "subtract", "cleanup.policy=compact", "-t", "flights", "--validate-only")
    run("config", "subtract", "cleanup.policy=compact", "-t", "flights")
    assert policy() == "delete"
    assert run("config", "delete", "retention.ms", "-t", "flights").exit_code == 0
    [described] = run_json("config", "describe", "-t", "flights")["resources"]
    assert [c["setting"] for c in described["configs"] if c["source"] == "topic"] == ["cleanup.policy"]
    refused = run("config", "set", "retention.mss=1", "-t", "flights", "-t", "orders")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "retention.mss" in refused.stderr
    assert run("topic", "alter", "flights", "--delete-config", "segment.byte").exit_code == 2
    assert run("config", "set", "a=b").exit_code == 2
    assert run("config", "set", "ab", "--all-nodes").exit_code == 2


def test_cluster_is_described(cluster: FakeCluster, run: Callable[..., Result], run_json: Callable[..., Any]) -> None:
    described = run_json("cluster", "describe")
    assert described["cluster_id"] == cluster.cluster_id
    assert (described["topics"], described["partitions"]) == (3, 4)
    address = cluster.bootstrap_servers
    node = {
        "node": 1,
        "address": address,
        "kafka": [cluster.kafka_bootstrap_servers],
        "rack": None,
        "state": "ready",
        "leads": 4,
    }
    assert described["nodes"] == [node]
    assert run("cluster", "info").stdout == run("cluster", "describe").stdout
    assert run("cluster", "features", "upgrade", "metadata.version").exit_code == 2


def test_log_dirs_and_partitions_are_json_as_well(run_json: Callable[..., Any], run: Callable[..., Result]) -> None:
    [node] = run_json("log-dirs", "describe", "-t", "orders")["nodes"]
    assert node["log_dirs"][0]["replicas"] == [
        {"topic": "orders", "partition": 0, "bytes": 0, "lag": 0, "future": False}
    ]
    moved = run("log-dirs", "move", "/other", "orders-0", "-n", "1", "--json")
    assert json.loads(moved.stdout)["replicas"][0]["error"]["name"] == "LOG_DIR_NOT_FOUND"
    assert run_json("partition", "reassign", "--list") == {"reassignments": []}
    proposed = run_json("partition", "reassign", "--generate", "--topics", "orders", "--broker-list", "1")
    assert proposed["proposed"]["partitions"][0]["replicas"] == [1]
    elected = run_json("partition", "elect-leaders", "--election-type", "preferred", "-t", "orders", "-p", "0")
    assert elected == {"partitions": [{"partition": "orders-0", "election": "not needed"}]}
