"""The steps of a cluster with listeners for clients outside, on an API server in memory."""

from __future__ import annotations

import pytest
from memory_kubernetes import MemoryKubernetes, reconcile
from operated_cluster import resource

from tidelog_operator.conditions import Refusal
from tidelog_operator.resources import NODE

BALANCED = resource("orders", external={"type": "LoadBalancer"})


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
