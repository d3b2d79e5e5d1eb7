"""A real Prometheus with the project's alert rules, next to a cluster with faults."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from acknowledged import wait_for
from programs import load_program

from tidelog.admin import AdminClient, NewTopic
from tidelog.testing import LocalCluster

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not on the PATH"),
]
MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
DASHBOARDS = MONITORING / "dashboards"
WAIT_S = 60.0


monitored_cluster = load_program(MONITORING / "monitored_cluster.py")
Ask = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(3, 2, metrics=True) as started, AdminClient(started.client_settings()) as admin:
        topic = NewTopic("t", 2, 2, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["t"].result(20)
        yield started


@pytest.fixture
def ask(cluster: LocalCluster, tmp_path: Path) -> Iterator[Ask]:
    """Return the results of a query. The rules have no delays, so that a test need not wait for minutes."""
    with monitored_cluster.scraped(cluster, tmp_path, scrape_s=1) as prometheus:
        yield prometheus.query


def test_prometheus_scrapes_every_process_and_alerts_fire_for_faults_alone(cluster: LocalCluster, ask: Ask) -> None:
    processes = len(cluster.controllers) + len(cluster.nodes)
    wait_for(lambda: len(ask("up == 1")) == processes, "all processes are scraped", WAIT_S)
    wait_for(lambda: len(ask("sum(tidelog_partitions)")) == 1, "metrics of nodes", WAIT_S)
    # A rate needs several samples.
    wait_for(lambda: bool(ask("rate(tidelog_event_loop_cpu_seconds_total[1m])")), "rates", WAIT_S)
    wait_for(lambda: fired(ask) == set(), "a quiet cluster", WAIT_S)

    cluster.nodes[2].kill()
    lost_node = {"ProcessDown", "NodeFenced", "UnderReplicatedPartitions", "UnderMinIsrPartitions"}
    wait_for(lambda: lost_node <= fired(ask), "the alerts of a lost node", WAIT_S)

    cluster.nodes[1].kill()
    wait_for(lambda: "OfflinePartitions" in fired(ask), "the alert of lost partitions", WAIT_S)

    for controller in [*cluster.controllers.values()][:2]:
        controller.kill()
    wait_for(lambda: "NoActiveController" in fired(ask), "the alert of a lost quorum", WAIT_S)


@pytest.mark.slow
def test_every_panel_has_data_in_a_cluster_under_load_and_faults(tmp_path: Path) -> None:
    with (
        monitored_cluster.busy_cluster() as cluster,
        monitored_cluster.scraped(cluster, tmp_path) as prometheus,
    ):
        start_s = time.time()
        monitored_cluster.inject_faults(cluster, pause_s=10)
        expressions = [
            (f"{path.stem}: {panel['title']}", monitored_cluster.expression_of(target["expr"]))
            for path in sorted(DASHBOARDS.glob("*.json"))
            for panel in json.loads(path.read_text())["panels"]
            for target in panel.get("targets", ())[:1]
        ]

        def silent() -> list[str]:
            return [name for name, each in expressions if not prometheus.query_range(each, start_s, time.time())]

        with contextlib.suppress(AssertionError):
            wait_for(lambda: silent() == [], "data of every panel", WAIT_S)
        assert silent() == []


def fired(ask: Ask) -> set[str]:
    alerts = ask('ALERTS{alertstate="firing"}')
    return {alert["metric"]["alertname"].removeprefix("Tidelog") for alert in alerts}
