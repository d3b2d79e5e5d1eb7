"""``tidelog partition`` on one node: what is printed, what is refused, and which options go together."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tidelog.admin import PartitionReassignment
from tidelog.message import TopicPartition
from tidelog.testing import FakeCluster
from tidelog_cli.commands import app
from tidelog_cli.partitions.throttles import Move, moves_of, throttled_replicas


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("a", 2)
        running.create_topic("b", 1)
        yield running


def run(cluster: FakeCluster, *args: str) -> Result:
    environment = {"TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "COLUMNS": "200"}
    return CliRunner().invoke(app, ["partition", *args], env=environment)


@pytest.fixture
def move(tmp_path: Path) -> Path:
    items = [{"topic": "a", "partition": index, "replicas": [1]} for index in (0, 1)]
    path = tmp_path / "move.json"
    path.write_text(json.dumps({"version": 1, "partitions": items}))
    return path


def test_generate_prints_what_is_and_what_could_be(cluster: FakeCluster, tmp_path: Path) -> None:
    current = (
        '{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1],"log_dirs":["any"]},'
        '{"topic":"a","partition":1,"replicas":[1],"log_dirs":["any"]}]}'
    )
    expected = (
        f"Current partition replica assignment\n{current}\n\nProposed partition reassignment configuration\n{current}\n"
    )
    found = run(cluster, "reassign", "--generate", "--topics", "a", "--broker-list", "1")
    assert (found.exit_code, found.stdout) == (0, expected)
    file = tmp_path / "topics.json"
    file.write_text('{"version":1,"topics":[{"topic":"a"}]}')
    found = run(cluster, "reassign", "--generate", "--topics-to-move-json-file", str(file), "--broker-list", "1")
    assert (found.exit_code, found.stdout) == (0, expected)


def test_generate_refuses_unknown_topics_nodes_and_factors(cluster: FakeCluster) -> None:
    for args, problem in (
        (("--topics", "nope", "--broker-list", "1"), "nope"),
        (("--topics", "a", "--broker-list", "1,7"), "there are no nodes [7], only [1]"),
        (("--topics", "a", "--broker-list", "1", "--replication-factor", "2"), "is to have 2 replicas on 1 nodes"),
    ):
        found = run(cluster, "reassign", "--generate", *args)
        assert found.exit_code == 1, found.output
        assert problem in found.stderr


def test_execute_verify_list_and_cancel_say_what_they_did(cluster: FakeCluster, move: Path) -> None:
    named = ("--reassignment-json-file", str(move))
    executed = run(cluster, "reassign", "--execute", *named)
    assert executed.exit_code == 0, executed.output
    assert "Save this to use as the --reassignment-json-file option during rollback" in executed.stdout
    assert executed.stdout.endswith("Successfully started partition reassignments for a-0,a-1\n")
    verified = run(cluster, "reassign", "--verify", "--wait", "--preserve-throttles", *named)
    assert verified.exit_code == 0, verified.output
    assert verified.stdout == (
        "PARTITION  STATUS     REPLICAS  TARGET\na-0        completed  1         1\na-1        completed  1         1\n"
    )
    assert run(cluster, "reassign", "--list").stdout == "No partition reassignments found.\n"
    cancelled = run(cluster, "reassign", "--cancel", "--preserve-throttles", *named)
    assert cancelled.stdout == "None of the specified partition reassignments are active.\n"


def test_reassignment_is_json_with_messages_elsewhere(cluster: FakeCluster, move: Path) -> None:
    named = ("--reassignment-json-file", str(move), "--json")
    executed = run(cluster, "reassign", "--execute", *named)
    document = json.loads(executed.stdout)
    assert document["started"] == [{"topic": "a", "partition": 0}, {"topic": "a", "partition": 1}]
    assert [p["replicas"] for p in document["previous"]["partitions"]] == [[1], [1]]
    assert "Successfully started partition reassignments for a-0,a-1" in executed.stderr
    verified = run(cluster, "reassign", "--verify", "--preserve-throttles", *named)
    assert [p["status"] for p in json.loads(verified.stdout)["partitions"]] == ["completed", "completed"]
    cancelled = run(cluster, "reassign", "--cancel", "--preserve-throttles", *named)
    assert json.loads(cancelled.stdout) == {"cancelled": []}


def test_verify_names_what_is_not_as_asked_and_fails(cluster: FakeCluster, tmp_path: Path) -> None:
    items = [{"topic": "a", "partition": 0, "replicas": [2]}, {"topic": "gone", "partition": 0, "replicas": [1]}]
    file = tmp_path / "move.json"
    file.write_text(json.dumps({"partitions": items}))

    verified = run(cluster, "reassign", "--verify", "--preserve-throttles", "--reassignment-json-file", str(file))

    assert verified.exit_code == 1
    assert verified.stdout == (
        "PARTITION  STATUS          REPLICAS  TARGET\n"
        "a-0        other replicas  1         2\n"
        "gone-0     unknown                   1\n"
    )


def test_verify_shows_where_replicas_are_that_have_a_log_directory(cluster: FakeCluster, tmp_path: Path) -> None:
    file = tmp_path / "move.json"
    item = {"topic": "a", "partition": 0, "replicas": [1], "log_dirs": ["/memory"]}
    file.write_text(json.dumps({"partitions": [item]}))
    named = ("--reassignment-json-file", str(file))

    executed = run(cluster, "reassign", "--execute", *named)
    verified = run(cluster, "reassign", "--verify", "--preserve-throttles", *named)

    assert "Successfully started moving log directory to /memory for replica a-0-1" in executed.stdout
    assert verified.stdout.endswith("\nREPLICA  LOG DIRECTORY\na-0-1    completed\n")
    file.write_text(json.dumps({"partitions": [item | {"log_dirs": ["/other"]}]}))
    refused = run(cluster, "reassign", "--execute", *named)
    assert refused.exit_code == 1
    assert "LOG_DIR_NOT_FOUND" in refused.stderr


def test_execute_refuses_unknown_nodes_and_partitions_before_it_changes_anything(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    file = tmp_path / "move.json"
    for item, problem in (
        ({"topic": "a", "partition": 0, "replicas": [1, 2]}, "there are no nodes [2], only [1]"),
        ({"topic": "a", "partition": 5, "replicas": [1]}, "there is no partition a-5"),
    ):
        file.write_text(json.dumps({"partitions": [item]}))
        refused = run(cluster, "reassign", "--execute", "--reassignment-json-file", str(file))
        assert refused.exit_code == 1
        assert problem in refused.stderr
        assert "Current" not in refused.stdout


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ((), "Pass exactly one of --generate, --execute, --verify, --cancel, --list, not 0."),
        (("--list", "--verify"), ", not 2."),
        (("--execute",), "--execute needs --reassignment-json-file."),
        (("--generate", "--broker-list", "1"), "--generate needs either --topics or --topics-to-move-json-file."),
        (("--generate", "--topics", "a"), "--generate needs --broker-list."),
        (("--generate", "--topics", "a,a", "--broker-list", "1"), "is not a list of different topics"),
        (("--generate", "--topics", "a", "--broker-list", "1,x"), "is not a list of different node ids"),
        (("--list", "--throttle", "5"), "--throttle can be used with --execute, not with --list"),
        (("--verify", "--additional"), "--additional can be used with --execute, not with --verify"),
        (("--cancel", "--wait"), "--wait can be used with --verify, not with --cancel"),
    ],
)
def test_reassign_options_that_do_not_go_together_are_a_usage_error(
    cluster: FakeCluster, args: tuple[str, ...], problem: str
) -> None:
    found = run(cluster, "reassign", *args)
    assert found.exit_code == 2
    assert problem in found.stderr


def test_elect_leaders_says_what_became_of_each_partition(cluster: FakeCluster, tmp_path: Path) -> None:
    found = run(cluster, "elect-leaders", "--election-type", "preferred", "--topic", "a", "-p", "1", "-p", "0")
    assert (found.exit_code, found.stdout) == (0, "PARTITION  ELECTION\na-0        not needed\na-1        not needed\n")
    found = run(cluster, "elect-leaders", "--election-type", "unclean", "--all-topic-partitions", "-y")
    assert (found.exit_code, found.stdout) == (0, "No partition needs an election.\n")
    file = tmp_path / "partitions.json"
    file.write_text('{"partitions":[{"topic":"b","partition":0},{"topic":"b","partition":4}]}')
    found = run(cluster, "elect-leaders", "--election-type", "preferred", "--path-to-json-file", str(file))
    assert found.exit_code == 1
    assert "b-4        UNKNOWN_TOPIC_OR_PARTITION" in found.stdout
    assert "there is no partition b-4" in found.stderr


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (("--election-type", "preferred"), "exactly one of"),
        (("--election-type", "preferred", "--topic", "a", "--all-topic-partitions"), ", not 2."),
        (("--election-type", "preferred", "--topic", "a"), "--topic and --partition must be given together"),
        (
            ("--election-type", "preferred", "--all-topic-partitions", "-p", "1"),
            "--topic and --partition must be given together",
        ),
        (("--election-type", "maybe", "--all-topic-partitions"), "maybe"),
        (("--all-topic-partitions",), "--election-type"),
    ],
)
def test_elect_leaders_options_that_do_not_go_together_are_a_usage_error(
    cluster: FakeCluster, args: tuple[str, ...], problem: str
) -> None:
    found = run(cluster, "elect-leaders", *args)
    assert found.exit_code == 2
    assert problem in found.stderr


def test_help_names_every_option_and_an_example(cluster: FakeCluster) -> None:
    text = run(cluster, "reassign", "--help").stdout
    for option in (
        "--generate",
        "--execute",
        "--verify",
        "--cancel",
        "--list",
        "--throttle",
        "--broker-list",
        "--wait",
    ):
        assert option in text
    assert "tidelog partition reassign --generate --topics flights" in text


def test_throttles_name_who_is_copied_from_and_who_copies() -> None:
    wanted = {TopicPartition("a", 10): (4, 2), TopicPartition("a", 2): (1, 2), TopicPartition("b", 0): (3,)}
    current = {TopicPartition("a", 10): (1, 2), TopicPartition("a", 2): (2, 1), TopicPartition("b", 0): (4, 3, 5)}
    ongoing = {
        TopicPartition("b", 0): PartitionReassignment((4, 3, 5), (4,), (5,)),
        TopicPartition("c", 1): PartitionReassignment((6, 7), (6,), (7,)),
    }

    moves = moves_of(wanted, current, ongoing)

    assert moves == {
        TopicPartition("a", 10): Move(frozenset({1, 2}), frozenset({4})),
        TopicPartition("a", 2): Move(frozenset({1, 2}), frozenset()),
        TopicPartition("b", 0): Move(frozenset({3, 5}), frozenset()),
        TopicPartition("c", 1): Move(frozenset({7}), frozenset({6})),
    }
    assert throttled_replicas(moves) == {
        "a": {
            "leader.replication.throttled.replicas": "2:1,2:2,10:1,10:2",
            "follower.replication.throttled.replicas": "10:4",
        },
        "b": {"leader.replication.throttled.replicas": "0:3,0:5"},
        "c": {
            "leader.replication.throttled.replicas": "1:7",
            "follower.replication.throttled.replicas": "1:6",
        },
    }
