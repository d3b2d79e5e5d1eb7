"""A quorum that is lost begins again: from a backup, or with one surviving controller. No committed record is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from acknowledged import Load, assert_nothing_lost, create_topic, isr_sizes, read_topic, wait_for
from typer.testing import CliRunner

from tidelog import AdminClient, Producer
from tidelog.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tidelog.testing import LocalCluster
from tidelog.testing.process import PROPERTIES_FILE, ProcessHandle
from tidelog_cli.commands import app
from tidelog_cli.tools.log import app as log_app
from tidelog_node.tools.log_files import FileKind, files_of, partitions_of
from tidelog_node.tools.segment_scan import SegmentScan

TOPIC, LATER = "orders", "later"
PARTITIONS = 3
Start = Callable[[int, int], LocalCluster]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a cluster of so many controllers and nodes with a topic, all of whose ISRs are whole."""
    running: list[LocalCluster] = []

    def begin(controllers: int, nodes: int) -> LocalCluster:
        config = {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 3}
        cluster = LocalCluster(controllers, nodes, tmp_path / "cluster", config)
        running.append(cluster.__enter__())
        create_topic(cluster, TOPIC, PARTITIONS, nodes, min_insync_replicas=str(max(1, nodes - 1)))
        return cluster

    yield begin
    for cluster in running:
        cluster.close()


def invoke(*args: str) -> str:
    result = CliRunner().invoke(app, [*args])
    assert result.exit_code == 0, result.output
    return result.stdout


def back_up(cluster: LocalCluster, path: Path) -> None:
    written = json.loads(invoke("quorum", "backup", str(path), "--json", "-b", cluster.bootstrap_servers))
    assert written["cluster_id"] == cluster.cluster_id
    assert written["bytes"] == path.stat().st_size


def stop_nodes(cluster: LocalCluster) -> None:
    for node in cluster.nodes.values():
        node.terminate()
    for node in cluster.nodes.values():
        node.wait_or_kill(20)


def lose(controller: ProcessHandle) -> None:
    """Kill a controller and erase its disk."""
    controller.kill()
    shutil.rmtree(controller.directory / "data")


def properties(process: ProcessHandle) -> str:
    return str(process.directory / PROPERTIES_FILE)


def inventories(cluster: LocalCluster, folder: Path) -> list[str]:
    """Write the inventory of each node, and return the options that name the files."""
    options = []
    for node in cluster.nodes.values():
        found = CliRunner().invoke(log_app, ["replicas", "--json", str(node.directory / "data")])
        assert found.exit_code == 0, found.output
        path = folder / f"node-{node.id}.json"
        path.write_text(found.stdout)
        options += ["--replicas", str(path)]
    return options


def producer_ids(cluster: LocalCluster, topic: str) -> set[int]:
    """Return the ids of the producers that have written to a topic."""
    found = set()
    for node in cluster.nodes.values():
        for directory in partitions_of(node.directory / "data"):
            if directory.name.rpartition("-")[0] == topic:
                for file in (f for f in files_of(directory) if f.kind is FileKind.SEGMENT):
                    with SegmentScan(file.path) as scan:
                        found |= {batch.header.producer_id for batch in scan.batches()}
    return found


def load(cluster: LocalCluster, topic: str, records: int) -> Load:
    """Write records to a topic, and return what was acknowledged."""
    with Load(cluster.bootstrap_servers, topic, records_per_s=5_000) as written:
        written.wait_for_progress(records)
    assert not written.failed
    return written


def produce_idempotently(cluster: LocalCluster, topic: str) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True}) as producer:
        for number in range(10):
            producer.produce(topic, str(number), b"key-0")
        assert producer.flush(30) == 0


def set_retention(cluster: LocalCluster, topic: str, value: str) -> None:
    entry = ConfigEntry("retention.ms", value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.incremental_alter_configs([resource])[resource].result(30)


def retention(cluster: LocalCluster, topic: str) -> str | None:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        return admin.describe_configs([resource])[resource].result(30)["retention.ms"].value


def topics_of(cluster: LocalCluster) -> set[str]:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        return {name for name in admin.list_topics(timeout=20).topics if not name.startswith("__")}


def change_leaders(cluster: LocalCluster) -> Load:
    """Kill a leader, and write records that it does not have; end with the node stopped."""
    killed = cluster.leader(TOPIC, 0)
    assert killed is not None
    cluster.nodes[killed].kill()
    wait_for(lambda: cluster.leader(TOPIC, 0) not in (killed, None), "another leader")
    return load(cluster, TOPIC, 300)


def check_restored(cluster: LocalCluster, loads: list[Load], former_ids: set[int]) -> None:
    """Check the records, the loss of the later topic, and that the cluster works as before."""
    messages = read_topic(cluster.bootstrap_servers, TOPIC, PARTITIONS)
    for written in loads:
        mine = set(written.acknowledged.values())
        assert_nothing_lost(written, [m for m in messages if (m.partition(), m.offset()) in mine])
    assert topics_of(cluster) == {TOPIC}
    create_topic(cluster, "new", 1, len(cluster.nodes))
    produce_idempotently(cluster, "new")
    assert former_ids.isdisjoint(producer_ids(cluster, "new") - {-1})
    load(cluster, TOPIC, 200)


def scenario(cluster: LocalCluster, tmp_path: Path, *, kills_a_leader: bool) -> None:
    """Lose all controllers after a backup, some records and a topic later, and restore."""
    backup = tmp_path / "metadata.backup"
    set_retention(cluster, TOPIC, "86400001")
    produce_idempotently(cluster, TOPIC)
    loads = [load(cluster, TOPIC, 500)]
    back_up(cluster, backup)
    create_topic(cluster, LATER, 1, 1)
    produce_idempotently(cluster, LATER)
    loads.append(load(cluster, TOPIC, 300))
    if kills_a_leader:
        loads.append(change_leaders(cluster))
    former_ids = (producer_ids(cluster, TOPIC) | producer_ids(cluster, LATER)) - {-1}
    assert former_ids
    stop_nodes(cluster)
    for controller in cluster.controllers.values():
        lose(controller)

    first = cluster.controllers[1]
    told = invoke("quorum", "restore", str(backup), properties(first), *inventories(cluster, tmp_path))
    assert "the only voter" in told
    assert (
        f"1 partition are unknown to this metadata; nodes will keep their directories aside as strays: {LATER}-0"
        in told
    )
    again = CliRunner().invoke(app, ["quorum", "restore", str(backup), properties(first), "--recorded-isrs"])
    assert (again.exit_code, "has a metadata log already" in again.output) == (1, True)
    first.start()
    for node in cluster.nodes.values():
        node.start()
    cluster.wait_ready()
    assert retention(cluster, TOPIC) == "86400001"
    check_restored(cluster, loads, former_ids)
    strays = [p.name for node in cluster.nodes.values() for p in (node.directory / "data").glob("*-stray")]
    assert [name.partition(".")[0] for name in strays] == [f"{LATER}-0"]


@pytest.mark.slow
def test_restored_controller_has_everything_that_was_acknowledged(start: Start, tmp_path: Path) -> None:
    scenario(start(1, 1), tmp_path, kills_a_leader=False)


@pytest.mark.chaos
def test_restored_quorum_elects_the_longest_logs_and_grows_again(start: Start, tmp_path: Path) -> None:
    cluster = start(3, 3)
    scenario(cluster, tmp_path, kills_a_leader=True)
    add_voters(cluster, 2)


def add_voters(cluster: LocalCluster, count: int) -> None:
    """Replace the lost controllers by new ones."""
    for _ in range(count):
        added = cluster.add_controller()
        addresses = ",".join(c.address for c in cluster.controllers.values() if c.is_running)
        arguments = ("add-voter", str(added.id), "--bootstrap-controllers", addresses)
        wait_for(lambda: CliRunner().invoke(app, ["quorum", *arguments]).exit_code == 0, "the voter")  # noqa: B023
    described = json.loads(invoke("quorum", "describe", "--json", "-b", cluster.bootstrap_servers))
    assert len(described["voters"]) == 1 + count
    create_topic(cluster, "with-more-voters", 1, len(cluster.nodes))


def recover(cluster: LocalCluster, survivor: ProcessHandle, *options: str) -> str:
    cluster_id = ("--cluster-id", cluster.cluster_id)
    return invoke("quorum", "recover", properties(survivor), "--unsafe", *cluster_id, "--recorded-isrs", *options)


def lost_majority(cluster: LocalCluster) -> None:
    """Lose all controllers but one while the nodes run, and go on with that one."""
    written = load(cluster, TOPIC, 300)
    survivor, *others = cluster.controllers.values()
    for other in others:
        lose(other)
    running = CliRunner().invoke(app, ["quorum", "recover", properties(survivor), "--unsafe", "--cluster-id", "x"])
    assert (running.exit_code, '"x", but cluster.id is' in running.output) == (2, True)
    confirmed = ("--unsafe", "--cluster-id", cluster.cluster_id, "--recorded-isrs")
    running = CliRunner().invoke(app, ["quorum", "recover", properties(survivor), *confirmed])
    assert (running.exit_code, "in use" in running.output) == (1, True), running.output
    survivor.kill()
    refused = CliRunner().invoke(app, ["quorum", "recover", properties(survivor), "--cluster-id", cluster.cluster_id])
    assert (refused.exit_code, "without --unsafe" in refused.output) == (2, True)
    assert "would become" in recover(cluster, survivor, "--dry-run")
    assert "is the only voter" in recover(cluster, survivor)
    survivor.start()
    for node in cluster.nodes.values():
        wait_for(lambda: not node.is_running, f"{node.name} to end")  # noqa: B023
        assert "was restored while this node ran" in node.log_tail()
        node.start()
    cluster.wait_ready()
    messages = read_topic(cluster.bootstrap_servers, TOPIC, PARTITIONS)
    assert_nothing_lost(written, messages)
    load(cluster, TOPIC, 100)
    wait_for(lambda: isr_sizes(cluster, TOPIC) == [len(cluster.nodes)] * PARTITIONS, "the ISRs whole")
    add_voters(cluster, len(others))


@pytest.mark.chaos
def test_survivor_of_three_controllers_goes_on_alone_until_voters_are_added(start: Start) -> None:
    lost_majority(start(3, 3))


@pytest.mark.chaos
def test_survivor_of_two_controllers_goes_on_alone_until_a_voter_is_added(start: Start) -> None:
    lost_majority(start(2, 1))
