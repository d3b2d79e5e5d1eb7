"""A cluster that grows and shrinks under load: rebalance, drain, unregister; nothing acknowledged is lost (KIP-455)."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator

import pytest
from acknowledged import Load, assert_nothing_lost, read_topic, wait_for
from typer.testing import CliRunner, Result

from tidelog import AdminClient, Producer
from tidelog.admin import ConfigResource, NewPartitionReassignment, NewPartitions, NewTopic, ResourceType
from tidelog.message import TopicPartition
from tidelog.testing import LocalCluster
from tidelog_cli.commands import app
from tidelog_foundation.errors import KafkaException

PARTITIONS = 6
NEW = 4


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Three nodes, and a fourth one that has not been added yet."""
    with LocalCluster(controllers=1, nodes=4) as running:
        running.nodes[NEW].stop()
        run(running, "cluster", "unregister", str(NEW), "--yes")
        yield running


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as client:
        yield client


def run(cluster: LocalCluster, *args: str, code: int = 0) -> Result:
    found = CliRunner().invoke(app, [*args, "-b", cluster.bootstrap_servers])
    assert found.exit_code == code, found.output
    return found


def at(cluster: LocalCluster) -> list[str]:
    return ["-b", cluster.bootstrap_servers]


def replicas(admin: AdminClient, topic: str) -> list[list[int]]:
    found = admin.describe_topics([topic])[topic].result(20).partitions
    return [[node.id for node in p.replicas] for p in sorted(found, key=lambda p: p.id)]


def leaders(admin: AdminClient, topic: str) -> Counter[int]:
    found = admin.describe_topics([topic])[topic].result(20).partitions
    return Counter(p.leader.id for p in found if p.leader)


def create(admin: AdminClient, topic: str, *assignment: list[int]) -> None:
    config = {"min.insync.replicas": str(min(2, len(assignment[0]))), "file.delete.delay.ms": "100"}
    new = NewTopic(topic, replica_assignment=list(assignment), config=config)
    admin.create_topics([new])[topic].result(20)


def test_node_is_added_filled_drained_and_unregistered_under_load(cluster: LocalCluster, admin: AdminClient) -> None:
    create(admin, "orders", *([1 + (i + j) % 3 for j in range(3)] for i in range(PARTITIONS)))
    with Load(cluster.bootstrap_servers, "orders", records_per_s=500) as load:
        load.wait_for_progress(100)
        cluster.nodes[NEW].start()
        cluster.wait_ready()
        planned = json.loads(run(cluster, "cluster", "rebalance", "--plan", "--json").stdout)
        assert {node for move in planned["moves"] for node in set(move["target"]) - set(move["replicas"])} == {NEW}
        run(cluster, "cluster", "rebalance", "--execute")
        assert {len([r for r in replicas(admin, "orders") if n in r]) for n in (1, 2, 3, NEW)} <= {4, 5}
        assert max(leaders(admin, "orders").values()) <= 2
        assert "Nothing to do" in run(cluster, "cluster", "rebalance", "--plan").stdout

        refused = run(cluster, "node", "unregister", "3", "--yes", code=1)
        assert "node 3 is running: stop it first" in refused.stderr
        run(cluster, "node", "drain", "3", "--wait")
        assert not any(3 in chosen for chosen in replicas(admin, "orders"))
        admin.create_topics([NewTopic("late", 12, 3)])["late"].result(20)
        assert {node for chosen in replicas(admin, "late") for node in chosen} == {1, 2, NEW}
        assert "node 3: it is cordoned" in CliRunner().invoke(app, ["cluster", "doctor", *at(cluster)]).stdout
        planned = json.loads(run(cluster, "cluster", "rebalance", "--plan", "--json").stdout)
        assert all(3 not in move["target"] for move in planned["moves"])
        first = TopicPartition("late", 0)
        onto_it = admin.alter_partition_reassignments({first: NewPartitionReassignment((1, 2, 3))})[first]
        with pytest.raises(KafkaException, match="cordoned"):
            onto_it.result(20)
        assert "node 3 gets replicas again" in run(cluster, "node", "drain", "3", "--cancel").stdout
        admin.create_partitions([NewPartitions("late", 16)])["late"].result(20)
        assert any(3 in chosen for chosen in replicas(admin, "late"))
        admin.delete_topics(["late"])["late"].result(20)
        run(cluster, "node", "drain", "3", "--wait")
        assert not cluster.nodes[3].stop()
        run(cluster, "node", "unregister", "3", "--yes")
        assert 3 not in {node.id for node in admin.describe_cluster().result(20).nodes}
        impossible = run(cluster, "node", "drain", "2", code=1)
        assert "orders-0" in impossible.stderr
        assert "its replication factor is 3, and 2 running nodes would remain" in impossible.stderr
    assert_nothing_lost(load, read_topic(cluster.bootstrap_servers, "orders", PARTITIONS))


def test_rebalance_that_is_stopped_keeps_what_is_done_and_continues(cluster: LocalCluster, admin: AdminClient) -> None:
    create(admin, "heavy", [1], [1], [1])
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        for index in range(300):
            producer.produce("heavy", bytes(10_000), partition=index % 3)
    outcome: list[Result] = []
    args = ["cluster", "rebalance", "--execute", "--throttle", "1000", "--goals", "replicas", "--concurrency", "1"]
    thread = threading.Thread(
        target=lambda: outcome.append(CliRunner().invoke(app, [*args, "-b", cluster.bootstrap_servers]))
    )
    thread.start()
    wait_for(lambda: bool(admin.list_partition_reassignments().result(20)), "the moves to begin")
    stopped = json.loads(run(cluster, "cluster", "rebalance", "--stop", "--json").stdout)
    thread.join(60)
    assert stopped["cancelled"]
    assert outcome[0].exit_code == 1
    assert "were cancelled or replaced" in outcome[0].stderr
    assert replicas(admin, "heavy") == [[1], [1], [1]]
    configs = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "heavy")])
    (settings,) = (future.result(20) for future in configs.values())
    assert not settings["leader.replication.throttled.replicas"].value
    run(cluster, "cluster", "rebalance", "--execute", "--goals", "replicas")
    assert sorted(node for (node,) in replicas(admin, "heavy")) == [1, 2, NEW]
    assert "nothing is in progress" in run(cluster, "cluster", "rebalance", "--watch").stdout
