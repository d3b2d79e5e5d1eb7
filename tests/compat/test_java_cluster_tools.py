"""Kafka's own shell tools on what only an operator sees: records deleted, replicas moved, leaders, quorum, features."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from compat.clients.all import client
from compat.clients.client import wait_for
from compat.clients.record import CODECS, Record
from compat.cluster import NODES, Deployment
from compat.java_tools import Shell, run

from tidelog.testing import LocalCluster

pytestmark = pytest.mark.compat


@pytest.fixture
def shell(cluster: Deployment) -> Shell:
    return Shell(cluster.servers)


@pytest.fixture
def topic(cluster: Deployment, name: str) -> str:
    """A partition on all nodes, with ten records."""
    cluster.create(name, 1, replicas=NODES)
    client("confluent-kafka").produce(cluster.servers, name, [Record(b"value %d" % n, partition=0) for n in range(10)])
    return name


def written(path: Path, content: object) -> str:
    path.write_text(json.dumps(content))
    return str(path)


def test_kafka_delete_records(shell: Shell, topic: str, tmp_path: Path) -> None:
    until = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 6}]}
    said = shell("kafka-delete-records", "--offset-json-file", written(tmp_path / "offsets.json", until))
    assert "low_watermark: 6" in said
    assert shell("kafka-get-offsets", "--topic", topic, "--time", "earliest").split() == [f"{topic}:0:6"]


def test_kafka_log_dirs(shell: Shell, topic: str) -> None:
    said = shell("kafka-log-dirs", "--describe", "--topic-list", topic)
    [line] = [line for line in said.splitlines() if line.startswith("{")]
    brokers = json.loads(line)["brokers"]
    assert [broker["broker"] for broker in brokers] == list(range(1, NODES + 1))
    for broker in brokers:
        [partition] = [p for log_dir in broker["logDirs"] for p in log_dir["partitions"]]
        assert partition["partition"] == f"{topic}-0"
        assert (partition["size"] > 0, partition["offsetLag"], partition["isFuture"]) == (True, 0, False)


def test_kafka_leader_election_puts_the_preferred_replica_back(shell: Shell, cluster: Deployment, topic: str) -> None:
    preferred = cluster.partition(topic).replicas[0]
    assert cluster.kill_leader(topic) == preferred
    wait_for(lambda: cluster.partition(topic).leader not in (preferred, -1), "another leader")
    cluster.bring_back(preferred, topic)
    elect = ("kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert re.search(rf"{topic}-0", shell(*elect))
    wait_for(lambda: cluster.partition(topic).leader == preferred, "the preferred leader")
    assert "Valid replica already elected" in shell(*elect)


def test_kafka_reassign_partitions(shell: Shell, cluster: Deployment, name: str, tmp_path: Path) -> None:
    topic = cluster.create(name, 1, replicas=1)
    client("confluent-kafka").produce(cluster.servers, topic, [Record(b"x" * 1000, partition=0) for _ in range(100)])
    [old] = cluster.partition(topic).replicas
    target = sorted({1, 2, 3} - {old})
    move = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": target}]}
    plan = ("kafka-reassign-partitions", "--reassignment-json-file", written(tmp_path / "move.json", move))
    assert f"Successfully started partition reassignment for {topic}-0" in shell(*plan, "--execute")
    wait_for(lambda: cluster.partition(topic).replicas == tuple(target), "the new replicas")
    assert f"Reassignment of partition {topic}-0 is completed" in shell(*plan, "--verify")
    assert "No partition reassignments found" in shell("kafka-reassign-partitions", "--list")
    wanted = {"version": 1, "topics": [{"topic": topic}]}
    generate = ("--topics-to-move-json-file", written(tmp_path / "topics.json", wanted), "--broker-list", "1,2,3")
    assert "Proposed partition reassignment" in shell("kafka-reassign-partitions", *generate, "--generate")


def test_kafka_reassign_partitions_with_a_throttle(
    shell: Shell, cluster: Deployment, name: str, tmp_path: Path
) -> None:
    """The tool sets the throttles before, and takes them away when the move is verified."""
    topic = cluster.create(name, 1, replicas=1)
    [old] = cluster.partition(topic).replicas
    move = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [old % NODES + 1]}]}
    plan = ("kafka-reassign-partitions", "--reassignment-json-file", written(tmp_path / "move.json", move))
    shell(*plan, "--execute", "--throttle", "10000000")
    wait_for(lambda: cluster.partition(topic).replicas == (old % NODES + 1,), "the new replica")
    said = shell(*plan, "--verify")
    assert "Clearing broker-level throttles" in said
    assert "Clearing topic-level throttles" in said
    assert "throttled" not in shell("kafka-configs", "--entity-type", "topics", "--entity-name", topic, "--describe")


def test_kafka_metadata_quorum(shell: Shell) -> None:
    status = shell("kafka-metadata-quorum", "describe", "--status")
    found = dict(re.findall(r"^(\w+):\s+(.*)$", status, re.MULTILINE))
    assert int(found["LeaderId"]) > 0
    assert int(found["LeaderEpoch"]) > 0
    assert int(found["HighWatermark"]) > 0
    replication = shell("kafka-metadata-quorum", "describe", "--replication").splitlines()
    assert replication[0].split()[0] == "NodeId"
    assert [line.split()[-1] for line in replication[1:]].count("Leader") == 1


def test_kafka_metadata_quorum_removes_no_controller_that_has_no_vote(shell: Shell) -> None:
    unknown = ("--controller-id", "99", "--controller-directory-id", "AAAAAAAAAAAAAAAAAAAAAQ")
    done = shell.ended("kafka-metadata-quorum", "remove-controller", *unknown)
    assert done.code == 1
    assert "VoterNotFoundException" in done.said


def test_kafka_metadata_quorum_adds_and_removes_a_controller(tmp_path: Path) -> None:
    quorum = "kafka-metadata-quorum"
    with LocalCluster(controllers=1, nodes=1) as cluster:
        shell, added = Shell(cluster.kafka_bootstrap_servers), cluster.add_controller()

        def status() -> dict[str, str]:
            return dict(re.findall(r"^(\w+):\s+(.*)$", shell(quorum, "describe", "--status"), re.MULTILINE))

        wait_for(lambda: '"id": 2' in status()["CurrentObservers"], "the observer", timeout_s=60)
        [observer] = json.loads(status()["CurrentObservers"])
        directory_id = observer["directoryId"]
        settings = _controller_settings(tmp_path, cluster.cluster_id, directory_id, added.address)
        add = (quorum, "--command-config", settings, "add-controller")
        named = f"controller 2 with directory id {directory_id}"
        assert f"Added {named} and endpoints: GRPC://{added.address}" in shell(*add)
        assert [voter["id"] for voter in json.loads(status()["CurrentVoters"])] == [1, 2]
        again = shell.ended(*add)
        assert again.code == 1
        assert "DuplicateVoterException" in again.said
        remove = ("remove-controller", "--controller-id", "2", "--controller-directory-id", directory_id)
        assert f"Removed  KRaft {named}" in shell(quorum, *remove)
        assert [voter["id"] for voter in json.loads(status()["CurrentVoters"])] == [1]
        assert cluster.failures == []


def _controller_settings(folder: Path, cluster_id: str, directory_id: str, address: str) -> str:
    """Write what the tool reads of the controller that it adds: Kafka's own files, which Tidelog has no use for."""
    metadata = {"version": 1, "cluster.id": cluster_id, "node.id": 2, "directory.id": directory_id}
    _write_properties(folder / "meta.properties", metadata)
    listeners = {"controller.listener.names": "GRPC", "listeners": f"GRPC://{address}", "metadata.log.dir": folder}
    return _write_properties(
        folder / "controller.properties", {"node.id": 2, "process.roles": "controller", **listeners}
    )


def _write_properties(path: Path, properties: Mapping[str, object]) -> str:
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return str(path)


def test_kafka_features(shell: Shell) -> None:
    said = shell("kafka-features", "describe")
    features = dict(re.findall(r"^Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", said, re.MULTILINE))
    assert "metadata.version" in features
    refused = shell.ended("kafka-features", "upgrade", "--feature", "no.such=7")
    assert refused.code == 1
    assert "Could not upgrade no.such to 7." in refused.said


def test_kafka_cluster(cluster: Deployment) -> None:
    done = run("kafka-cluster", "cluster-id", "--bootstrap-server", cluster.servers)
    assert done.code == 0, done.said
    assert re.fullmatch(r"Cluster ID: \S+", done.out.strip())
    listed = run("kafka-cluster", "list-endpoints", "--bootstrap-server", cluster.servers)
    assert listed.code == 0, listed.said
    rows = [line.split() for line in listed.out.splitlines()[1:]]
    assert sorted(f"{row[1]}:{row[2]}" for row in rows) == sorted(cluster.servers.split(","))


def test_kafka_broker_api_versions(shell: Shell) -> None:
    """The tool lists what each broker serves; what it knows and the broker does not is UNSUPPORTED."""
    said = shell("kafka-broker-api-versions")
    assert len(re.findall(r"^\S+:\d+ \(id: \d+ rack: \S+.*\) -> \(", said, re.MULTILINE)) == NODES
    assert "ERROR" not in said
    for api in ("Produce(0): 0 to", "Fetch(1): 4 to", "ApiVersions(18): 0 to 4"):
        assert said.count(api) == NODES


def test_kafka_groups(shell: Shell, topic: str) -> None:
    read = ("--topic", topic, "--from-beginning", "--max-messages", "10", "--timeout-ms", "30000", "--group", topic)
    shell("kafka-console-consumer", *read)
    rows = [line.split() for line in shell("kafka-groups", "--list").splitlines()]
    assert [topic, "Classic", "consumer"] in rows


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_dump_log_reads_the_log_of_a_node(cluster: Deployment, name: str, codec: str) -> None:
    topic = cluster.create(name, 1, replicas=1)
    records = [Record(b"v" * 500 + b"%d" % n, b"k%d" % n, partition=0) for n in range(50)]
    client("confluent-kafka").produce(cluster.servers, topic, records, codec)
    [log] = [path for path in cluster.data.rglob(f"{topic}-0/*.log") if path.stat().st_size]
    done = run("kafka-dump-log", "--files", str(log), "--deep-iteration", "--print-data-log")
    assert done.code == 0, done.said
    assert f"compresscodec: {codec} " in done.out
    assert "isvalid: false" not in done.out
    assert len(re.findall(r"payload: v{500}\d+$", done.out, re.MULTILINE)) == 50


def test_kafka_acls_says_that_there_is_no_authorizer(shell: Shell) -> None:
    for action in (["--list"], ["--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t"]):
        ended = shell.ended("kafka-acls", *action)
        assert "SecurityDisabledException: No Authorizer is configured" in ended.said


@pytest.mark.parametrize(
    ("entity", "quota", "described"),
    [
        (("users", "alice"), "producer_byte_rate=1024", "user-principal 'alice'"),
        (("clients", "reports"), "request_percentage=12.5", "client-id 'reports'"),
        (("ips", "10.0.0.1"), "connection_creation_rate=7", "ip '10.0.0.1'"),
    ],
)
def test_kafka_configs_sets_describes_and_deletes_quotas(
    shell: Shell, entity: tuple[str, str], quota: str, described: str
) -> None:
    kind, name = entity
    named = ("kafka-configs", "--entity-type", kind, "--entity-name", name)
    key, _, value = quota.partition("=")
    assert "Completed updating config" in shell(*named, "--alter", "--add-config", quota)
    said = shell(*named, "--describe")
    assert described in said
    assert f"{key}={float(value)}" in said
    assert "Completed updating config" in shell(*named, "--alter", "--delete-config", key)
    assert key not in shell(*named, "--describe")


def test_kafka_configs_sets_default_quotas(shell: Shell) -> None:
    default = ("kafka-configs", "--entity-type", "users", "--entity-default")
    shell(*default, "--alter", "--add-config", "consumer_byte_rate=1048576")
    assert "consumer_byte_rate=1048576.0" in shell(*default, "--describe")
    shell(*default, "--alter", "--delete-config", "consumer_byte_rate")
