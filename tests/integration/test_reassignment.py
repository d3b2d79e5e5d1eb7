"""Partitions that move between real nodes while they are written to: nothing acknowledged is lost (KIP-455, KIP-73)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from acknowledged import Load, assert_nothing_lost, read_topic, wait_for
from replica_files import committed_bytes
from typer.testing import CliRunner

from tidelog import AdminClient, NewTopic, Producer, TopicPartition
from tidelog.admin import ConfigResource, ElectionType, NewPartitionReassignment, ResourceType
from tidelog.testing import LocalCluster
from tidelog_cli.commands import app
from tidelog_foundation.errors import ErrorCode

THROTTLES = {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(controllers=1, nodes=4, log_dirs_per_node=2) as running:
        yield running
        check_that_replicas_are_where_they_should_be_and_equal(running)


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[AdminClient]:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as client:
        yield client


def create(admin: AdminClient, topic: str, *assignment: Sequence[int], **config: str) -> None:
    settings = {"file.delete.delay.ms": "100"} | {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(topic, replica_assignment=[list(replicas) for replicas in assignment], config=settings)
    admin.create_topics([new])[topic].result(20)


def replicas(admin: AdminClient, topic: str) -> dict[int, list[int]]:
    partitions = admin.describe_topics([topic])[topic].result(20).partitions
    return {p.id: [node.id for node in p.replicas] for p in partitions}


def in_sync(admin: AdminClient, topic: str) -> dict[int, set[int]]:
    partitions = admin.describe_topics([topic])[topic].result(20).partitions
    return {p.id: {node.id for node in p.isr} for p in partitions}


def leaders(cluster: LocalCluster, topic: str, count: int) -> list[int | None]:
    return [cluster.leader(topic, index) for index in range(count)]


def check_that_replicas_are_where_they_should_be_and_equal(cluster: LocalCluster) -> None:
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        holders = {topic: replicas(admin, topic) for topic in admin.list_topics(timeout=20).topics}
    ends = {}
    for topic, partitions in holders.items():
        for message in read_topic(cluster.bootstrap_servers, topic, len(partitions)):
            ends[topic, message.partition()] = 1 + message.offset()
    for node in cluster.nodes.values():
        assert node.stop() == 0, node.log_tail()
    for topic, partitions in holders.items():
        for partition, expected in partitions.items():
            name = f"{topic}-{partition}"
            found = {i: path for i, n in cluster.nodes.items() for path in n.directory.glob(f"data*/{name}")}
            assert sorted(found) == sorted(expected), name
            logs = {committed_bytes(folder, ends.get((topic, partition), 0)) for folder in found.values()}
            assert len(logs) == 1, name


def alter(admin: AdminClient, topic: str, targets: Mapping[int, Sequence[int] | None]) -> None:
    wanted = {
        TopicPartition(topic, index): None if target is None else NewPartitionReassignment(target)
        for index, target in targets.items()
    }
    for future in admin.alter_partition_reassignments(wanted).values():
        future.result(20)


def wait_until_over(admin: AdminClient) -> None:
    wait_for(lambda: admin.list_partition_reassignments().result(20) == {}, "no reassignment under way", 30)


def tidelog(cluster: LocalCluster, *args: str, exit_code: int = 0) -> str:
    environment = {"TIDELOG_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    result = CliRunner().invoke(app, ["partition", *args], env=environment)
    assert result.exit_code == exit_code, result.output
    return result.output


def fill(cluster: LocalCluster, topic: str, megabytes: int) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}) as producer:
        for _ in range(megabytes * 10):
            producer.produce(topic, b"x" * 100_000, partition=0)
            producer.poll(0)
        assert producer.flush(30) == 0


def throttles_set(admin: AdminClient, topic: str) -> set[str]:
    resources = [ConfigResource(ResourceType.TOPIC, topic)]
    resources += [ConfigResource(ResourceType.BROKER, str(broker)) for broker in range(1, 5)]
    found: set[str] = set()
    for future in admin.describe_configs(resources).values():
        entries = future.result(20)
        found |= {name for name in THROTTLES & entries.keys() if not entries[name].is_default}
    return found


def folders(cluster: LocalCluster, node: int, topic: str) -> list[str]:
    return sorted(path.name for path in cluster.nodes[node].directory.glob(f"data*/{topic}-*"))


def test_partitions_move_off_a_node_under_load_and_nothing_is_lost(
    cluster: LocalCluster, admin: AdminClient, tmp_path: Path
) -> None:
    create(admin, "moved", (1, 2), (2, 1), (1, 3), (3, 1), min_insync_replicas="2")
    with Load(cluster.bootstrap_servers, "moved") as load:
        load.wait_for_progress()
        output = tidelog(cluster, "reassign", "--generate", "--topics", "moved", "--broker-list", "2,3,4")
        current, _, proposed = (line for line in output.splitlines() if line and not line.endswith("assignment"))
        rollback = {p["partition"]: p["replicas"] for p in json.loads(current)["partitions"]}
        assert rollback == {0: [1, 2], 1: [2, 1], 2: [1, 3], 3: [3, 1]}
        file = tmp_path / "move.json"
        file.write_text(proposed)

        output = tidelog(cluster, "reassign", "--execute", "--reassignment-json-file", str(file))
        assert current in output
        assert "Successfully started partition reassignments for moved-0,moved-1,moved-2,moved-3" in output
        load.wait_for_progress()
        output = tidelog(cluster, "reassign", "--verify", "--wait", "--reassignment-json-file", str(file))
        assert output.count("completed") >= 4, output
        load.wait_for_progress(1_000)
    wanted = {p["partition"]: p["replicas"] for p in json.loads(proposed)["partitions"]}
    assert replicas(admin, "moved") == wanted
    assert not load.failed, load.failed[:5]
    messages = read_topic(cluster.bootstrap_servers, "moved", 4)
    assert_nothing_lost(load, messages)
    wait_for(lambda: folders(cluster, 1, "moved") == [], "the replicas' files are gone from node 1", 20)
    wait_for(lambda: in_sync(admin, "moved") == {i: set(r) for i, r in wanted.items()}, "every ISR whole", 20)


def test_replication_factor_grows_from_one_to_three_under_load(cluster: LocalCluster, admin: AdminClient) -> None:
    create(admin, "grown", (1,), (2,))
    with Load(cluster.bootstrap_servers, "grown") as load:
        load.wait_for_progress()
        alter(admin, "grown", {0: [1, 3, 4], 1: [2, 4, 1]})
        wait_until_over(admin)
        load.wait_for_progress()
    assert replicas(admin, "grown") == {0: [1, 3, 4], 1: [2, 4, 1]}
    wait_for(lambda: in_sync(admin, "grown") == {0: {1, 3, 4}, 1: {2, 4, 1}}, "every ISR whole", 20)
    assert not load.failed, load.failed[:5]
    assert_nothing_lost(load, read_topic(cluster.bootstrap_servers, "grown", 2))


def test_throttled_move_is_slow_can_be_cancelled_and_leaves_nothing_behind(
    cluster: LocalCluster, admin: AdminClient, tmp_path: Path
) -> None:
    create(admin, "slow", (1, 2))
    fill(cluster, "slow", 6)
    file = tmp_path / "move.json"
    item = {"topic": "slow", "partition": 0, "replicas": [3, 2], "log_dirs": ["any", "any"]}
    file.write_text(json.dumps({"version": 1, "partitions": [item]}))
    named = ("--reassignment-json-file", str(file))

    # 6 MB at 1 MB/s: it is cancelled on the way.
    output = tidelog(cluster, "reassign", "--execute", *named, "--throttle", "1000000")
    assert "The inter-broker throttle limit was set to 1000000 B/s" in output
    assert throttles_set(admin, "slow") == THROTTLES
    assert tidelog(cluster, "reassign", "--list").splitlines()[1].split() == ["slow-0", "3,2,1", "3", "1"]
    assert "in progress" in tidelog(cluster, "reassign", "--verify", *named)
    refused = tidelog(cluster, "reassign", "--execute", *named, exit_code=1)
    assert "REASSIGNMENT_IN_PROGRESS" in refused
    assert throttles_set(admin, "slow") == THROTTLES
    wait_for(lambda: folders(cluster, 3, "slow") == ["slow-0"], "node 3 copies", 10)
    tidelog(cluster, "reassign", "--cancel", *named)
    assert sorted(replicas(admin, "slow")[0]) == [1, 2]
    assert throttles_set(admin, "slow") == set()
    wait_for(lambda: folders(cluster, 3, "slow") == [], "node 3 has forgotten it", 20)
    assert "None of the specified" in tidelog(cluster, "reassign", "--cancel", *named)
    assert "No partition reassignments found." in tidelog(cluster, "reassign", "--list")

    # Of 6 MB at 2 MB/s a second's may come at once, so it takes two; without a limit much less.
    durations = {}
    for node, limit in ((3, ("--throttle", "2000000")), (4, ())):
        file.write_text(json.dumps({"version": 1, "partitions": [item | {"replicas": [node, 2]}]}))
        began = time.monotonic()
        tidelog(cluster, "reassign", "--execute", *named, *limit)
        wait_until_over(admin)
        durations[node] = time.monotonic() - began
        tidelog(cluster, "reassign", "--verify", *named)
    assert 1.2 < durations[3] < 8, durations
    assert durations[4] < durations[3], durations
    assert throttles_set(admin, "slow") == set()
    assert len(read_topic(cluster.bootstrap_servers, "slow", 1)) == 60


def test_move_goes_on_when_the_controller_and_the_new_node_are_killed(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    create(admin, "faulty", (1, 2), min_insync_replicas="2")
    with Load(cluster.bootstrap_servers, "faulty", records_per_s=2_000) as load:
        load.wait_for_progress()
        cluster.nodes[3].pause()
        alter(admin, "faulty", {0: [3, 4]})
        cluster.controllers[1].kill()
        cluster.nodes[3].kill()
        load.wait_for_progress()
        cluster.controllers[1].start()
        cluster.nodes[3].start()
        wait_until_over(admin)
        load.wait_for_progress()
    assert replicas(admin, "faulty") == {0: [3, 4]}
    assert not load.failed, load.failed[:5]
    assert_nothing_lost(load, read_topic(cluster.bootstrap_servers, "faulty", 1))


def test_replicas_are_placed_in_the_log_directories_that_the_file_names(
    cluster: LocalCluster, admin: AdminClient, tmp_path: Path
) -> None:
    create(admin, "placed", (1, 2))
    fill(cluster, "placed", 1)
    paths = {node: str(cluster.nodes[node].directory / "data-2") for node in (2, 4)}
    item = {"topic": "placed", "partition": 0, "replicas": [4, 2], "log_dirs": [paths[4], paths[2]]}
    file = tmp_path / "move.json"
    file.write_text(json.dumps({"version": 1, "partitions": [item]}))

    output = tidelog(cluster, "reassign", "--execute", "--reassignment-json-file", str(file))
    assert output.count("Successfully started moving log directory") == 2, output
    output = tidelog(cluster, "reassign", "--verify", "--wait", "--reassignment-json-file", str(file))

    assert [line.split() for line in output.splitlines()[-3:-1]] == [
        ["placed-0-2", "completed"],
        ["placed-0-4", "completed"],
    ]
    for node, path in paths.items():
        wait_for(lambda path=path: (Path(path) / "placed-0").is_dir(), "the replica is where it should be", 10)
        wait_for(lambda node=node: folders(cluster, node, "placed") == ["placed-0"], "and nowhere else", 10)
    item["log_dirs"] = ["/nowhere", "any"]
    file.write_text(json.dumps({"version": 1, "partitions": [item]}))
    refused = tidelog(cluster, "reassign", "--execute", "--reassignment-json-file", str(file), exit_code=1)
    assert "LOG_DIR_NOT_FOUND" in refused


def test_election_brings_the_preferred_leaders_back_after_a_restart(cluster: LocalCluster, admin: AdminClient) -> None:
    create(admin, "led", (1, 2), (1, 3), (2, 1), (4, 1))
    assert leaders(cluster, "led", 4) == [1, 1, 2, 4]
    assert cluster.nodes[1].stop() == 0
    wait_for(lambda: leaders(cluster, "led", 4) == [2, 3, 2, 4], "others lead", 20)
    refused = admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition("led", 0)]).result(20)
    assert [e.code for e in refused.values() if e is not None] == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]
    cluster.nodes[1].start()
    wait_for(lambda: in_sync(admin, "led") == {0: {1, 2}, 1: {1, 3}, 2: {1, 2}, 3: {1, 4}}, "every ISR whole", 20)
    assert leaders(cluster, "led", 4) == [2, 3, 2, 4]

    output = tidelog(cluster, "elect-leaders", "--election-type", "preferred", "--topic", "led", "-p", "0", "-p", "2")
    assert [line.split(maxsplit=1) for line in output.splitlines()[1:]] == [
        ["led-0", "elected"],
        ["led-2", "not needed"],
    ]
    output = tidelog(cluster, "elect-leaders", "--election-type", "preferred", "--all-topic-partitions")
    assert "led-1" in output

    wait_for(lambda: leaders(cluster, "led", 4) == [1, 1, 2, 4], "the preferred replicas lead", 20)
    assert "No partition needs an election." in tidelog(
        cluster, "elect-leaders", "--election-type", "unclean", "--all-topic-partitions", "--yes"
    )
