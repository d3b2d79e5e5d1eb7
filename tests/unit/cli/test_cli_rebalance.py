"""``tidelog cluster rebalance`` and ``tidelog node`` on one node: output, refusals, options that go together."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from tidelog.testing import FakeCluster
from tidelog_cli.balance.scraping import sent_bytes
from tidelog_cli.commands import app


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("a", 2)
        yield running


def run(cluster: FakeCluster, *args: str) -> Result:
    environment = {"TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "COLUMNS": "200"}
    return CliRunner().invoke(app, [*args], env=environment)


def test_plan_shows_the_nodes_and_nothing_to_do(cluster: FakeCluster) -> None:
    found = run(cluster, "cluster", "rebalance", "--plan", "--sample", "1")
    assert found.exit_code == 0, found.output
    header, row, _, verdict = found.stdout.splitlines()
    assert header.split() == ["NODE", "RACK", "STATE", "DISK", "AFTER", "REPLICAS", "AFTER", "LEADERS", "AFTER"]
    assert row.split()[:3] + row.split()[-4:] == ["1", "-", "available", "2", "2", "2", "2"]
    assert verdict == "Nothing to do: the cluster is as planned."
    document = json.loads(run(cluster, "cluster", "rebalance", "--plan", "--json").stdout)
    assert document["moves"] == document["obstacles"] == []
    assert document["nodes"][0]["after"]["replicas"] == 2


def test_execute_watch_and_stop_without_moves_say_so(cluster: FakeCluster) -> None:
    assert run(cluster, "cluster", "rebalance", "--execute").stdout == "Nothing to do: the cluster is as planned.\n"
    assert run(cluster, "cluster", "rebalance", "--watch").stdout.endswith(
        "0 moves complete; nothing is in progress.\n"
    )
    assert run(cluster, "cluster", "rebalance", "--stop").stdout == "cancelled 0 moves\n"


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ((), "Pass exactly one of --plan, --execute, --watch, --stop, not 0."),
        (("--plan", "--stop"), "not 2."),
        (("--plan", "--goals", "disk,speed"), '"disk,speed" is not a list of different goals of disk, replicas'),
        (("--plan", "--metrics", "http://x"), "--metrics needs --sample."),
        (("--plan", "--threshold", "101"), "101"),
    ],
)
def test_wrong_usage_of_rebalance_is_named(cluster: FakeCluster, args: tuple[str, ...], problem: str) -> None:
    found = run(cluster, "cluster", "rebalance", *args)
    assert found.exit_code == 2
    assert problem in " ".join(found.stderr.split())


@pytest.mark.parametrize(
    ("args", "code", "problem"),
    [
        (
            ("drain", "1"),
            1,
            "node 1 cannot be drained. partitions a-0, a-1: its replication factor is 1, and 0 running",
        ),
        (("drain", "9"), 1, "there is no node 9, only 1"),
        (("drain", "1", "--throttle", "5"), 2, "--throttle needs --wait"),
        (("unregister", "1", "--yes"), 1, "node 1 is running: stop it first"),
        (("unregister", "9", "--yes"), 1, "Broker ID 9 is not currently registered"),
    ],
)
def test_impossible_requests_for_a_node_are_refused(
    cluster: FakeCluster, args: tuple[str, ...], code: int, problem: str
) -> None:
    found = run(cluster, "node", *args)
    assert found.exit_code == code, found.output
    assert problem in found.stderr


def test_bytes_sent_are_read_from_a_page_of_metrics() -> None:
    page = (
        "# TYPE tidelog_topic_sent_bytes counter\n"
        'tidelog_topic_sent_bytes_total{topic="a"} 5.0\n'
        'tidelog_topic_sent_bytes_total{topic="b"} 7.0\n'
        "# TYPE tidelog_other counter\n"
        'tidelog_other_total{topic="a"} 1.0\n'
    )
    assert sent_bytes(page) == {"a": 5, "b": 7}
