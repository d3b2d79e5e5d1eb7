"""Nodes on a real file system that fills up or becomes read-only: clear errors, nothing acknowledged is lost."""

from __future__ import annotations

import re
from collections.abc import Callable

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

from tidelog import KafkaError, KafkaException, Producer
from tidelog.testing import LocalCluster
from tidelog.testing.process import ProcessHandle

PARTITIONS = 3
READ_ONLY = "Read-only file system|Input/output error"
"""The errors of a write; one that was under way when the disk became read-only may report the latter."""
MAX_LINES = 20
"""A node that meets a full disk a thousand times says so a few times."""


@pytest.fixture
def cluster_on(start_on_disk: Callable[..., LocalCluster]) -> Callable[[int], LocalCluster]:
    """Start so many nodes, of which the first one has its log directory on the small disk."""
    return lambda nodes: start_on_disk("node-1/data", 1, nodes, {"log.flush.interval.ms": 200})


def test_full_disk_of_one_node_stops_nobody_and_the_node_comes_back_when_space_returns(
    disk: SmallDisk, cluster_on: Callable[[int], LocalCluster]
) -> None:
    cluster = cluster_on(3)
    create_topic(cluster, "orders", PARTITIONS, 3, min_insync_replicas="2")
    disk.fill(leave=1 << 20)
    with Load(cluster.bootstrap_servers, "orders", value_size=1000, records_per_s=500) as load:
        wait_for(lambda: "No space left on device" in _output(cluster.nodes[1]), "node 1 to say that its disk is full")
        wait_for(lambda: min(isr_sizes(cluster, "orders")) < 3, "the full replica to leave an ISR")
        load.wait_for_progress(1_000)
        assert cluster.nodes[1].is_running
        disk.make_room()
        wait_for_whole_isrs(cluster, "orders", PARTITIONS)
        load.wait_for_progress(1_000)
    _assert_says_briefly(cluster.nodes[1], f"{disk.path}|{cluster.data_dir}", "No space left on device")
    assert not load.failed, load.failed[:5]
    _assert_stored_everywhere(cluster, load)


def test_full_disk_of_the_only_replica_refuses_records_serves_reads_and_takes_records_again(
    disk: SmallDisk, cluster_on: Callable[[int], LocalCluster]
) -> None:
    cluster = cluster_on(1)
    create_topic(cluster, "orders", 1, 1)
    with Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 0}) as producer:
        stored = [_produce(producer, b"%04d" % n) for n in range(50)]
        assert stored == list(range(50))
    disk.fill()
    impatient = {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "retries": 0, "linger.ms": 0}
    with Producer(impatient) as producer:
        error = _fill_up(producer)
        assert error.name() == "KAFKA_STORAGE_ERROR"
        assert "No space left on device" in error.str()
        acknowledged = len(read_topic(cluster.bootstrap_servers, "orders", 1))
        assert acknowledged >= 50
        disk.make_room()
        wait_for(lambda: isinstance(_try_to_produce(producer, b"again"), int), "the node to take records again", 20)
    assert cluster.nodes[1].is_running
    values = [message.value() for message in read_topic(cluster.bootstrap_servers, "orders", 1)]
    assert values[:50] == [b"%04d" % n for n in range(50)]
    assert values[acknowledged:] == [b"again"]
    assert cluster.nodes[1].stop() == 0, cluster.nodes[1].log_tail()


def test_disk_that_becomes_read_only_moves_the_leaderships_and_the_node_comes_back_with_it(
    disk: SmallDisk, cluster_on: Callable[[int], LocalCluster]
) -> None:
    cluster = cluster_on(3)
    create_topic(cluster, "orders", PARTITIONS, 3, min_insync_replicas="2")
    node = cluster.nodes[1]
    with Load(cluster.bootstrap_servers, "orders", records_per_s=500) as load:
        load.wait_for_progress(500)
        disk.make_read_only()
        wait_for(lambda: 1 not in _leaders(cluster), "other leaders")
        load.wait_for_progress(1_000)
        wait_for(lambda: re.search(READ_ONLY, _output(node)) is not None, "node 1 to say that its disk is read-only")
        node.stop()
        disk.unmount()
        disk.mount()
        node.start()
        wait_for_whole_isrs(cluster, "orders", PARTITIONS)
        load.wait_for_progress(500)
    _assert_says_briefly(node, f"{disk.path}|{cluster.data_dir}", READ_ONLY)
    assert not load.failed, load.failed[:5]
    _assert_stored_everywhere(cluster, load)


def _output(node: ProcessHandle) -> str:
    return node.log_path.read_text(errors="replace")


def _leaders(cluster: LocalCluster) -> set[int | None]:
    return {cluster.leader("orders", partition) for partition in range(PARTITIONS)}


def _assert_says_briefly(node: ProcessHandle, path: str, reason: str) -> None:
    """One line says what failed, on which path and why; it is not said again and again, and never by a traceback."""
    output = _output(node)
    lines = [line for line in output.splitlines() if re.search(reason, line)]
    assert any(re.search(path, line) for line in lines), lines[:3]
    assert len(lines) <= MAX_LINES, f"{len(lines)} lines, the first: {lines[:3]}"
    assert "Traceback" not in output, output[output.index("Traceback") :][:3000]


def _assert_stored_everywhere(cluster: LocalCluster, load: Load) -> None:
    messages = read_topic(cluster.bootstrap_servers, "orders", PARTITIONS)
    assert_nothing_lost(load, messages)
    ends = [1 + max(m.offset() for m in messages if m.partition() == p) for p in range(PARTITIONS)]
    wait_for_whole_isrs(cluster, "orders", PARTITIONS)
    for node in cluster.nodes.values():
        assert node.stop() == 0, node.log_tail()
    assert_replicas_equal(cluster, "orders", ends)


def _try_to_produce(producer: Producer, value: bytes) -> int | KafkaError:
    answers: list[int | KafkaError] = []
    producer.produce("orders", value, on_delivery=lambda error, m: answers.append(error or m.offset()), partition=0)
    assert producer.flush(20) == 0
    return answers[0]


def _produce(producer: Producer, value: bytes) -> int:
    answer = _try_to_produce(producer, value)
    if isinstance(answer, KafkaError):
        raise KafkaException(answer)
    return answer


def _fill_up(producer: Producer) -> KafkaError:
    """Produce until the disk has not a block left."""
    for _ in range(1_000):
        answer = _try_to_produce(producer, b"x" * 4096)
        if isinstance(answer, KafkaError):
            return answer
    raise AssertionError("the disk was never full")
