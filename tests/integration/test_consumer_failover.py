"""Groups of real consumers while processes are killed: every record is read, and committed offsets never go back."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from typing import Any

import pytest
from acknowledged import Load, create_topic, wait_for
from group_members import Member, keys_of, shared, until

from tidelog import Consumer, TopicPartition
from tidelog.cluster import ClusterClient, Coordinators
from tidelog.testing import LocalCluster
from tidelog_foundation.transport import run_sync

PARTITIONS = 4
QUICK = {"auto_commit_interval_ms": 100, "session_timeout_ms": 6_000, "max_poll_interval_ms": 60_000}


class CommittedOffsets:
    """Looks again and again at what a group has committed, and finds it going back."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": topic})
        self._partitions = [TopicPartition(topic, p) for p in range(PARTITIONS)]
        self.offsets = dict.fromkeys(range(PARTITIONS), -1)
        self.went_back: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> CommittedOffsets:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join(60)
        self._consumer.close()

    def _look(self) -> None:
        while not self._is_over.wait(0.05):
            for found in self._consumer.committed(self._partitions, 30):
                offset = found.offset if found.error is None else -1
                if 0 <= offset < self.offsets[found.partition]:
                    self.went_back.append(f"{found.partition}: {self.offsets[found.partition]} to {offset}")
                self.offsets[found.partition] = max(offset, self.offsets[found.partition])


def coordinator_of(cluster: LocalCluster, group: str) -> int:
    client = ClusterClient(cluster.bootstrap_servers)
    try:
        address = run_sync(Coordinators(client).find(group)).address
    finally:
        run_sync(client.close())
    return next(node.id for node in cluster.nodes.values() if node.address == address)


@contextmanager
def group_under_load(cluster: LocalCluster, topic: str, protocol: str) -> Iterator[list[Member]]:
    """Two members that share what a load produces; in the end all that was acknowledged was read and committed.

    The group is called as the topic.
    """
    create_topic(cluster, topic, PARTITIONS, 3, min_insync_replicas="2")
    quick: dict[str, Any] = {**QUICK, "group_protocol": protocol}
    if protocol == "consumer":
        del quick["session_timeout_ms"]
    members = [Member(cluster.bootstrap_servers, topic, **quick).subscribe(topic) for _ in range(2)]
    with CommittedOffsets(cluster.bootstrap_servers, topic) as committed:
        with Load(cluster.bootstrap_servers, topic, records_per_s=400) as load:
            until(members, lambda: shared(members, keys_of(topic, PARTITIONS)) and _progress(members) > 100, 60)
            yield members
        until(members, lambda: _unread(load, members) == 0, 60)
        for member in members:
            member.consumer.close()
        wait_for(lambda: committed.offsets == _ends(load), "all that was read is committed")
    assert committed.went_back == []


def _progress(members: list[Member]) -> int:
    return sum(len(m.messages) for m in members)


def _unread(load: Load, members: list[Member]) -> int:
    read = {(m.partition(), m.offset()) for member in members for m in member.messages}
    return len(set(load.acknowledged.values()) - read)


def _ends(load: Load) -> dict[int, int]:
    ends = dict.fromkeys(range(PARTITIONS), -1)
    for partition, offset in load.acknowledged.values():
        ends[partition] = max(ends[partition], offset + 1)
    return ends


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """Three controllers and three nodes; each test starts again what it has killed."""
    with LocalCluster(controllers=3, nodes=3) as running:
        yield running


def test_members_go_on_when_the_node_of_their_coordinator_is_killed(cluster: LocalCluster) -> None:
    with group_under_load(cluster, "node", "classic") as members:
        killed = coordinator_of(cluster, "node")
        cluster.nodes[killed].kill()
        before = _progress(members)
        until(members, lambda: _progress(members) > before + 400, 60)
        cluster.nodes[killed].start()
        until(members, lambda: shared(members, keys_of("node", PARTITIONS)), 60)


def test_members_go_on_when_the_controller_and_the_coordinator_are_killed(cluster: LocalCluster) -> None:
    with group_under_load(cluster, "controller", "consumer") as members:
        controller, node = cluster.controller_leader(), coordinator_of(cluster, "controller")
        assert controller is not None
        cluster.controllers[controller].kill()
        cluster.nodes[node].kill()
        before = _progress(members)
        until(members, lambda: _progress(members) > before + 400, 60)
        cluster.controllers[controller].start()
        cluster.nodes[node].start()


def _read_and_commit_nothing(bootstrap_servers: str) -> None:
    member = Member(bootstrap_servers, "member", **QUICK, enable_auto_commit=False).subscribe("member")
    until([member], lambda: False, 600)


@contextmanager
def _process(target: Callable[[str], None], argument: str) -> Iterator[BaseProcess]:
    process = multiprocessing.get_context("spawn").Process(target=target, args=(argument,))
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join(30)


@pytest.mark.slow
def test_the_partitions_of_a_killed_member_are_read_by_others(cluster: LocalCluster) -> None:
    with (
        group_under_load(cluster, "member", "classic") as members,
        _process(_read_and_commit_nothing, cluster.bootstrap_servers) as process,
    ):
        given = keys_of("member", PARTITIONS)
        until(members, lambda: all(m.owned for m in members) and not shared(members, given), 60)
        before = _progress(members)
        until(members, lambda: _progress(members) > before + 200, 60)
        process.kill()
        until(members, lambda: shared(members, given), 60)
