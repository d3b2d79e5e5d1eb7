"""Planned and unplanned restarts on Kubernetes lose no acknowledged record, and planned ones keep no write waiting."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_cluster import SMALL, KubernetesCluster, kustomization
from kubernetes_writer import PARTITIONS, Writer, Written

pytestmark = pytest.mark.compat

LONGEST_WRITE_S = float(os.environ.get("TIDELOG_LONGEST_WRITE_S", "0.5"))
"""The bound of a write during a planned restart, on machines that have cores to spare."""
NODES = "app.kubernetes.io/component=node"
# The Kubernetes may have a single machine.
TOGETHER = {
    "target": {"kind": "StatefulSet", "name": "tidelog-node"},
    "patch": json.dumps([{"op": "remove", "path": "/spec/template/spec/affinity"}]),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("manifests")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[KubernetesCluster]:
    """The cluster of ``deploy/k8s/base`` and a client."""
    with KubernetesCluster() as created:
        created.apply(kustomization(folder, "base", patches=[SMALL, TOGETHER]))
        for name in ("tidelog-quorum", "tidelog-node"):
            created.wait_rolled_out(name)
        created.start_client()
        yield created


@pytest.fixture(scope="module")
def writer(cluster: KubernetesCluster) -> Writer:
    created = Writer(cluster)
    created.create_topic()
    return created


def check(writer: Writer, written: Written, before: list[int]) -> None:
    """Hold the topic to the acknowledgements: what was there before, then each record once, in the order of writes."""
    found = writer.read()
    stored: set[int] = set()
    for partition in range(PARTITIONS):
        old, new = ([n for n in numbers if n % PARTITIONS == partition] for numbers in (before, found))
        assert new[: len(old)] == old, f"partition {partition} has other records than before"
        added = new[len(old) :]
        assert added == sorted(set(added)), f"partition {partition} has records twice or out of order"
        stored.update(added)
    lost = set(written.acknowledged) - stored
    assert not lost, f"{len(lost)} acknowledged records are lost"


@pytest.mark.parametrize("statefulset", ["tidelog-node", "tidelog-quorum"])
def test_rolling_restart_keeps_no_write_waiting(cluster: KubernetesCluster, writer: Writer, statefulset: str) -> None:
    before = writer.read()
    with writer:
        cluster.kubectl("rollout", "restart", f"statefulset/{statefulset}")
        cluster.wait_rolled_out(statefulset)
        written = writer.stop()
    print(f"\n{statefulset}: {len(written.acknowledged)} writes, the longest {written.longest_s:.3f} s")
    assert written.failures == []
    check(writer, written, before)
    assert written.longest_s <= LONGEST_WRITE_S


@pytest.mark.parametrize("pod", ["tidelog-node-102", "tidelog-quorum-2"])
def test_killed_pod_comes_back_and_nothing_is_lost(cluster: KubernetesCluster, writer: Writer, pod: str) -> None:
    before = writer.read()
    with writer:
        cluster.kill([pod])
        cluster.wait_rolled_out(pod.rpartition("-")[0])
        written = writer.stop()
    assert written.failures == []
    check(writer, written, before)


def test_node_whose_volume_is_gone_catches_up_under_its_id(cluster: KubernetesCluster, writer: Writer) -> None:
    before = writer.read()
    with writer:
        cluster.kubectl("delete", "pvc", "data-tidelog-node-103", "--wait=false")
        cluster.kill(["tidelog-node-103"])
        cluster.wait_for(lambda: "tidelog-node-103" in cluster.running(NODES), "the pod of node 103")
        cluster.wait_rolled_out("tidelog-node")
        written = writer.stop()
    assert written.failures == []
    check(writer, written, before)
    assert writer.in_sync() == [3] * PARTITIONS
