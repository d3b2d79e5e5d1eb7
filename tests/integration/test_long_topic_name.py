"""A topic with the longest name that there may be lives as any other: no folder of it has a name that is too long."""

from __future__ import annotations

from pathlib import Path

from acknowledged import create_topic, read_topic, wait_for

from tidelog import AdminClient, Producer
from tidelog.admin.log_dirs import TopicPartitionReplica
from tidelog.testing import LocalCluster

LONGEST = "n" * 249
CONFIG = {"log.segment.delete.delay.ms": 60_000}


def test_topic_with_the_longest_name_is_moved_and_deleted_and_the_node_starts_again(tmp_path: Path) -> None:
    with LocalCluster(controllers=1, nodes=1, data_dir=tmp_path, config=CONFIG, log_dirs_per_node=2) as cluster:
        node = cluster.nodes[1]
        create_topic(cluster, LONGEST, 1, 1)
        _produce(cluster, b"before")
        [home] = node.directory.glob(f"data*/{LONGEST}-0")
        there = next(node.directory / name for name in ("data", "data-2") if home.parent.name != name)
        with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            for future in admin.alter_replica_log_dirs({TopicPartitionReplica(LONGEST, 0, 1): str(there)}).values():
                future.result(20)
        wait_for(lambda: (there / f"{LONGEST}-0").exists() and not home.exists(), "the replica has moved")
        node.stop()
        node.start()
        cluster.wait_ready()
        _produce(cluster, b"after")
        records = read_topic(cluster.bootstrap_servers, LONGEST, 1)
        assert [record.value() for record in records] == [b"before", b"after"]
        with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
            for future in admin.delete_topics([LONGEST]).values():
                future.result(20)
        wait_for(lambda: len(list(node.directory.glob("data*/n*-delete"))) == 1, "the folder is renamed")
        node.kill()
        node.start()
        cluster.wait_ready()
        create_topic(cluster, LONGEST, 1, 1)
        _produce(cluster, b"new")
        assert [record.value() for record in read_topic(cluster.bootstrap_servers, LONGEST, 1)] == [b"new"]
        assert " is offline" not in node.log_path.read_text()


def _produce(cluster: LocalCluster, value: bytes) -> None:
    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.produce(LONGEST, value)
