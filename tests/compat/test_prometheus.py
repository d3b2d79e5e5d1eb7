"""A real Prometheus with the project's alert rules, next to a cluster with faults."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from acknowledged import wait_for

from tidelog.admin import AdminClient, NewTopic
from tidelog.testing import LocalCluster

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not on the PATH"),
]
ALERTS = Path(__file__).parents[2] / "deploy" / "monitoring" / "alerts.yaml"
WAIT_S = 60.0
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
    rules = re.sub(r"for: \w+", "for: 1s", ALERTS.read_text())
    (tmp_path / "alerts.yaml").write_text(rules)
    jobs = {"tidelog-controllers": cluster.controllers, "tidelog-nodes": cluster.nodes}
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [
            {
                "job_name": name,
                "static_configs": [
                    {"targets": [p.metrics_address for p in processes.values()], "labels": {"cluster": "c"}}
                ],
            }
            for name, processes in jobs.items()
        ],
    }
    (tmp_path / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
    options = ("--config.file=prometheus.yaml", "--storage.tsdb.path=data", f"--web.listen-address={address}")
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(["prometheus", *options], cwd=tmp_path, stderr=log) as prometheus,
    ):
        yield lambda query: _results(address, query)
        prometheus.terminate()


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


def fired(ask: Ask) -> set[str]:
    alerts = ask('ALERTS{alertstate="firing"}')
    return {alert["metric"]["alertname"].removeprefix("Tidelog") for alert in alerts}


def _results(address: str, query: str) -> list[dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/query?query={urllib.parse.quote(query)}") as answer:
            results: list[dict[str, Any]] = json.load(answer)["data"]["result"]
    except OSError:
        return []
    return results
