"""The command line on a cluster of three nodes: replicas compared, groups reset, features shown."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tidelog.admin import AdminClient
from tidelog.testing import LocalCluster
from tidelog_cli.commands import app
from tidelog_foundation.errors import KafkaException

pytestmark = pytest.mark.slow
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=1, nodes=3, config={"offsets.topic.num.partitions": 3}) as running:
        yield running


def run(cluster: LocalCluster, *args: str, stdin: str | None = None) -> Result:
    environment = {"TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers, "COLUMNS": "200"}
    return CliRunner().invoke(app, [*args, "--timeout", "20"], input=stdin, env=environment)


def wait_whole(cluster: LocalCluster) -> None:
    """Wait until ``tidelog cluster health`` finds nothing but a disk that fills: the machine's other files may do that.

    A busy machine may shrink an ISR for a moment.
    """
    deadline = time.monotonic() + DEADLINE_S
    while found := [each for each in health(cluster)[1] if not each["link"].endswith("#tidelogdiskfull")]:
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


def health(cluster: LocalCluster) -> tuple[int, list[dict[str, Any]]]:
    result = run(cluster, "cluster", "health", "--json")
    return result.exit_code, json.loads(result.stdout)["findings"]


def run_json(cluster: LocalCluster, *args: str) -> Any:
    result = run(cluster, *args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_cluster_is_described_with_the_addresses_for_clients_of_kafka(cluster: LocalCluster) -> None:
    nodes = run_json(cluster, "cluster", "describe")["nodes"]
    assert [(n["address"], n["kafka"]) for n in nodes] == [
        (node.address, [node.kafka_address]) for node in cluster.nodes.values()
    ]
    assert ",".join(n["kafka"][0] for n in nodes) == cluster.kafka_bootstrap_servers


def only_log(cluster: LocalCluster, node: int, topic: str) -> Path:
    [log] = (cluster.data_dir / f"node-{node}").glob(f"data/{topic}-0/*.log")
    return log


def test_verify_replicas_finds_the_replica_that_is_not_like_its_leaders(cluster: LocalCluster) -> None:
    assert run(cluster, "topic", "create", "compared", "-p", "1", "-r", "3").exit_code == 0
    assert run(cluster, "produce", "compared", "-X", "linger.ms=0", stdin="one\ntwo\nthree\n").exit_code == 0
    [same] = run_json(cluster, "verify", "replicas", "compared")["partitions"]
    assert (same["result"], same["to_offset"], len(same["replicas"])) == ("same", 3, 3)
    assert same["batches"] >= 1

    leader, *followers = same["replicas"]
    log = only_log(cluster, followers[0], "compared")
    with log.open("r+b") as file:  # As a disk does that changes its mind; the node does not notice.
        file.seek(log.read_bytes().index(b"two"))
        file.write(b"owt")
    result = run(cluster, "verify", "replicas", "compared", "--json")
    assert result.exit_code == 1
    [found] = json.loads(result.stdout)["partitions"]
    assert found["result"] == "different"
    assert f"node {followers[0]} and its leader {leader} at offset " in found["detail"]

    damaged = cluster.nodes[followers[0]]
    damaged.terminate()
    assert damaged.wait(20) == 0
    gone = run(cluster, "verify", "replicas", "compared")
    assert (gone.exit_code, "not compared" in gone.stdout) == (1, True), gone.output
    # When the node starts it finds out, and fetches what it has lost.
    damaged.start()
    cluster.wait_ready()
    assert run(cluster, "verify", "replicas", "compared").exit_code == 0


def test_groups_of_a_cluster_are_described_reset_and_deleted(cluster: LocalCluster) -> None:
    assert run(cluster, "topic", "create", "flights", "-p", "3", "-r", "1").exit_code == 0
    assert run(cluster, "produce", "flights", stdin="".join(f"{n}\n" for n in range(30))).exit_code == 0
    consumed = run(cluster, "consume", "flights", "-g", "audit", "--from-beginning", "-n", "30")
    assert sorted(map(int, consumed.stdout.split())) == list(range(30)), consumed.output
    [group] = run_json(cluster, "group", "describe", "audit")["groups"]
    assert group["state"]["state"] == "Empty"
    assert sum(offset["current_offset"] for offset in group["offsets"]) == 30
    assert {offset["lag"] for offset in group["offsets"]} == {0}

    executed = run(cluster, "group", "reset-offsets", "audit", "--to-earliest", "--all-topics", "--execute", "--yes")
    assert executed.exit_code == 0, executed.output
    [group] = run_json(cluster, "group", "describe", "audit", "--offsets")["groups"]
    assert sum(offset["lag"] for offset in group["offsets"]) == 30
    assert run(cluster, "group", "delete", "audit", "--yes").stdout == "deleted audit\n"
    assert run_json(cluster, "group", "list")["groups"] == []


def test_features_and_settings_of_nodes_are_shown_and_changed(cluster: LocalCluster) -> None:
    levels = {
        feature["feature"]: feature for feature in run_json(cluster, "cluster", "features", "describe")["features"]
    }
    assert levels["metadata.version"]["level"] >= levels["metadata.version"]["min_level"]
    set_all = run(cluster, "config", "set", "log.retention.ms=1000000", "--all-nodes")
    assert (set_all.exit_code, set_all.stdout) == (0, "changed log.retention.ms of all nodes\n")
    described = run(cluster, "config", "describe", "--node", "1", "-k", "log.retention.ms").stdout
    assert "log.retention.ms  1000000  all nodes" in described
    assert run(cluster, "config", "delete", "log.retention.ms", "--all-nodes").exit_code == 0
    refused = run(cluster, "config", "set", "log.retention.ms=x", "--node", "1")
    assert (refused.exit_code, refused.stderr.rstrip().endswith("[INVALID_REQUEST]")) == (1, True)


def test_safe_to_stop_tells_of_the_partitions_that_need_a_node(cluster: LocalCluster) -> None:
    assert run(cluster, "topic", "create", "alone", "-p", "3", "-r", "1").exit_code == 0
    found = run(cluster, "node", "safe-to-stop", "2", "--json")
    document = json.loads(found.stdout)
    assert (found.exit_code, document["safe_to_stop"]) == (1, False)
    [obstacle] = [each for each in document["obstacles"] if each["topic"] == "alone"]
    assert (obstacle["kind"], obstacle["in_sync"], obstacle["required"]) == ("not_redundant", [2], 1)
    text = run(cluster, "node", "safe-to-stop", "2", "--wait").stdout
    assert "2 cannot stop safely" in text
    assert "has no replica to spare, ever" in text
    assert run(cluster, "node", "safe-to-stop", "2", "--ignore-unreplicated", "--wait").exit_code == 0
    assert run(cluster, "node", "safe-to-stop", "77").stderr.endswith("[BROKER_ID_NOT_REGISTERED]\n")
    assert run(cluster, "node", "safe-to-stop", "77", "--controller").stderr.endswith("[VOTER_NOT_FOUND]\n")
    assert run(cluster, "node", "safe-to-stop", "1", "--controller").exit_code == 1


def test_doctor_finds_the_only_controller_and_health_tells_that_nobody_answers(cluster: LocalCluster) -> None:
    found = run(cluster, "cluster", "doctor", "--json")
    document = json.loads(found.stdout)
    assert (found.exit_code, document["status"]) == (1, "warning")
    assert "single point of failure" in {each["object"]: each["text"] for each in document["findings"]}["quorum"]
    # All processes run on this machine in this version, and gave an account of themselves.
    assert not {"versions", "this machine's clock", "node 2", "controller 1"} & {
        each["object"] for each in document["findings"] if "files may be open" not in each["text"]
    }
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        node, controller = (admin.describe_process(1, is_controller=each).result(20) for each in (False, True))
        with pytest.raises(KafkaException, match="99"):
            admin.describe_process(99).result(20)
    assert [d.path for d in node.directories] == [str(cluster.data_dir / "node-1" / "data")]
    assert [d.path for d in controller.directories] == [str(cluster.data_dir / "controller-1" / "data")]
    for described in (node, controller):
        assert abs(described.clock_offset_s) <= described.clock_error_s
        assert described.features["metadata.version"].applied_level == described.features["metadata.version"].max_level
        assert {each.resource for each in described.resources} == {"open_files", "threads", "memory_maps"}
        assert all(each.used > 0 for each in described.resources)
    nobody = CliRunner().invoke(app, ["cluster", "health", "--json", "-b", "127.0.0.1:1", "--timeout", "1"])
    assert (nobody.exit_code, json.loads(nobody.stdout)["status"]) == (3, "unknown")


def test_unregister_removes_a_node_that_is_gone(cluster: LocalCluster) -> None:
    assert "Refusing to unregister node 9" in run(cluster, "cluster", "unregister", "9").stderr
    assert run(cluster, "cluster", "unregister", "9", "--yes").stderr.endswith("[BROKER_ID_NOT_REGISTERED]\n")
    gone = cluster.nodes[3]
    wait_whole(cluster)
    gone.stop()
    exit_code, findings = health(cluster)
    assert exit_code == max({"warning": 1, "critical": 2}[each["severity"]] for each in findings)
    [fenced] = [each for each in findings if each["object"] == "node 3"]
    assert fenced["link"].endswith("#tidelognodefenced")
    assert run_json(cluster, "cluster", "unregister", "3", "--yes") == {"node": 3, "registered": False}
    assert [node["node"] for node in run_json(cluster, "cluster", "describe")["nodes"]] == [1, 2]
    gone.start()
    cluster.wait_ready()
    assert [node["node"] for node in run_json(cluster, "cluster", "describe")["nodes"]] == [1, 2, 3]
