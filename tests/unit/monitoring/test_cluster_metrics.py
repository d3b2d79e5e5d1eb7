"""The metrics of the processes of a cluster: all that is declared is there, and they tell what happened."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from acknowledged import wait_for
from authorized_cluster import DEADLINE_S, ROOT, authorized_cluster, settings_of
from support.scrapes import MONITORED, ask, controller_port, node_port, scrape

from tidelog import AdminClient, KafkaException
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


def test_processes_that_serve_are_ready(cluster: FakeCluster) -> None:
    for port in (node_port(cluster), controller_port(cluster)):
        assert ask(f"http://127.0.0.1:{port}/readyz")[::2] == (200, "ok\n")
        assert ask(f"http://127.0.0.1:{port}/livez")[0] == 200
