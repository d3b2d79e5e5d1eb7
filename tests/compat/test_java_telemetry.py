"""Kafka's Java clients push their metrics, and ``kafka-client-metrics.sh`` administers who pushes which (KIP-714)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from acknowledged import wait_for
from compat.cluster import Deployment
from compat.java_tools import Shell, run
from support.scrapes import MONITORED, node_port, scrape

from tidelog.testing import FakeCluster

pytestmark = pytest.mark.compat
WAIT_S = 60.0


@pytest.fixture
def monitored() -> Iterator[FakeCluster]:
    """A node whose metrics can be read. Apache Kafka exports those of its clients with a plug-in alone."""
    with FakeCluster(auto_create_topics=True, node_config=MONITORED) as running:
        yield running


def test_kafka_client_metrics_creates_lists_describes_and_deletes(cluster: Deployment, name: str) -> None:
    shell = Shell(cluster.servers)
    settings = ("--metrics", "org.apache.kafka.producer.", "--interval", "2000", "--match", "client_id=java.*")
    assert f"Altered client metrics config for {name}" in shell(
        "kafka-client-metrics", "--alter", "--name", name, *settings
    )

    def listed() -> list[str]:
        return shell("kafka-client-metrics", "--list").split()

    def described() -> str:
        return shell("kafka-client-metrics", "--describe", "--name", name)

    # Each call may ask another node, which has the subscription a moment later.
    wait_for(lambda: name in listed(), "the subscription", WAIT_S)
    wait_for(lambda: "interval.ms=2000" in described(), "its settings", WAIT_S)
    text = described()
    assert f"Client metrics configs for {name} are:" in text
    assert "metrics=org.apache.kafka.producer." in text
    assert {line.split("=")[0].strip() for line in text.splitlines()[1:] if "=" in line} == {
        "interval.ms",
        "match",
        "metrics",
    }

    shell("kafka-client-metrics", "--alter", "--name", name, "--metrics", "*")
    wait_for(lambda: "metrics=*" in described(), "the new metrics", WAIT_S)
    assert "interval.ms=2000" in described()

    assert f"Deleted client metrics config for {name}" in shell("kafka-client-metrics", "--delete", "--name", name)
    wait_for(lambda: name not in listed(), "the end of the subscription", WAIT_S)


def test_kafka_client_metrics_refuses_invalid_settings(cluster: Deployment, name: str) -> None:
    shell = Shell(cluster.servers)
    for settings in (("--interval", "99"), ("--match", "no_such_label=x")):
        done = shell.ended("kafka-client-metrics", "--alter", "--name", name, "--metrics", "a.", *settings)
        assert done.code != 0
        assert "Error while executing client metrics command" in done.said


def test_java_producer_pushes_what_is_subscribed_and_the_node_exports_it(monitored: FakeCluster) -> None:
    servers = monitored.kafka_bootstrap_servers
    settings = (
        "--metrics",
        "org.apache.kafka.producer.",
        "--interval",
        "1000",
        "--match",
        "client_software_name=apache.*",
    )
    Shell(servers)("kafka-client-metrics", "--alter", "--name", "java", *settings)
    load = ("--topic", "pushed", "--num-records", "2000", "--record-size", "10", "--throughput", "500")
    done = run(
        "kafka-producer-perf-test", *load, "--producer-props", f"bootstrap.servers={servers}", "client.id=java-sender"
    )
    assert done.code == 0, done.said
    found = scrape(node_port(monitored))
    assert found.labels("tidelog_client_metric_total", label="client_id") == {"java-sender"}
    gauges = found.labels("tidelog_client_metric_value", label="metric")
    counters = found.labels("tidelog_client_metric_total", label="metric")
    assert "org.apache.kafka.producer.connection.creation.total" in counters
    assert {
        "org.apache.kafka.producer.connection.creation.rate",
        "org.apache.kafka.producer.node.request.latency.avg",
        "org.apache.kafka.producer.node.request.latency.max",
        "org.apache.kafka.producer.produce.throttle.time.avg",
        "org.apache.kafka.producer.record.queue.time.max",
    } <= gauges
    assert all(name.startswith("org.apache.kafka.producer.") for name in gauges | counters)
    # A counter may lack the records since the last push in time. A Java client that closes makes its last push only if
    # it happens to poll once more (KAFKA-17731), whatever the broker is, so a client that sends all its records at once
    # and closes may push a few of them. The node refuses no push, so what the client pushes is complete.
    assert found.labels("tidelog_client_telemetry_pushes_total", label="result") == {"NONE"}
    sent = found.value("tidelog_client_metric_total", metric="org.apache.kafka.producer.record.send.total")
    assert 1000 <= sent <= 2000
