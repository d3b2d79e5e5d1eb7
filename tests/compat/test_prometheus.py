"""A real Prometheus that scrapes a cluster has data for the dashboards. ``test_alerts.py`` tests the alerts."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from pathlib import Path

import pytest
from acknowledged import wait_for
from programs import load_program

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not on the PATH"),
]
MONITORING = Path(__file__).parents[2] / "deploy" / "monitoring"
DASHBOARDS = MONITORING / "dashboards"
WAIT_S = 60.0


monitored_cluster = load_program(MONITORING / "monitored_cluster.py")


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
