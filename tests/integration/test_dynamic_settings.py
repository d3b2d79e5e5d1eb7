"""Settings that change while real nodes run: they take effect on the partitions that are there, and last."""

from __future__ import annotations

from pathlib import Path

import pytest
from acknowledged import create_topic, wait_for

from tidelog import AdminClient, Consumer, KafkaException, Producer, TopicPartition
from tidelog.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    FeatureUpdate,
    NewPartitions,
    UpgradeType,
)
from tidelog.testing import LocalCluster
from tidelog_foundation.errors import KafkaError

TOPIC = "prices"
ELR = "eligible.leader.replicas.version"
TRANSACTIONS = "transaction.version"


@pytest.fixture(scope="module")
def running() -> LocalCluster:  # type: ignore[misc]
    config = {"log.retention.check.interval.ms": 100, "log.cleaner.backoff.ms": 50, "log.segment.bytes": 2_000}
    with LocalCluster(controllers=1, nodes=2, config=config) as cluster:
        yield cluster


@pytest.fixture
def admin(running: LocalCluster) -> AdminClient:  # type: ignore[misc]
    with AdminClient({"bootstrap.servers": running.bootstrap_servers}) as client:
        yield client


def nodes(name: str, **settings: str | None) -> ConfigResource:
    """The change of settings of a node, or of all (""); None deletes."""
    changes = [
        ConfigEntry(
            key.replace("_", "."),
            value,
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in settings.items()
    ]
    return ConfigResource(ConfigResource.Type.BROKER, name, incremental_configs=changes)


def change(admin: AdminClient, resource: ConfigResource) -> None:
    admin.incremental_alter_configs([resource])[resource].result(30)


def describe(admin: AdminClient, resource: ConfigResource) -> dict[str, ConfigEntry]:
    return admin.describe_configs([resource])[resource].result(30)


def send(cluster: LocalCluster, topic: str, count: int, size: int = 200, key: bytes | None = None) -> list[KafkaError]:
    """Send records one per batch; returns the errors."""
    errors: list[KafkaError] = []
    config = {"bootstrap.servers": cluster.bootstrap_servers, "batch.num.messages": 1}
    with Producer(config) as producer:
        for number in range(count):
            value = b"%d" % number + b"x" * size
            producer.produce(topic, value, key, on_delivery=lambda e, m: errors.append(e) if e else None)
        assert producer.flush(60) == 0
    return errors


def bounds(cluster: LocalCluster, topic: str) -> tuple[int, int]:
    with Consumer({"bootstrap.servers": cluster.bootstrap_servers}) as consumer:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
        return low, high


def files(cluster: LocalCluster, node_id: int, topic: str) -> int:
    """Return the bytes of a partition's segments on a node."""
    folder = Path(cluster.data_dir) / f"node-{node_id}" / "data" / f"{topic}-0"
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def test_retention_of_all_nodes_takes_effect_on_running_partitions(running: LocalCluster, admin: AdminClient) -> None:
    create_topic(running, "retained", 1, 2)
    assert send(running, "retained", 50) == []
    assert bounds(running, "retained") == (0, 50)
    change(admin, nodes("", log_retention_bytes="4000"))
    wait_for(lambda: bounds(running, "retained")[0] > 0, "the oldest segments deleted")
    change(admin, nodes("", log_retention_bytes=None))


def test_largest_batch_of_all_nodes_and_of_one(running: LocalCluster, admin: AdminClient) -> None:
    create_topic(running, "sized", 1, 1)
    leader = running.leader("sized", 0)
    assert send(running, "sized", 1, 1_500) == []
    change(admin, nodes("", message_max_bytes="1000"))
    wait_for(lambda: bool(send(running, "sized", 1, 1_500)), "the limit of all nodes in force")
    change(admin, nodes(str(leader), message_max_bytes="1800"))
    wait_for(lambda: not send(running, "sized", 1, 1_500), "the node's own limit in force")
    entry = describe(admin, nodes(str(leader)))["message.max.bytes"]
    assert (entry.value, entry.source) == ("1800", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [(s.value, s.source.name) for s in entry.synonym_chain] == [
        ("1800", "DYNAMIC_BROKER_CONFIG"),
        ("1000", "DYNAMIC_DEFAULT_BROKER_CONFIG"),
        ("1048588", "DEFAULT_CONFIG"),
    ]
    for name in ("", str(leader)):
        change(admin, nodes(name, message_max_bytes=None))


def test_a_topic_that_becomes_compacted_is_compacted(running: LocalCluster, admin: AdminClient) -> None:
    create_topic(running, "latest", 1, 1)
    leader = running.leader("latest", 0)
    assert leader is not None
    assert send(running, "latest", 60, key=b"k") == []
    before = files(running, leader, "latest")
    change(admin, nodes("", log_cleaner_threads="2", log_cleaner_min_cleanable_ratio="0.01"))
    topic = ConfigResource("topic", "latest", set_config={"cleanup.policy": "compact"})
    change(admin, topic)
    wait_for(lambda: files(running, leader, "latest") < before / 2, "the log compacted")
    change(admin, nodes("", log_cleaner_threads=None, log_cleaner_min_cleanable_ratio=None))


def test_settings_survive_the_restart_of_a_node(running: LocalCluster, admin: AdminClient) -> None:
    create_topic(running, "kept", 1, 1)
    leader = running.leader("kept", 0)
    assert leader is not None
    change(admin, nodes(str(leader), log_flush_interval_ms="777"))
    running.nodes[leader].terminate()
    running.nodes[leader].wait_or_kill(20)
    running.nodes[leader].start()
    running.wait_ready()
    entry = describe(admin, nodes(str(leader)))["log.flush.interval.ms"]
    assert (entry.value, entry.source) == ("777", ConfigSource.DYNAMIC_BROKER_CONFIG)
    change(admin, nodes(str(leader), log_flush_interval_ms=None))


@pytest.mark.parametrize(
    ("name", "settings", "text"),
    [
        ("", {"log_dirs": "/x"}, "log.dirs cannot change at run time"),
        ("1", {"min_insync_replicas": "1"}, "cannot be set on one broker while eligible leader replicas are in use"),
        ("", {"min_insync_replicas": None}, "cannot be removed while eligible leader replicas are in use"),
        ("9", {"log_retention_ms": "1"}, "there is no broker 9"),
    ],
)
def test_a_change_of_nodes_is_refused_with_the_reason(
    admin: AdminClient, name: str, settings: dict[str, str | None], text: str
) -> None:
    with pytest.raises(KafkaException, match=text):
        change(admin, nodes(name, **settings))


def test_a_new_cluster_has_its_features_and_they_change(running: LocalCluster, admin: AdminClient) -> None:
    found = admin.describe_features().result(30)
    assert found.finalized_features == {"metadata.version": 5, ELR: 1, TRANSACTIONS: 2}
    assert (found.supported_features[ELR].min_version, found.supported_features[ELR].max_version) == (0, 1)
    everywhere = describe(admin, nodes(""))
    assert everywhere["min.insync.replicas"].value == "1"
    with pytest.raises(KafkaException, match="INVALID_UPDATE_VERSION"):
        admin.update_features({ELR: FeatureUpdate(0)})[ELR].result(30)
    admin.update_features({ELR: FeatureUpdate(0, UpgradeType.SAFE_DOWNGRADE)})[ELR].result(30)
    assert admin.describe_features().result(30).finalized_features == {"metadata.version": 5, TRANSACTIONS: 2}
    admin.update_features({ELR: FeatureUpdate(1)})[ELR].result(30)


def test_added_partitions_are_spread_over_the_nodes(running: LocalCluster, admin: AdminClient) -> None:
    create_topic(running, "wider", 1, 1)
    admin.create_partitions([NewPartitions("wider", 4)])["wider"].result(30)
    partitions = admin.describe_topics(["wider"])["wider"].result(30).partitions
    leaders = sorted(p.leader.id for p in partitions if p.leader is not None)
    assert leaders == [1, 1, 2, 2]
