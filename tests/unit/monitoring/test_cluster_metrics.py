"""The metrics of the processes of a cluster: all that is declared is there, and they tell what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from acknowledged import wait_for
from authorized_cluster import DEADLINE_S, ROOT, authorized_cluster, settings_of
from support.scrapes import MONITORED, ask, controller_port, node_port, scrape

from tidelog import AdminClient, Consumer, KafkaException, Producer, TopicPartition
from tidelog.admin import NewTopic
from tidelog.testing import FakeCluster
from tidelog_foundation.metrics import Metric
from tidelog_node.server import metrics as node
from tidelog_quorum.server import metrics as controller

pytestmark = pytest.mark.costly


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with authorized_cluster(MONITORED) as running:
        with AdminClient(settings_of(running, ROOT)) as admin:
            admin.create_topics([NewTopic("t", 1, 1)])["t"].result(DEADLINE_S)
        yield running


@pytest.mark.parametrize(
    ("port_of", "declared"),
    [
        pytest.param(node_port, node.DECLARED, id="node"),
        pytest.param(controller_port, controller.DECLARED, id="controller"),
    ],
)
def test_process_serves_every_declared_metric(
    cluster: FakeCluster, port_of: Callable[[FakeCluster], int], declared: tuple[tuple[str, tuple[Metric, ...]], ...]
) -> None:
    seen = scrape(port_of(cluster))
    for _, metrics in declared:
        for metric in metrics:
            family = seen.families[metric.family_name]
            assert (family.documentation, family.type) == (metric.help, metric.kind.value)
    ours = {name for name in seen.families if name.startswith("tidelog_")}
    assert ours == {metric.family_name for _, metrics in declared for metric in metrics}, "undeclared metrics"


def test_denied_decision_is_measured(cluster: FakeCluster) -> None:
    def denied() -> float:
        labels = {"operation": "create", "resource_type": "topic", "decision": "denied"}
        return scrape(node_port(cluster)).value("tidelog_authorizer_decisions_total", **labels)

    with AdminClient(settings_of(cluster, "alice")) as admin, pytest.raises(KafkaException):
        admin.create_topics([NewTopic("forbidden", 1, 1)])["forbidden"].result(DEADLINE_S)
    wait_for(lambda: denied() >= 1, "the decision is measured")


def test_offsets_of_a_group_and_its_lag_are_measured_on_its_coordinator(cluster: FakeCluster) -> None:
    with Producer(settings_of(cluster, ROOT)) as producer:
        for value in (b"a", b"b", b"c"):
            producer.produce("t", value)
        assert producer.flush(DEADLINE_S) == 0
    settings = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    with Consumer(settings_of(cluster, ROOT) | settings) as consumer:
        consumer.subscribe(["t"])
        consumer.consume(1, DEADLINE_S)
        consumer.commit(offsets=[TopicPartition("t", 0, 2)], asynchronous=False)
        wait_for(lambda: scrape(node_port(cluster)).value("tidelog_group_lag_records", group="readers") == 1, "the lag")
        seen = scrape(node_port(cluster))
        assert seen.value("tidelog_group_committed_offset", group="readers", topic="t", partition="0") == 2
        assert seen.value("tidelog_groups", protocol="classic") + seen.value("tidelog_groups", protocol="consumer") == 1
        assert seen.value("tidelog_topic_received_records_total", topic="t") == 3
        assert seen.value("tidelog_topic_sent_bytes_total", topic="t") > 0
        assert seen.value("tidelog_topic_produce_requests_total", topic="t") >= 1
        assert seen.value("tidelog_topic_fetch_requests_total", topic="t") >= 1
        assert seen.value("tidelog_grpc_open_calls") >= 1, "the consumer's fetch waits"
        assert seen.value("tidelog_grpc_request_duration_seconds_count", api="OffsetCommit", phase="total") == 1


def test_processes_that_serve_are_ready(cluster: FakeCluster) -> None:
    for port in (node_port(cluster), controller_port(cluster)):
        assert ask(f"http://127.0.0.1:{port}/readyz")[::2] == (200, "ok\n")
        assert ask(f"http://127.0.0.1:{port}/livez")[0] == 200


def test_open_transactions_are_measured_on_their_coordinator(cluster: FakeCluster) -> None:
    def ongoing() -> float:
        return scrape(node_port(cluster)).value("tidelog_transactions", state="ongoing")

    with Producer(settings_of(cluster, ROOT) | {"transactional.id": "measured"}) as producer:
        producer.init_transactions(DEADLINE_S)
        with producer.transaction():
            producer.produce("t", b"x")
            assert producer.flush(DEADLINE_S) == 0
            wait_for(lambda: ongoing() == 1, "the open transaction is measured")
        wait_for(lambda: ongoing() == 0, "the transaction has ended")
