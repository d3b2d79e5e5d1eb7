"""A storage node whose volume is full steps back, the others go on, and it returns when there is space."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from kubernetes_cluster import SMALL, TOGETHER, KubernetesCluster, kustomization
from kubernetes_writer import PARTITIONS, Writer

pytestmark = pytest.mark.compat

NODE = "tidelog-node-102"
_SIZE = "64Mi"
_PATH = "/spec/template/spec/volumes/-"
IN_MEMORY = {
    "target": {"kind": "StatefulSet", "name": "tidelog-node"},
    "patch": json.dumps(
        [
            {"op": "remove", "path": "/spec/volumeClaimTemplates"},
            {
                "op": "add",
                "path": _PATH,
                "value": {"name": "data", "emptyDir": {"medium": "Memory", "sizeLimit": _SIZE}},
            },
        ]
    ),
}
"""The patch for volumes that are file systems in memory, and full soon."""
_FILL = """
import os
with open("/var/lib/tidelog/ballast", "wb", buffering=0) as file:
    try:
        while file.write(bytes(4096)):
            pass
    except OSError as error:
        print(os.strerror(error.errno))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    with KubernetesCluster() as created:
        folder = tmp_path_factory.mktemp("manifests")
        created.apply(kustomization(folder, "base", patches=[SMALL, TOGETHER, IN_MEMORY]))
        for name in ("tidelog-quorum", "tidelog-node"):
            created.wait_rolled_out(name)
        created.start_client()
        yield created


def test_node_with_a_full_volume_steps_back_and_returns(cluster: KubernetesCluster) -> None:
    writer = Writer(cluster)
    writer.create_topic()
    restarts = _restarts(cluster)
    with writer:
        full = cluster.kubectl("exec", NODE, "--", "python", "-c", _FILL)
        assert full == "No space left on device\n"
        cluster.wait_for(lambda: writer.members() == {101, 103}, "a full node outside of every ISR")
        cluster.kubectl("exec", NODE, "--", "rm", "/var/lib/tidelog/ballast")
        cluster.wait_for(lambda: writer.in_sync() == [3] * PARTITIONS, "the node in every ISR again")
        written = writer.stop()
    writer.check(written, [])
    assert _restarts(cluster) == restarts, "a full disk restarts no process"


def _restarts(cluster: KubernetesCluster) -> str:
    columns = "custom-columns=NAME:.metadata.name,RESTARTS:.status.containerStatuses[0].restartCount"
    return cluster.kubectl("get", "pods", "-l", "app.kubernetes.io/name=tidelog", "-o", columns, "--no-headers")
