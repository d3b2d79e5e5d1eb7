"""Faults of disks, logs and leaders, in the deployment ``storage``."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from acknowledged import wait_for
from compat.alert_faults.deployment import WAIT_S, Deployment, repeated

from tidelog import Producer
from tidelog.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)


@contextlib.contextmanager
def failed_directory(deployment: Deployment) -> Iterator[None]:
    """Refuse all writes to one of the two log directories of a node."""
    with deployment.admin() as admin:
        known = admin.list_topics(timeout=WAIT_S).topics
    if "stored" not in known:
        deployment.create_topic("stored", 4, 2)
    node, disk = deployment.cluster.nodes[1], deployment.small_disk
    disk.make_read_only()
    with Producer({**deployment.cluster.client_settings(), "acks": 1}) as producer:
        for partition in range(4):
            producer.produce("stored", b"x", partition=partition)
        producer.flush(WAIT_S)
        yield
    node.stop()
    disk.unmount()
    disk.mount()
    node.start()


@contextlib.contextmanager
def full_disk(deployment: Deployment) -> Iterator[None]:
    """Leave one percent of a disk."""
    disk = deployment.small_disk
    disk.fill(leave=disk.free_bytes // 100)
    try:
        yield
    finally:
        disk.make_room()


@contextlib.contextmanager
def filling_disk(deployment: Deployment) -> Iterator[None]:
    """Use two hundred kilobytes of a small disk each second."""
    disk = deployment.small_disk
    with repeated(lambda: disk.fill(leave=disk.free_bytes - 100_000), 0.5):
        yield
    disk.make_room()


@contextlib.contextmanager
def damaged_segment(deployment: Deployment) -> Iterator[None]:
    """Damage a batch in a sealed segment of a compacted topic, then let the cleaner read it."""
    topic = ConfigResource(ResourceType.TOPIC, "compacted")
    deployment.create_topic(
        "compacted", 1, 1, cleanup_policy="compact", segment_bytes="1048576", min_cleanable_dirty_ratio="1.0"
    )
    with Producer(deployment.cluster.client_settings()) as producer:
        for number in range(3_000):
            producer.produce("compacted", os.urandom(1_000), key=str(number % 7))
            if number % 100 == 0:
                producer.flush(WAIT_S)
        producer.flush(WAIT_S)
    [first, *_] = sorted(deployment.cluster.data_dir.glob("node-*/data*/compacted-0/*.log"))
    with first.open("r+b") as segment:
        segment.seek(first.stat().st_size // 2)
        byte = segment.read(1)
        segment.seek(-1, os.SEEK_CUR)
        segment.write(bytes([byte[0] ^ 0xFF]))
    topic.add_incremental_config(
        ConfigEntry("min.cleanable.dirty.ratio", "0.01", incremental_operation=AlterConfigOpType.SET)
    )
    with deployment.admin() as admin:
        admin.incremental_alter_configs([topic])[topic].result(WAIT_S)
        yield
        admin.delete_topics(["compacted"])["compacted"].result(WAIT_S)


@contextlib.contextmanager
def unclean_election(deployment: Deployment) -> Iterator[None]:
    """Lose the only in-sync replica of a topic with unclean.leader.election.enable, and start the other one."""
    deployment.create_topic("unclean", 1, 2, unclean_leader_election_enable="true")
    nodes = deployment.cluster.nodes
    leader = deployment.cluster.leader("unclean", 0)
    assert leader is not None
    [follower] = set(nodes) - {leader}
    nodes[follower].kill()
    with Producer(deployment.cluster.client_settings()) as producer:
        producer.produce("unclean", b"x")
        producer.flush(WAIT_S)
    wait_for(lambda: deployment.series("max(tidelog_under_replicated_partitions) > 0") > 0, "the ISR shrinks", WAIT_S)
    wait_for(lambda: deployment.series('tidelog_brokers{state="fenced"} == 1') > 0, "the node is fenced", WAIT_S)
    nodes[leader].kill()
    wait_for(lambda: deployment.series('tidelog_brokers{state="fenced"} == 2') > 0, "both are fenced", WAIT_S)
    nodes[follower].start()
    yield
    nodes[leader].start()


@contextlib.contextmanager
def restarted_node(deployment: Deployment) -> Iterator[None]:
    """Restart a node: without auto.leader.rebalance.enable, the other one leads all partitions."""
    deployment.create_topic("balanced", 8, 2)
    node = deployment.cluster.nodes[2]
    node.kill()
    wait_for(lambda: deployment.series('tidelog_brokers{state="fenced"} == 1') > 0, "the node is fenced", WAIT_S)
    node.start()
    deployment.cluster.wait_ready(WAIT_S)
    yield


@contextlib.contextmanager
def too_many_topics(deployment: Deployment) -> Iterator[None]:
    """Create more topics than metrics.topics.max."""
    names = [f"numbered-{number}" for number in range(13)]
    for name in names:
        deployment.create_topic(name, 1, 2)
    with deployment.admin() as admin:
        yield
        for deleted in admin.delete_topics(names).values():
            deleted.result(WAIT_S)
