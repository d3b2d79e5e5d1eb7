"""Tidelog and Spark in a namespace of the Kubernetes of kubectl, with clients that run in a pod."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

MANIFESTS = Path(__file__).parents[2] / "deploy" / "k8s"
IMAGE = os.environ.get("TIDELOG_IMAGE", "tidelog:0.1.0")
"""The image of the clusters, which the machines of the Kubernetes have."""
DRIVERS = "app.kubernetes.io/component=driver"
DEADLINE_S = 900
SMALL = {"path": "k8s/overlays/dev/small.yaml", "target": {"kind": "StatefulSet"}}
"""The patch of a kustomization for small pods and volumes."""
TOGETHER = {
    "target": {"kind": "StatefulSet", "name": "tidelog-node"},
    "patch": json.dumps([{"op": "remove", "path": "/spec/template/spec/affinity"}]),
}
"""The patch that lets storage nodes share a machine, since the Kubernetes may have a single one."""
PARTITIONS = 4
_SERVER = "tidelog-node-101"
_CLIENT = (
    "import json, sys; from tidelog import *; from tidelog.admin import *; servers = json.loads(sys.argv.pop(1))\n"
)
_CREATE = f"""
with AdminClient(servers) as admin:
    for future in admin.create_topics([NewTopic(name, {PARTITIONS}, 1) for name in sys.argv[1:]]).values():
        future.result(120)
"""
_PRODUCE = """
with Producer(servers) as producer:
    for number in range(int(sys.argv[1]), int(sys.argv[2])):
        producer.produce("orders", str(number), key=str(number))
    assert producer.flush(120) == 0
"""
_READ = f"""
with Consumer({{**servers, "isolation.level": "read_committed"}}) as consumer:
    ends = {{p: consumer.get_watermark_offsets(TopicPartition("copies", p))[1] for p in range({PARTITIONS})}}
    consumer.assign([TopicPartition("copies", p, 0) for p in ends])
    values = []
    while any(position.offset < ends[position.partition] for position in consumer.position(consumer.assignment())):
        message = consumer.poll(5)
        if message is None:
            break
        values.append(int(message.value()))
print(json.dumps(values))
"""
_OPEN = """
with AdminClient(servers) as admin:
    found = admin.list_transactions(states=[TransactionState.ONGOING]).result(120)
print(json.dumps([each.transactional_id for each in found.valid]))
"""


class KubernetesCluster:
    """A namespace of its own, with a cluster, and what tests do there.

    Programs run in the pod ``client``, by default that of the first node.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self.namespace = f"tidelog-{uuid.uuid4().hex[:8]}"
        self.settings = {"bootstrap.servers": f"tidelog.{self.namespace}.svc:9094", **(settings or {})}
        self.written = 0
        self.client = _SERVER

    def __enter__(self) -> KubernetesCluster:
        self.kubectl("create", "namespace", self.namespace)
        return self

    def __exit__(self, *_: object) -> None:
        self.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl in the namespace, and return its output."""
        command = ["kubectl", "--namespace", self.namespace, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == 0, f"{' '.join(arguments[:4])}: {done.stderr[-2000:]}"
        return done.stdout

    def apply(self, kustomization: Path) -> None:
        """Apply a kustomization."""
        self.kubectl("apply", "-k", str(kustomization))

    def create_secret(self, name: str, values: Mapping[str, str]) -> None:
        """Create a Secret."""
        literals = (f"--from-literal={key}={value}" for key, value in values.items())
        self.kubectl("create", "secret", "generic", name, *literals)

    def start_nodes(self, kustomization: Path) -> None:
        """Apply the kustomization of a cluster, wait for its node, and create the topics ``orders`` and ``copies``."""
        self.apply(kustomization)
        self.wait_rolled_out("tidelog-node")
        self.run(_CREATE, "orders", "copies")

    def wait_rolled_out(self, statefulset: str) -> None:
        """Wait until all pods of a StatefulSet have its latest template and are ready."""
        self.kubectl("rollout", "status", f"statefulset/{statefulset}", f"--timeout={DEADLINE_S}s")

    def start_client(self) -> None:
        """Start a pod of its own for programs."""
        self.client = "client"
        self.kubectl("run", self.client, f"--image={IMAGE}", "--restart=Never", "--command", "--", "sleep", "infinity")
        self.kubectl("wait", "--for=condition=Ready", f"pod/{self.client}", f"--timeout={DEADLINE_S}s")

    def run(self, program: str, *arguments: str) -> str:
        """Run a program in the client's pod, and return its output."""
        return self.kubectl(*self._execution(program, arguments))

    def start(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        """Start a program in the client's pod."""
        command = ["kubectl", "--namespace", self.namespace, *self._execution(program, arguments)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def command(self, *arguments: str) -> str:
        """Run ``tidelog`` in the client's pod, and return its output."""
        servers = f"TIDELOG_BOOTSTRAP_SERVERS={self.settings['bootstrap.servers']}"
        return self.kubectl("exec", self.client, "--", "env", servers, "tidelog", *arguments)

    def produce(self, count: int) -> None:
        """Append the next numbers to ``orders``."""
        self.run(_PRODUCE, str(self.written), str(self.written + count))
        self.written += count

    def copied(self) -> list[int]:
        """Return the committed numbers of ``copies``."""
        values: list[int] = json.loads(self.run(_READ))
        return values

    def open_transactions(self) -> list[str]:
        """Return the transactions that are not complete."""
        ids: list[str] = json.loads(self.run(_OPEN))
        return ids

    def running(self, label: str) -> set[str]:
        """Return the names of the pods with a label that run and are not being deleted."""
        live = (p for p in self._pods(label) if "deletionTimestamp" not in p["metadata"])
        return {pod["metadata"]["name"] for pod in live if pod["status"]["phase"] == "Running"}

    def phases(self, label: str) -> set[str]:
        """Return the phases of the pods with a label."""
        return {pod["status"]["phase"] for pod in self._pods(label)}

    def evict(self, pod: str) -> str:
        """Ask Kubernetes to evict a pod, as ``kubectl drain`` does, and return the reason if it refuses."""
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        done = subprocess.run(
            ["kubectl", "create", "--raw", path, "-f", "-"],
            input=json.dumps(eviction),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
        return done.stderr if done.returncode else ""

    def uid(self, pod: str) -> str:
        """Return the identity of a pod, "" without a pod of this name."""
        return self.kubectl("get", "pod", pod, "--ignore-not-found", "-o", "jsonpath={.metadata.uid}")

    def kill(self, pods: Iterable[str]) -> None:
        """Delete pods at once."""
        self.kubectl("delete", "pod", *pods, "--grace-period=0", "--force", "--wait=false")

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition with a deadline; otherwise, show the pods and the last lines of a driver of Spark."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            if time.monotonic() > deadline:
                logs = self.kubectl("logs", f"--selector={DRIVERS}", "--tail=60")
                raise AssertionError(f"not within {DEADLINE_S} s: {what}\n{self.kubectl('get', 'pods')}\n{logs}")
            time.sleep(1)

    def _execution(self, program: str, arguments: Iterable[str]) -> list[str]:
        return ["exec", self.client, "--", "python", "-c", _CLIENT + program, json.dumps(self.settings), *arguments]

    def _pods(self, label: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", "pods", "-o", "json", "-l", label))["items"]
        return found


def kustomization(folder: Path, base: str, **fields: object) -> Path:
    """Return the folder with a kustomization that changes a copy of a base, as kubectl reads no absolute paths."""
    manifests = folder / "k8s"
    shutil.copytree(MANIFESTS, manifests, dirs_exist_ok=True)
    text = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"k8s/{base}"],
        "images": [image(IMAGE)],
    }
    (folder / "kustomization.yaml").write_text(json.dumps(text | fields))
    return folder


def image(name_and_tag: str) -> dict[str, str]:
    """Return the field of a kustomization that replaces the image of the cluster."""
    name, _, tag = name_and_tag.rpartition(":")
    return {"name": "tidelog", "newName": name, "newTag": tag}
