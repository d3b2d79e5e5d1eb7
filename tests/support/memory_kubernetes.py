"""An API server in memory, and a cluster without processes, for the steps of the operator."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from operated_cluster import SOURCES, resource

from tidelog_operator.cluster_client import QuorumState
from tidelog_operator.cluster_reconciler import ClusterReconciler
from tidelog_operator.conditions import Outcome
from tidelog_operator.connections import Connections
from tidelog_operator.manifests import COMPONENT, pod_labels
from tidelog_operator.metrics import OperatorMetrics
from tidelog_operator.resources import parse_cluster
from tidelog_operator.scaling import NodesState


class MemoryKubernetes:
    """The objects of one namespace. StatefulSets are observed at once, and start no pods."""

    namespace = "shop"

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.evicted: list[str] = []

    async def get(self, kind: str, name: str) -> dict[str, Any] | None:
        return self.objects.get((kind, name))

    async def apply(self, manifest: dict[str, Any]) -> dict[str, Any]:
        key = manifest["kind"], manifest["metadata"]["name"]
        made = json.loads(json.dumps(manifest))
        made["metadata"]["uid"] = made["metadata"]["name"]
        made["status"] = self.objects.get(key, {}).get("status", {})
        if made["kind"] == "StatefulSet":
            made["metadata"]["generation"] = 1
            made["status"] = {"observedGeneration": 1, "updateRevision": "1"}
        self.objects[key] = made
        return made

    async def list(self, kind: str, labels: dict[str, str]) -> list[dict[str, Any]]:
        return [
            each
            for (its, _), each in self.objects.items()
            if its == kind and labels.items() <= each["metadata"]["labels"].items()
        ]

    async def delete(self, kind: str, name: str, uid: str) -> None:
        del self.objects[kind, name]

    async def evict(self, pod: str, uid: str) -> bool:
        self.evicted.append(pod)
        return True

    def assign(self, host: str, *ids: int) -> None:
        """Give the Services of nodes load balancers."""
        for number in ids:
            ingress = [{"hostname": f"{host}-{number}"}]
            service = self.objects["Service", f"orders-node-{number}-external"]
            service["status"] = {"loadBalancer": {"ingress": ingress}}

    def start(self, name: str, role: str, created: str) -> None:
        """Add a pod that is ready."""
        labels = {**pod_labels(parse_cluster(resource()), role), COMPONENT: role, "controller-revision-hash": "1"}
        metadata = {"name": name, "uid": name, "labels": labels, "creationTimestamp": created}
        status = {
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"state": {"running": {}}}],
        }
        self.objects["Pod", name] = {"metadata": metadata, "spec": {"volumes": []}, "status": status}

    def names(self, kind: str) -> set[str]:
        return {name for its, name in self.objects if its == kind}


class SafeClient:
    """A cluster of the wanted size in which every process is safe to stop."""

    def cluster_id(self) -> str:
        return "orders"

    def __init__(self) -> None:
        self.voters = {1, 2, 3}
        self.observers: set[int] = set()

    def quorum(self) -> QuorumState:
        return QuorumState(1, frozenset(self.voters), frozenset(self.observers))

    def add_voter(self, controller: int, host: str) -> None:
        self.voters.add(controller)
        self.observers.discard(controller)

    def remove_voter(self, controller: int) -> None:
        self.voters.discard(controller)

    def nodes_state(self, replicas: int, *_: object) -> NodesState:
        return NodesState(replicas, dict.fromkeys((101, 102, 103), 0))

    def stop_obstacles(self, process_id: int, *, is_controller: bool) -> list[str]:
        return []

    def leader_id(self) -> int:
        return 1


class OneConnection(Connections):
    """The connection to a cluster that needs nothing. Secrets are those of the API server."""

    def __init__(self, kubernetes: MemoryKubernetes, client: SafeClient) -> None:
        super().__init__(kubernetes)  # type: ignore[arg-type]
        self._client = client

    async def of_spec(self, spec: object) -> SafeClient:  # type: ignore[override]
        return self._client


def reconcile(kubernetes: MemoryKubernetes, wanted: dict[str, Any], client: SafeClient | None = None) -> Outcome:
    """Reconcile a cluster once."""
    connections = OneConnection(kubernetes, client or SafeClient())
    metrics = OperatorMetrics()
    reconciler = ClusterReconciler(kubernetes, connections, SOURCES, "tidelog:9", metrics)  # type: ignore[arg-type]
    return asyncio.run(reconciler.reconcile(wanted))
