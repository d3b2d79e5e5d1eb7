"""Nodes with two log directories each: one fails, replicas move between them; nothing acknowledged is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from acknowledged import (
    Load,
    assert_nothing_lost,
    create_topic,
    isr_sizes,
    read_topic,
    wait_for,
    wait_for_whole_isrs,
)
from replica_files import assert_replicas_equal
from small_disk import SmallDisk

from tidelog import AdminClient
from tidelog.admin.log_dirs import TopicPartitionReplica
from tidelog.testing import LocalCluster
from tidelog.testing.process import ProcessHandle

PARTITIONS = 4


@pytest.fixture
def cluster(start_on_disk: Callable[..., LocalCluster]) -> LocalCluster:
    """A cluster whose node 1 has its second log directory on the small disk."""
    return start_on_disk("node-1/data-2", 1, 3, {"log.flush.interval.ms": 200}, log_dirs_per_node=2)


def test_failed_directory_costs_its_own_replicas_only_and_a_restart_heals(
    disk: SmallDisk, cluster: LocalCluster
) -> None:
    create_topic(cluster, "orders", PARTITIONS, 3, min_insync_replicas="2")
    node = cluster.nodes[1]
    in_second = sorted(int(path.name.split("-")[1]) for path in node.directory.glob("data-2/orders-*"))
    assert len(in_second) == PARTITIONS // 2
    with Load(cluster.bootstrap_servers, "orders", records_per_s=500) as load:
        load.wait_for_progress(500)
        disk.make_read_only()
        wait_for(lambda: _with_whole_isr(cluster) == set(range(PARTITIONS)) - set(in_second), "the replicas to leave")
        assert all(cluster.leader("orders", partition) not in (1, None) for partition in in_second)
        load.wait_for_progress(1_000)
        assert node.is_running
        assert any(cluster.leader("orders", partition) == 1 for partition in range(PARTITIONS)), "the others go on"
        [line] = [text for text in _output(node).splitlines() if "is offline until the next start" in text]
        assert "data-2" in line
        assert "Read-only file system" in line
        node.stop()
        disk.unmount()
        disk.mount()
        node.start()
        wait_for_whole_isrs(cluster, "orders", PARTITIONS)
        load.wait_for_progress(500)
    assert "Traceback" not in _output(node), _output(node)[-3000:]
    assert not load.failed, load.failed[:5]
    _assert_stored_everywhere(cluster, load)


def test_node_starts_without_a_directory_that_is_missing_and_again_with_it(
    disk: SmallDisk, cluster: LocalCluster
) -> None:
    create_topic(cluster, "orders", PARTITIONS, 3, min_insync_replicas="2")
    node = cluster.nodes[1]
    in_second = {int(path.name.split("-")[1]) for path in node.directory.glob("data-2/orders-*")}
    with Load(cluster.bootstrap_servers, "orders", records_per_s=500) as load:
        load.wait_for_progress(500)
        node.stop()
        disk.unmount()
        disk.path.rmdir()
        disk.path.write_bytes(b"no directory")
        node.start()
        wait_for(lambda: _with_whole_isr(cluster) == set(range(PARTITIONS)) - in_second, "the other replicas to return")
        load.wait_for_progress(500)
        made_anew = in_second & {int(path.name.split("-")[1]) for path in node.directory.glob("data/orders-*")}
        assert not made_anew, "their logs may be in the directory that is missing"
        node.stop()
        disk.path.unlink()
        disk.path.mkdir()
        disk.mount()
        node.start()
        wait_for_whole_isrs(cluster, "orders", PARTITIONS)
    assert "is offline until the next start" in _output(node)
    assert not load.failed, load.failed[:5]
    _assert_stored_everywhere(cluster, load)


@pytest.mark.slow
def test_replicas_move_between_directories_under_load_and_across_a_kill(tmp_path: Path) -> None:
    settings = {"log.flush.interval.ms": 200, "replica.alter.log.dirs.io.max.bytes.per.second": 600_000}
    with LocalCluster(1, 3, tmp_path / "cluster", settings, log_dirs_per_node=2) as cluster:
        create_topic(cluster, "orders", PARTITIONS, 3, min_insync_replicas="2")
        with Load(cluster.bootstrap_servers, "orders", records_per_s=1000, value_size=500) as load:
            load.wait_for_progress(2_000)
            targets = _other_directories(cluster)
            with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
                for future in admin.alter_replica_log_dirs({r: str(path) for r, path in targets.items()}).values():
                    future.result(timeout=20)
            wait_for(lambda: any(cluster.nodes[1].directory.glob("data*/*-future")), "a move to begin")
            cluster.nodes[1].kill()
            load.wait_for_progress(500)
            cluster.nodes[1].start()
            wait_for_whole_isrs(cluster, "orders", PARTITIONS)
            # A move that had not begun when the node was killed is not known to anybody any more.
            again = {r: str(path) for r, path in targets.items() if r.broker_id == 1}
            with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
                for future in admin.alter_replica_log_dirs(again).values():
                    future.result(timeout=20)
            names = {path / f"orders-{r.partition}" for r, path in targets.items()}
            wait_for(lambda: all(name.is_dir() for name in names), "every replica in its other directory")
            assert _other_directories(cluster).keys() == targets.keys(), "none is in two"
            load.wait_for_progress(500)
        assert not load.failed, load.failed[:5]
        _assert_stored_everywhere(cluster, load)


def _other_directories(cluster: LocalCluster) -> dict[TopicPartitionReplica, Path]:
    """Return the log directory of its node that each replica is not in."""
    others = {}
    for node in cluster.nodes.values():
        for folder in node.directory.glob("data*/orders-?"):
            replica = TopicPartitionReplica("orders", int(folder.name.split("-")[1]), node.id)
            assert replica not in others, folder
            others[replica] = node.directory / ("data" if folder.parent.name == "data-2" else "data-2")
    return others


def _with_whole_isr(cluster: LocalCluster) -> set[int]:
    return {partition for partition, size in enumerate(isr_sizes(cluster, "orders")) if size == 3}


def _output(node: ProcessHandle) -> str:
    return node.log_path.read_text(errors="replace")


def _assert_stored_everywhere(cluster: LocalCluster, load: Load) -> None:
    messages = read_topic(cluster.bootstrap_servers, "orders", PARTITIONS)
    assert_nothing_lost(load, messages)
    ends = [1 + max(m.offset() for m in messages if m.partition() == p) for p in range(PARTITIONS)]
    wait_for_whole_isrs(cluster, "orders", PARTITIONS)
    for node in cluster.nodes.values():
        assert node.stop() == 0, node.log_tail()
    assert_replicas_equal(cluster, "orders", ends)
