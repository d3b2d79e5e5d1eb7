"""The steps around the cores of topics and users: calls to the cluster, its refusals, resources that are deleted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidelog.admin import ClientQuotaFilter
from tidelog.testing import FakeCluster
from tidelog_foundation.errors import ErrorCode, error_for
from tidelog_operator.cluster_client import ClusterClient
from tidelog_operator.conditions import Refusal
from tidelog_operator.connections import Connections
from tidelog_operator.topic_reconciler import TopicReconciler
from tidelog_operator.user_reconciler import UserReconciler

CLUSTER: dict[str, Any] = {"metadata": {"name": "flights"}}


class FakeKubernetes:
    """The resource of one cluster, and no other objects."""

    namespace = "default"

    def __init__(self, cluster: dict[str, Any] | None = None) -> None:
        self.cluster = cluster

    async def get(self, kind: str, name: str) -> dict[str, Any] | None:
        return self.cluster if (kind, name) == ("Tidelog", "flights") else None

    async def list(self, kind: str) -> list[dict[str, Any]]:
        return []


class FakeConnections(Connections):
    """The connections to one cluster in memory. ``forgotten`` are those that were closed."""

    def __init__(self, kubernetes: FakeKubernetes, client: ClusterClient | None = None) -> None:
        super().__init__(kubernetes)  # type: ignore[arg-type]
        self._client = client
        self.forgotten: list[str] = []

    async def of_cluster(self, name: str) -> ClusterClient:
        assert self._client is not None
        return self._client

    async def forget(self, name: str) -> None:
        self.forgotten.append(name)


def resource(name: str, spec: dict[str, Any], **status: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    return {"metadata": metadata, "spec": {"cluster": "flights", **spec}, "status": status}


def failing(code: ErrorCode) -> None:
    raise error_for(code, "no")


def test_cluster_that_refuses_is_asked_over_the_same_connection_and_one_that_is_silent_over_another() -> None:
    connections = FakeConnections(FakeKubernetes())
    with pytest.raises(Refusal) as refused:
        asyncio.run(connections.ask("flights", lambda: failing(ErrorCode.INVALID_CONFIG)))
    assert (refused.value.reason, connections.forgotten) == ("ClusterRefused", [])
    assert refused.value.message == "INVALID_CONFIG: no"
    with pytest.raises(Exception, match="no") as silent:
        asyncio.run(connections.ask("flights", lambda: failing(ErrorCode._TRANSPORT)))
    assert not isinstance(silent.value, Refusal)
    assert connections.forgotten == ["flights"]


@pytest.mark.parametrize(
    ("cluster", "is_there"),
    [(CLUSTER, True), (None, False), ({"metadata": {"name": "flights", "deletionTimestamp": "now"}}, False)],
)
def test_cluster_that_is_being_deleted_is_there_no_more(cluster: dict[str, Any] | None, is_there: bool) -> None:
    assert asyncio.run(FakeConnections(FakeKubernetes(cluster)).has_cluster("flights")) is is_there


def test_topic_is_created_changed_and_deleted_with_its_resource() -> None:
    with FakeCluster() as fake:
        client = ClusterClient({"bootstrap.servers": fake.bootstrap_servers})
        try:
            kubernetes = FakeKubernetes(CLUSTER)
            topics = TopicReconciler(kubernetes, FakeConnections(kubernetes, client))  # type: ignore[arg-type]
            wanted = {"partitions": 2, "replicas": 1, "config": {"retention.ms": "1000"}}
            made = asyncio.run(topics.reconcile(resource("orders", wanted)))
            assert (made.is_ready, made.fields["partitions"]) == (True, 2)
            grown = asyncio.run(topics.reconcile(resource("orders", {**wanted, "partitions": 3})))
            assert (grown.is_ready, grown.fields["partitions"]) == (True, 3)
            with pytest.raises(Refusal, match=r"INVALID_CONFIG.*no\.such"):
                asyncio.run(
                    topics.reconcile(resource("orders", {**wanted, "partitions": 3, "config": {"no.such": "1"}}))
                )
            assert asyncio.run(topics.delete(resource("orders", wanted, topicId="another")))
            assert "orders" in client.admin.list_topics().topics
            assert asyncio.run(topics.delete(resource("orders", wanted, topicId=made.fields["topicId"])))
            assert "orders" not in client.admin.list_topics().topics
        finally:
            client.close()


def test_quotas_of_a_user_come_and_go_with_its_resource() -> None:
    with FakeCluster() as fake:
        client = ClusterClient({"bootstrap.servers": fake.bootstrap_servers})
        try:
            kubernetes = FakeKubernetes(CLUSTER)
            users = UserReconciler(kubernetes, FakeConnections(kubernetes, client))  # type: ignore[arg-type]
            wanted = {"authentication": {"type": "tls"}, "quotas": {"producerByteRate": 5}}
            made = asyncio.run(users.reconcile(resource("alice", wanted)))
            assert (made.is_ready, made.fields["principal"]) == (True, "User:alice")
            assert list(client.admin.describe_client_quotas(ClientQuotaFilter.all()).result().values()) == [
                {"producer_byte_rate": 5.0}
            ]
            assert asyncio.run(users.delete(resource("alice", wanted)))
            assert client.admin.describe_client_quotas(ClientQuotaFilter.all()).result() == {}
        finally:
            client.close()
