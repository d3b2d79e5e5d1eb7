"""Planned and unplanned restarts on Kubernetes lose no acknowledged record, and planned ones keep no write waiting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes_cluster import SMALL, TOGETHER, KubernetesCluster, kustomization
from kubernetes_writer import PARTITIONS, Writer

pytestmark = pytest.mark.compat

NODES = "app.kubernetes.io/component=node"


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


@pytest.mark.parametrize("statefulset", ["tidelog-node", "tidelog-quorum"])
def test_rolling_restart_keeps_no_write_waiting(cluster: KubernetesCluster, writer: Writer, statefulset: str) -> None:
    before = writer.read()
    with writer:
        cluster.kubectl("rollout", "restart", f"statefulset/{statefulset}")
        cluster.wait_rolled_out(statefulset)
        written = writer.stop()
    writer.check_planned(f"rolling restart of {statefulset}", written, before)


@pytest.mark.parametrize("pod", ["tidelog-node-102", "tidelog-quorum-2"])
def test_killed_pod_comes_back_and_nothing_is_lost(cluster: KubernetesCluster, writer: Writer, pod: str) -> None:
    before = writer.read()
    with writer:
        cluster.kill([pod])
        cluster.wait_rolled_out(pod.rpartition("-")[0])
        written = writer.stop()
    writer.check(written, before)


def test_node_whose_volume_is_gone_catches_up_under_its_id(cluster: KubernetesCluster, writer: Writer) -> None:
    before = writer.read()
    with writer:
        cluster.kubectl("delete", "pvc", "data-tidelog-node-103", "--wait=false")
        cluster.kill(["tidelog-node-103"])
        cluster.wait_for(lambda: "tidelog-node-103" in cluster.running(NODES), "the pod of node 103")
        cluster.wait_rolled_out("tidelog-node")
        written = writer.stop()
    writer.check(written, before)
    assert writer.in_sync() == [3] * PARTITIONS
