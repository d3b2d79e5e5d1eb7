"""A cluster is whole when every node tells that all replicas are in sync."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tidelog.admin import AdminClient
from tidelog.admin.metadata import BrokerMetadata, ClusterMetadata, PartitionMetadata, TopicMetadata
from tidelog.testing import FakeCluster
from tidelog_chaos.node_views import AskedNodes
from tidelog_chaos.watch import Watch
from tidelog_foundation.errors import ErrorCode, error_for


def view(isr: list[int], nodes: tuple[int, ...] = (1, 2, 3)) -> ClusterMetadata:
    partition = PartitionMetadata(0, 3, [1, 2, 3], isr)
    brokers = {node: BrokerMetadata(node, f"node{node}", 9094) for node in nodes}
    return ClusterMetadata("", 1, brokers, {"t": TopicMetadata("t", {0: partition})})


class FakeNodes:
    """Nodes that have a view each; those without one do not answer. Any node is the first one."""

    def __init__(self, views: Mapping[int, ClusterMetadata]) -> None:
        self._views = views

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> ClusterMetadata:
        if not self._views:
            raise error_for(ErrorCode._ALL_BROKERS_DOWN, "nobody")
        return self._views[min(self._views)]

    def ask(self, node: BrokerMetadata) -> ClusterMetadata | None:
        return self._views.get(node.id)

    def close(self) -> None:
        """Nothing is open."""


ALL = [1, 2, 3]


@pytest.mark.parametrize(
    ("views", "missing"),
    [
        ({1: view(ALL), 2: view(ALL), 3: view(ALL)}, None),
        ({1: view(ALL), 2: view(ALL), 3: view([1, 3])}, "t-0 has the ISR [1, 3] of [1, 2, 3], as node 3 tells"),
        ({1: view(ALL), 3: view(ALL)}, "node 2 does not answer"),
        ({1: view(ALL, (1, 3)), 2: view(ALL), 3: view(ALL)}, "node 2 does not answer"),
        ({1: view([1, 3])}, "t-0 has the ISR [1, 3] of [1, 2, 3]"),
        ({}, "no node answers"),
    ],
)
def test_cluster_is_whole_when_every_node_tells_so(views: Mapping[int, ClusterMetadata], missing: str | None) -> None:
    """A node that was suspended until now shows the ISR of before: another one has left it."""
    nodes = FakeNodes(views)
    watch = Watch(nodes, nodes, lambda: ["t-0"], lambda: ["t"], 3)
    assert watch.wait_whole(0) == missing


def test_asked_node_answers_itself() -> None:
    with FakeCluster() as cluster, AdminClient(cluster.client_settings()) as admin:
        cluster.create_topic("t")
        [node] = admin.list_topics(timeout=10).brokers.values()
        nodes = AskedNodes(cluster.client_settings())
        known = nodes.ask(node)
        assert known is not None
        assert "t" in known.topics
        other = BrokerMetadata(node.id + 1, node.host, node.port)
        assert nodes.ask(other) is None, "another node answers at the address"
        assert nodes.ask(node) is not None
        nodes.close()
