"""Metrics that the SDK pushes to a node, from the subscription to the scrape (KIP-714)."""

from __future__ import annotations

import asyncio
import base64
import threading
import time
from collections.abc import Iterator

import pytest
from acknowledged import wait_for
from support.scrapes import MONITORED, Scrape, node_port, scrape

from tidelog import AdminClient, Consumer, KafkaError, KafkaException, Producer, aio
from tidelog.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tidelog.telemetry import pusher
from tidelog.testing import FakeCluster

pytestmark = pytest.mark.costly
DEADLINE_S = 30.0
KAFKA = "org.apache.kafka"


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(auto_create_topics=True, node_config=MONITORED) as running:
        settings = {"metrics": "*", "interval.ms": "100", "match": "client_software_name=tidelog,client_id=pushing"}
        changes = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.CLIENT_METRICS, "sdk", incremental_configs=changes)
        with AdminClient({"bootstrap.servers": running.bootstrap_servers}) as admin:
            admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
        yield running


def settings(cluster: FakeCluster, client_id: str = "pushing", **more: object) -> dict[str, object]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "client.id": client_id, **more}


def seen(cluster: FakeCluster) -> Scrape:
    return scrape(node_port(cluster))


def pushed(cluster: FakeCluster) -> set[str]:
    families = ("tidelog_client_metric_total", "tidelog_client_metric_value")
    found = seen(cluster)
    return {name.removeprefix(f"{KAFKA}.") for each in families for name in found.labels(each, label="metric")}


def id_text(client: Producer | Consumer | AdminClient) -> str:
    return base64.urlsafe_b64encode(bytes(client.client_instance_id(DEADLINE_S))).decode().rstrip("=")


def test_clients_push_their_metrics_and_the_node_exports_them(cluster: FakeCluster) -> None:
    group = {"group.id": "g", "auto.offset.reset": "earliest"}
    with (
        Producer(settings(cluster)) as producer,
        Consumer(settings(cluster, **group)) as consumer,
        AdminClient(settings(cluster, **{"enable.metrics.push": True})) as admin,
    ):
        producer.produce("pushed", b"x")
        assert producer.flush(DEADLINE_S) == 0
        consumer.subscribe(["pushed"])
        wait_for(lambda: consumer.poll(0.1) is not None, "a record", DEADLINE_S)
        consumer.commit(asynchronous=False)
        admin.cluster_id(DEADLINE_S)
        wanted = {
            "producer.connection.creation.total",
            "producer.node.request.latency.avg",
            "producer.record.queue.time.max",
            "producer.produce.throttle.time.avg",
            "consumer.poll.idle.ratio.avg",
            "consumer.coordinator.assigned.partitions",
            "consumer.coordinator.commit.latency.max",
            "consumer.coordinator.rebalance.latency.avg",
            "consumer.fetch.manager.fetch.latency.max",
            "admin.client.connection.creation.total",
        }
        wait_for(lambda: wanted <= pushed(cluster), "metrics of the SDK", DEADLINE_S)
        found = seen(cluster)
        ids = found.labels("tidelog_client_metric_total", label="client_instance_id")
        assert {id_text(client) for client in (producer, consumer, admin)} <= ids
        assert found.value("tidelog_client_telemetry_pushes_total", result="NONE") > 0


def test_last_push_of_a_client_contains_its_last_values(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pusher, "_LAST_PUSH_S", DEADLINE_S)
    with Producer(settings(cluster)) as producer:
        producer.produce("pushed", b"x")
        assert producer.flush(DEADLINE_S) == 0
        own = id_text(producer)

    def is_seen() -> bool:
        return own in seen(cluster).labels("tidelog_client_metric_value", label="client_instance_id")

    wait_for(is_seen, "the last push", DEADLINE_S)


def test_client_without_subscription_pushes_nothing_and_closes_at_once(cluster: FakeCluster) -> None:
    producer = Producer(settings(cluster, "silent"))
    own = id_text(producer)
    began = time.monotonic()
    producer.close()
    assert time.monotonic() - began < DEADLINE_S / 10
    assert own not in seen(cluster).labels("tidelog_client_metric_total", label="client_instance_id")


def test_instance_id_is_an_error_without_telemetry(cluster: FakeCluster) -> None:
    with Producer(settings(cluster, **{"enable.metrics.push": False})) as silent, pytest.raises(KafkaException) as off:
        silent.client_instance_id(1)
    assert off.value.args[0].code() == KafkaError._STATE
    with AdminClient(settings(cluster)) as admin, pytest.raises(KafkaException):
        admin.client_instance_id(1)
    with Producer({"bootstrap.servers": "127.0.0.1:1"}) as lost, pytest.raises(KafkaException) as late:
        lost.client_instance_id(0.05)
    assert late.value.args[0].code() in (KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN)
    with Producer(settings(cluster)) as producer, pytest.raises(ValueError, match="negative"):
        producer.client_instance_id(-1)


def test_clients_for_asyncio_have_an_instance_id(cluster: FakeCluster) -> None:
    async def ids() -> set[bytes]:
        async with (
            aio.Producer(settings(cluster)) as producer,
            aio.Consumer(settings(cluster, **{"group.id": "aio"})) as consumer,
            aio.AdminClient(settings(cluster, **{"enable.metrics.push": True})) as admin,
        ):
            return {bytes(await client.client_instance_id(DEADLINE_S)) for client in (producer, consumer, admin)}

    assert len(asyncio.run(ids())) == 3


def test_telemetry_ends_in_silence_when_the_interpreter_starts_no_threads_any_more(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = threading.Event()

    def refuse() -> str:
        asked.set()
        raise RuntimeError("cannot schedule new futures after shutdown")

    monkeypatch.setattr(pusher, "_version", refuse)
    with Producer(settings(cluster, "quiet")) as producer:
        producer.produce("t", b"v")
        assert producer.flush(DEADLINE_S) == 0
        assert asked.wait(DEADLINE_S)
    assert [record for record in caplog.records if record.name == pusher.logger.name] == []
