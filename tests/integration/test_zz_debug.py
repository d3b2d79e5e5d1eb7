"""Nodes on a real file system that fills up or becomes read-only: clear errors, nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from acknowledged import Load, assert_nothing_lost, create_topic, isr_sizes, read_topic, wait_for
from replica_files import assert_replicas_equal
from small_disk import SmallDisk, why_not

from tidelog import KafkaError, KafkaException, Producer
from tidelog.testing import LocalCluster
from tidelog.testing.process import ProcessHandle

PARTITIONS = 3
MAX_LINES = 20
READ_ONLY = "Read-only file system|Input/output error"
"""A node that meets a full disk a thousand times says so a few times."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"needs a file system of its own: {reason}")
    with contextlib.ExitStack() as stack:
        try:
            small = stack.enter_context(SmallDisk(tmp_path / "small", size_mib=24))
        except RuntimeError as error:
            pytest.skip(f"needs a file system of its own, which cannot be mounted here: {error}")
        yield small


@pytest.fixture
def cluster_on(disk: SmallDisk, tmp_path: Path) -> Iterator[Callable[..., LocalCluster]]:
    """Start a cluster of one controller whose node 1 has its log directory on the small disk."""
    started: list[LocalCluster] = []

    def start(nodes: int, **config: object) -> LocalCluster:
        data_dir = tmp_path / "cluster"
        (disk.path / "data").mkdir()
        (data_dir / "node-1").mkdir(parents=True)
        (data_dir / "node-1" / "data").symlink_to(disk.path / "data")
        settings = {key.replace("_", "."): value for key, value in config.items()}
        cluster = LocalCluster(1, nodes, data_dir, {"log.flush.interval.ms": 200, **settings})
        cluster.__enter__()
        started.append(cluster)
        return cluster

    yield start
    for cluster in started:
        cluster.close()


def test_disk_that_becomes_read_only_moves_the_leaderships_and_the_node_comes_back_with_it(
    disk: SmallDisk, cluster_on: Callable[..., LocalCluster]
) -> None:
    cluster = None
    try:
        cluster = cluster_on(3)
        create_topic(cluster, "orders", PARTITIONS, 3, min_insync_replicas="2")
        node = cluster.nodes[1]
        with Load(cluster.bootstrap_servers, "orders", records_per_s=1500) as load:
            load.wait_for_progress(500)
            disk.make_read_only()
            wait_for(lambda: 1 not in _leaders(cluster), "other leaders", 15)
            load.wait_for_progress(1_000)
            wait_for(lambda: re.search(READ_ONLY, _output(node)) is not None, "node 1 to say that its disk is read-only", 15)
            node.stop()
            disk.unmount()
            disk.mount()
            node.start()
            wait_for(lambda: isr_sizes(cluster, "orders") == [3] * PARTITIONS, "every ISR whole", 25)
            load.wait_for_progress(500)
        _assert_says_briefly(node, f"{disk.path}|{cluster.data_dir}", READ_ONLY)
        assert not load.failed, load.failed[:5]
        _assert_stored_everywhere(cluster, load)
    except BaseException:
        import shutil, subprocess
        import os, time, traceback
        out = Path(f"/tmp/fdloop/wedge-{time.time():.0f}-{os.getpid()}"); out.mkdir()
        (out / "error").write_text(traceback.format_exc())
        print("WEDGE", out)
        for h in [*cluster.nodes.values(), *cluster.controllers.values()]:
            shutil.copy(h.log_path, out / f"{h.log_path.parent.name}-{h.log_path.name}")
        (out / "describe").write_text(subprocess.run(["tidelog","topic","describe","orders","-b",cluster.bootstrap_servers],capture_output=True,text=True).stdout)
        for i, n in cluster.nodes.items():
            if n.is_running:
                (out / f"spy{i}").write_text(subprocess.run(["py-spy","dump","-p",str(n.pid)],capture_output=True,text=True).stdout)
        subprocess.run(f"ls -laR {disk.path} > {out}/files; tar -C {disk.path} -czf {out}/disk.tgz .; mount | grep small > {out}/mount", shell=True)
        shutil.copytree(cluster.data_dir / "controller-1", out / "controller-1", dirs_exist_ok=True)
        raise


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
    wait_for(lambda: isr_sizes(cluster, "orders") == [3] * PARTITIONS, "every ISR whole")
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
