"""The steps of a cluster with listeners for clients outside, on an API server in memory."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from operated_cluster import SOURCES, resource

from tidelog_operator.cluster_client import QuorumState
from tidelog_operator.cluster_reconciler import ClusterReconciler
from tidelog_operator.conditions import Outcome, Refusal
from tidelog_operator.manifests import COMPONENT, pod_labels
from tidelog_operator.resources import NODE, parse_cluster
from tidelog_operator.scaling import NodesState

BALANCED = resource("orders", external={"type": "LoadBalancer"})


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
        labels = {**pod_labels(parse_cluster(BALANCED), role), COMPONENT: role, "controller-revision-hash": "1"}
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

    def quorum(self) -> QuorumState:
        return QuorumState(1, frozenset((1, 2, 3)), frozenset())

    def nodes_state(self, replicas: int, *_: object) -> NodesState:
        return NodesState(replicas, dict.fromkeys((101, 102, 103), 0))

    def stop_obstacles(self, process_id: int, *, is_controller: bool) -> list[str]:
        return []

    def leader_id(self) -> int:
        return 1


class OneConnection:
    async def of_spec(self, spec: object) -> SafeClient:
        return SafeClient()


def reconcile(kubernetes: MemoryKubernetes, wanted: dict[str, Any]) -> Outcome:
    reconciler = ClusterReconciler(kubernetes, OneConnection(), SOURCES, "tidelog:9")  # type: ignore[arg-type]
    return asyncio.run(reconciler.reconcile(wanted))


def test_pods_are_not_made_before_their_nodes_have_addresses() -> None:
    kubernetes = MemoryKubernetes()
    with pytest.raises(Refusal, match="the Services of nodes 101, 102, 103 have no address") as refused:
        reconcile(kubernetes, BALANCED)
    assert (refused.value.reason, kubernetes.names("StatefulSet")) == ("ExternalPending", set())
    kubernetes.assign("external", 101, 102)
    with pytest.raises(Refusal, match="of nodes 103 have"):
        reconcile(kubernetes, BALANCED)
    kubernetes.assign("external", 103)
    outcome = reconcile(kubernetes, BALANCED)
    assert outcome.reason == "PodsNotReady"
    assert kubernetes.names("StatefulSet") == {"orders-node", "orders-quorum"}
    assert kubernetes.objects["ConfigMap", "orders-node-external"]["data"]["kafka-103"] == "external-103:9092"


@pytest.fixture
def exposed() -> MemoryKubernetes:
    """A cluster whose nodes have load balancers and run."""
    kubernetes = MemoryKubernetes()
    with pytest.raises(Refusal):
        reconcile(kubernetes, BALANCED)
    kubernetes.assign("external", 101, 102, 103)
    reconcile(kubernetes, BALANCED)
    for number in (1, 2, 3):
        kubernetes.start(f"orders-quorum-{number}", "quorum", "2020-01-01T00:00:00Z")
    for number in (101, 102, 103):
        kubernetes.start(f"orders-node-{number}", NODE, "2100-01-01T00:00:00Z")
    return kubernetes


def test_address_that_is_lost_for_a_while_stays_and_one_that_changes_restarts_its_node(
    exposed: MemoryKubernetes,
) -> None:
    exposed.objects["Service", "orders-node-102-external"]["status"] = {}
    before = dict(exposed.objects["ConfigMap", "orders-node-external"]["data"])
    assert reconcile(exposed, BALANCED).is_ready
    assert exposed.objects["ConfigMap", "orders-node-external"]["data"] == before
    exposed.assign("other", 102)
    exposed.start("orders-node-102", NODE, "2020-01-01T00:00:00Z")
    outcome = reconcile(exposed, BALANCED)
    assert (outcome.reason, outcome.message) == ("Rolling", "restarting orders-node-102")
    assert exposed.evicted == ["orders-node-102"]


def test_more_nodes_wait_for_their_addresses(exposed: MemoryKubernetes) -> None:
    outcome = reconcile(exposed, {**BALANCED, "spec": {**BALANCED["spec"], "nodes": {"replicas": 4}}})
    assert outcome.reason == "ExternalPending"
    assert exposed.objects["StatefulSet", "orders-node"]["spec"]["replicas"] == 3
    exposed.assign("external", 104)
    outcome = reconcile(exposed, {**BALANCED, "spec": {**BALANCED["spec"], "nodes": {"replicas": 4}}})
    assert (outcome.reason, outcome.message) == ("Scaling", "orders-node gets 4 pods")


def test_services_go_with_the_listeners(exposed: MemoryKubernetes) -> None:
    ready = reconcile(exposed, BALANCED)
    assert ready.fields["externalBootstrapServers"] is None
    assert "orders-node-101-external" in exposed.names("Service")
    closed = reconcile(exposed, {**BALANCED, "spec": {}})
    assert closed.is_ready
    assert {name for name in exposed.names("Service") | exposed.names("ConfigMap") if "external" in name} == set()
