"""The SDK's figures as metrics: those of stats_cb, for open clients alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from tidelog import Consumer, Producer, TopicPartition
from tidelog.metrics import PrometheusCollector
from tidelog.testing import FakeCluster

pytestmark = pytest.mark.costly
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(auto_create_topics=True) as running:
        yield running


def samples(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    """Return the values by name and the label of the client."""
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {(s.name, s.labels["client"]): s.value for family in families for s in family.samples}


def test_clients_have_metrics_until_they_close(cluster: FakeCluster) -> None:
    registry = CollectorRegistry()
    collector = PrometheusCollector(registry=registry)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "client.id": "app"}
    with Producer(settings) as producer:
        collector.add(producer)
        collector.add(producer)
        for _ in range(5):
            producer.produce("t", b"x" * 10)
        assert producer.flush(DEADLINE_S) == 0
        found = samples(registry)
        assert found["tidelog_sdk_sent_records_total", "app-1"] == producer.statistics()["txmsgs"] == 5
        assert found["tidelog_sdk_queued_records", "app-1"] == 0
        assert found["tidelog_sdk_node_requests_total", "app-1"] >= 1
        assert 0 < found["tidelog_sdk_node_round_trip_seconds", "app-1"] < DEADLINE_S
        with Consumer({**settings, "group.id": "g"}) as consumer:
            consumer.assign([TopicPartition("t", 0, 0)])
            collector.add(consumer)
            assert len(consumer.consume(3, DEADLINE_S)) == 3
            found = samples(registry)
            assert found["tidelog_sdk_received_records_total", "app-2"] >= 3
            assert found["tidelog_sdk_partition_lag_records", "app-2"] == 2
        assert {client for _, client in samples(registry)} == {"app-1"}
    assert samples(registry) == {}


def test_forgotten_client_has_no_metrics(cluster: FakeCluster) -> None:
    registry = CollectorRegistry()
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    PrometheusCollector([producer], registry)
    assert samples(registry)
    producer.close()
    del producer
    assert samples(registry) == {}
