"""The operator, installed with Helm: it creates a cluster, repairs it, restarts it under load, and changes its size."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator

import pytest
from kubernetes_writer import PARTITIONS, Writer, Written
from operated_kubernetes import POOL, OperatedCluster, operated_cluster

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm, which installs the operator"),
]

LONGEST_WRITE_S = float(os.environ.get("TIDELOG_LONGEST_WRITE_S", "0.5"))
"""The bound of a write during a rolling restart, on machines that have cores to spare."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[OperatedCluster]:
    with operated_cluster() as created:
        created.create("Tidelog", "tidelog", {"controllers": POOL, "nodes": {**POOL, "sharedMachines": True}})
        created.wait_ready("tidelog", "tidelog")
        created.start_client()
        yield created


@pytest.fixture(scope="module")
def writer(cluster: OperatedCluster) -> Writer:
    created = Writer(cluster)
    created.create_topic()
    return created


def check(writer: Writer, written: Written) -> None:
    """Hold the topic to the acknowledgements."""
    assert written.failures == []
    found = writer.read()
    lost = set(written.acknowledged) - set(found)
    assert not lost, f"{len(lost)} acknowledged records are lost"


def test_status_names_the_cluster_and_its_addresses(cluster: OperatedCluster) -> None:
    status = cluster.get("tidelog", "tidelog")["status"]
    assert status["clusterId"] == "tidelog"
    assert status["bootstrapServers"] == f"tidelog.{cluster.namespace}.svc:9094"
    assert (status["controllers"]["ready"], status["nodes"]["ready"]) == ("3/3", "3/3")


def test_deleted_and_changed_objects_are_repaired(cluster: OperatedCluster) -> None:
    cluster.kubectl("delete", "poddisruptionbudget", "tidelog-node")
    cluster.patch("service", "tidelog", {"selector": {"app.kubernetes.io/component": "quorum"}})
    cluster.wait_for(lambda: "poddisruptionbudget" in cluster.kubectl("get", "pdb", "-o", "name"), "a budget")
    cluster.wait_for(lambda: "tidelog-node" in cluster.kubectl("get", "pdb", "-o", "name"), "the deleted budget")

    def component() -> str:
        return str(cluster.get("service", "tidelog")["spec"]["selector"]["app.kubernetes.io/component"])

    cluster.wait_for(lambda: component() == "node", "the selector of the service")


def test_setting_that_no_process_knows_restarts_nothing(cluster: OperatedCluster) -> None:
    before = cluster.revisions("node")
    cluster.patch("tidelog", "tidelog", {"nodes": {"config": {"replica.lag.max.ms": "1"}}})
    cluster.wait_for(lambda: cluster.condition("tidelog", "tidelog")[1] == "InvalidConfiguration", "a refusal")
    cluster.patch("tidelog", "tidelog", {"nodes": {"config": {"replica.lag.max.ms": None}}})
    cluster.wait_ready("tidelog", "tidelog")
    assert cluster.revisions("node") == before


def test_topic_is_created_repaired_grown_and_deleted(cluster: OperatedCluster) -> None:
    spec = {"cluster": "tidelog", "partitions": 2, "replicas": 3, "config": {"retention.ms": 3600000}}
    cluster.create("TidelogTopic", "orders", spec)
    cluster.wait_ready("tidelogtopic", "orders")
    assert json.loads(cluster.run(_TOPIC, "orders")) == [2, {"retention.ms": "3600000"}]
    cluster.run(_DRIFT, "orders")
    wanted = [3, {"retention.ms": "3600000"}]
    cluster.patch("tidelogtopic", "orders", {"partitions": 3})
    cluster.wait_for(lambda: json.loads(cluster.run(_TOPIC, "orders")) == wanted, "the topic as wanted")
    with pytest.raises(AssertionError, match="partitions cannot become fewer"):
        cluster.patch("tidelogtopic", "orders", {"partitions": 1})
    cluster.create("TidelogTopic", "kept", {"cluster": "tidelog", "deletionPolicy": "Keep"})
    cluster.wait_ready("tidelogtopic", "kept")
    cluster.kubectl("delete", "tidelogtopic", "orders", "kept", "--timeout=120s")
    topics = json.loads(cluster.run(_TOPICS))
    assert "orders" not in topics
    assert "kept" in topics


def test_refused_topic_says_why(cluster: OperatedCluster) -> None:
    cluster.create("TidelogTopic", "wide", {"cluster": "tidelog", "replicas": 9})
    cluster.wait_for(lambda: cluster.condition("tidelogtopic", "wide")[1] == "ClusterRefused", "a refusal")
    assert "INVALID_REPLICATION_FACTOR" in cluster.condition("tidelogtopic", "wide")[2]
    cluster.kubectl("delete", "tidelogtopic", "wide", "--timeout=120s")


def test_user_gets_a_password_and_quotas_and_goes(cluster: OperatedCluster) -> None:
    cluster.create("TidelogUser", "alice", {"cluster": "tidelog", "quotas": {"producerByteRate": 1048576}})
    cluster.wait_ready("tideloguser", "alice")
    assert set(cluster.get("secret", "alice")["data"]) == {"username", "password", "sasl.jaas.config"}
    assert json.loads(cluster.run(_USER, "alice")) == [True, {"producer_byte_rate": 1048576.0}]
    cluster.kubectl("delete", "tideloguser", "alice", "--timeout=120s")
    assert json.loads(cluster.run(_USER, "alice")) == [False, {}]


@pytest.mark.parametrize("pool", ["nodes", "controllers"])
def test_changed_setting_rolls_under_load(cluster: OperatedCluster, writer: Writer, pool: str) -> None:
    role = {"nodes": "node", "controllers": "quorum"}[pool]
    setting = {"nodes": {"replica.lag.time.max.ms": 20000}, "controllers": {"broker.session.timeout.ms": 12000}}[pool]
    before = cluster.revisions(role)
    with writer:
        cluster.patch("tidelog", "tidelog", {pool: {"config": setting}})
        cluster.wait_ready("tidelog", "tidelog")
        written = writer.stop()
    print(
        f"\n{pool}: {len(written.acknowledged)} writes, the longest {written.longest_s:.3f} s, load {os.getloadavg()}"
    )
    assert not before & cluster.revisions(role)
    check(writer, written)
    assert written.longest_s <= LONGEST_WRITE_S


def test_rebalance_waits_for_approval_and_moves_what_was_planned(cluster: OperatedCluster) -> None:
    cluster.create("TidelogTopic", "uneven", {"cluster": "tidelog", "partitions": 6, "replicas": 1})
    cluster.wait_ready("tidelogtopic", "uneven")
    cluster.run(_CROWD, "uneven")
    cluster.create("TidelogRebalance", "even", {"cluster": "tidelog", "goals": ["replicas"]})

    def state() -> str:
        return str(cluster.get("tidelogrebalance", "even").get("status", {}).get("state"))

    cluster.wait_for(lambda: state() == "ProposalReady", "a plan")
    assert cluster.get("tidelogrebalance", "even")["status"]["plan"]["moves"] >= 1
    assert json.loads(cluster.run(_LEADERS, "uneven")) == [101]
    cluster.kubectl("annotate", "tidelogrebalance", "even", "tidelog.dev/rebalance=approve")
    cluster.wait_for(lambda: state() == "Ready", "the end of the moves")
    assert json.loads(cluster.run(_LEADERS, "uneven")) == [101, 102, 103]
    assert "tidelog.dev/rebalance" not in cluster.get("tidelogrebalance", "even")["metadata"].get("annotations", {})
    cluster.kubectl("delete", "tidelogrebalance/even", "tidelogtopic/uneven", "--timeout=120s")


def test_fewer_nodes_than_replicas_are_refused(cluster: OperatedCluster, writer: Writer) -> None:
    cluster.patch("tidelog", "tidelog", {"nodes": {"replicas": 2}})
    cluster.wait_for(lambda: cluster.condition("tidelog", "tidelog")[0] == "False", "a refusal")
    assert cluster.condition("tidelog", "tidelog")[1] in ("InvalidConfiguration", "ScalingRefused")
    cluster.patch("tidelog", "tidelog", {"nodes": {"replicas": 3}})
    cluster.wait_ready("tidelog", "tidelog")
    assert writer.in_sync() == [3] * PARTITIONS


def test_node_comes_and_goes_and_no_record_is_lost(cluster: OperatedCluster, writer: Writer) -> None:
    with writer:
        cluster.patch("tidelog", "tidelog", {"nodes": {"replicas": 4}})
        cluster.wait_ready("tidelog", "tidelog")
        cluster.run(_MOVE_TO_NEW_NODE)
        cluster.patch("tidelog", "tidelog", {"nodes": {"replicas": 3}})
        cluster.wait_ready("tidelog", "tidelog")
        written = writer.stop()
    check(writer, written)
    assert writer.in_sync() == [3] * PARTITIONS
    assert json.loads(cluster.run(_NODES)) == [101, 102, 103]


_MOVE_TO_NEW_NODE = f"""
with AdminClient(servers) as admin:
    moves = {{TopicPartition("written", p): NewPartitionReassignment([104, 101, 102]) for p in range({PARTITIONS})}}
    for future in admin.alter_partition_reassignments(moves).values():
        future.result(120)
"""
_TOPICS = """
with AdminClient(servers) as admin:
    print(json.dumps(list(admin.list_topics(timeout=60).topics)))
"""
_TOPIC = """
with AdminClient(servers) as admin:
    found = admin.describe_topics([sys.argv[1]])[sys.argv[1]].result(60)
print(json.dumps([len(found.partitions), found.config]))
"""
_DRIFT = """
entries = [("retention.ms", "1"), ("max.message.bytes", "2000000")]
entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in entries]
with AdminClient(servers) as admin:
    resource = ConfigResource(ResourceType.TOPIC, sys.argv[1], incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(60)
"""
_USER = """
with AdminClient(servers) as admin:
    users = admin.describe_user_scram_credentials().result(60)
    quotas = admin.describe_client_quotas(ClientQuotaFilter.all()).result(60)
print(json.dumps([sys.argv[1] in users, quotas.get(ClientQuotaEntity({"user": sys.argv[1]}), {})]))
"""
_CROWD = """
with AdminClient(servers) as admin:
    moves = {TopicPartition(sys.argv[1], p): NewPartitionReassignment([101]) for p in range(6)}
    for future in admin.alter_partition_reassignments(moves).values():
        future.result(120)
    import time
    while admin.list_partition_reassignments().result(60):
        time.sleep(0.2)
"""
_LEADERS = """
with AdminClient(servers) as admin:
    found = admin.describe_topics([sys.argv[1]])[sys.argv[1]].result(60)
print(json.dumps(sorted({p.replicas[0].id for p in found.partitions})))
"""
_NODES = """
with AdminClient(servers) as admin:
    print(json.dumps(sorted(node.id for node in admin.describe_cluster().result(60).nodes)))
"""
