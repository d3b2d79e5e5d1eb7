"""Metrics that librdkafka pushes to a node, from the subscription to the scrape; and refused requests."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import confluent_kafka
import pytest
from acknowledged import wait_for
from support.scrapes import MONITORED, Scrape, node_port, scrape

from tidelog import AdminClient, KafkaException
from tidelog.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, ResourceType
from tidelog.testing import FakeCluster

pytestmark = pytest.mark.costly
DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(auto_create_topics=True, node_config=MONITORED) as running:
        yield running


def subscribe(cluster: FakeCluster, name: str, **settings: str) -> None:
    changes = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.CLIENT_METRICS, name, incremental_configs=changes)
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)


def test_producer_pushes_what_is_subscribed_and_the_node_exports_it(cluster: FakeCluster) -> None:
    subscribe(cluster, "producers", metrics="org.apache.kafka.producer.", interval_ms="100", match="client_id=sender.*")
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.kafka_bootstrap_servers, "client.id": "sender-1"})
    silent = confluent_kafka.Producer({"bootstrap.servers": cluster.kafka_bootstrap_servers, "client.id": "other"})

    def produce() -> None:
        # A push has the metrics since the one before it.
        while not ended.wait(0.01):
            for each in (producer, silent):
                each.produce("pushed", b"x")
                each.poll(0)

    def seen() -> Scrape:
        return scrape(node_port(cluster))

    latency = {"client_id": "sender-1", "metric": "org.apache.kafka.producer.request.latency.max"}
    ended = threading.Event()
    load = threading.Thread(target=produce)
    load.start()
    try:
        wait_for(
            lambda: seen().value("tidelog_client_metric_value", **latency) > 0, "metrics of librdkafka", DEADLINE_S
        )
    finally:
        ended.set()
        load.join()
    found = seen()
    assert found.labels("tidelog_client_metric_total", label="client_id") == {"sender-1"}
    names = {
        name
        for family in ("tidelog_client_metric_total", "tidelog_client_metric_value")
        for name in found.labels(family, label="metric")
    }
    assert "org.apache.kafka.producer.connection.creation.total" in names
    assert all(name.startswith("org.apache.kafka.producer.") for name in names)
    assert found.value("tidelog_client_telemetry_pushes_total", result="NONE") > 0
    assert found.value("tidelog_client_telemetry_instances") >= 2
    assert found.value("tidelog_client_telemetry_dropped_values_total") == 0
    assert producer.flush(DEADLINE_S) == silent.flush(DEADLINE_S) == 0


def test_subscription_is_described_with_its_defaults_and_disappears_with_its_settings(cluster: FakeCluster) -> None:
    subscribe(cluster, "short-lived", interval_ms="5000")
    resource = ConfigResource(ResourceType.CLIENT_METRICS, "short-lived")
    removal = ConfigEntry("interval.ms", None, incremental_operation=AlterConfigOpType.DELETE)
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        described = admin.describe_configs([resource])[resource].result(DEADLINE_S)
        assert {name: (entry.value, entry.source) for name, entry in described.items()} == {
            "interval.ms": ("5000", ConfigSource.CLIENT_METRICS_CONFIG),
            "metrics": ("", ConfigSource.DEFAULT_CONFIG),
            "match": ("", ConfigSource.DEFAULT_CONFIG),
        }
        resource = ConfigResource(ResourceType.CLIENT_METRICS, "short-lived", incremental_configs=[removal])
        admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"interval_ms": "99"}, "99"),
        ({"interval_ms": "3600001"}, "3600001"),
        ({"match": "client_color=red"}, "client_color"),
        ({"match": "client_id=("}, "regular expression"),
        ({"period": "1"}, "period"),
    ],
)
def test_invalid_subscription_is_refused_with_its_value(
    cluster: FakeCluster, settings: dict[str, str], text: str
) -> None:
    with pytest.raises(KafkaException, match=text) as refused:
        subscribe(cluster, "invalid", **settings)
    assert refused.value.args[0].name() == "INVALID_REQUEST"
