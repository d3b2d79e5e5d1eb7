"""The alert rules and dashboards in deploy/monitoring: they name what exists, and each alert fires for its fault."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tidelog_foundation.metrics import Kind, Metric
from tidelog_node.server import metrics as node
from tidelog_quorum.server import metrics as controller

REPOSITORY = Path(__file__).parents[3]
MONITORING = REPOSITORY / "deploy" / "monitoring"
RULES = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"][0]["rules"]
DECLARED: dict[str, Metric] = {
    metric.name: metric for _, metrics in (*node.DECLARED, *controller.DECLARED) for metric in metrics
}
MAX_FIGURE_BYTES = 300_000
GRPC_TIMES = "tidelog_grpc_request_duration_seconds_bucket"
OF_PROMETHEUS = {"cluster", "instance", "job", "le"}
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not on the PATH (Debian's package prometheus has it)"
)


def expressions() -> Iterator[tuple[str, str]]:
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for path in sorted((MONITORING / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                yield f"{path.stem}: {panel['title']}", target["expr"]


@pytest.mark.parametrize(("place", "expression"), list(expressions()))
def test_expression_names_metrics_and_labels_that_exist(place: str, expression: str) -> None:
    names = re.findall(r"\btidelog_\w+", expression)
    found = [DECLARED.get(name) or DECLARED.get(re.sub("_(bucket|count|sum)$", "", name)) for name in names]
    assert all(metric is not None for metric in found), (place, names)
    for name, metric in zip(names, found, strict=True):
        assert metric is not None
        assert (name != metric.name) is (metric.kind is Kind.HISTOGRAM), f"{place}: {name} is not what a query reads"
    known = OF_PROMETHEUS.union(*(metric.labels for metric in found if metric is not None))
    matchers = [label for inner in re.findall(r"\{([^}]*)\}", expression) for label in re.findall(r"(\w+)=~?\"", inner)]
    groups = [label.strip() for inner in re.findall(r"by \(([^)]*)\)", expression) for label in inner.split(",")]
    assert {*matchers, *groups} <= known, place


def test_every_alert_has_a_severity_and_a_section_of_the_runbooks_that_exists() -> None:
    headings = re.findall(r"^## (\w+)$", (REPOSITORY / "docs" / "runbooks.md").read_text(), re.MULTILINE)
    assert [rule["alert"] for rule in RULES] == headings
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["runbook_url"] == f"docs/runbooks.md#{rule['alert'].lower()}"


def test_dashboards_are_those_that_are_declared() -> None:
    declared = runpy.run_path(str(MONITORING / "generate_dashboards.py"))
    fresh = {f"{each.name}.json": declared["render"](each) for each in declared["DASHBOARDS"]}
    assert fresh == {path.name: path.read_text() for path in (MONITORING / "dashboards").iterdir()}


def legends() -> Iterator[tuple[str, str, str]]:
    for path in sorted((MONITORING / "dashboards").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                yield f"{path.stem}: {panel['title']}", target["expr"], target["legendFormat"]


@pytest.mark.parametrize(("place", "expression", "legend"), list(legends()))
def test_legend_of_a_panel_tells_its_series_apart(place: str, expression: str, legend: str) -> None:
    """A series has the labels that the query groups by, or those of its metric; the panel has one cluster alone."""
    grouped = re.search(r"\bby \(([^)]*)\)", expression)
    if grouped is not None:
        labels = {label.strip() for label in grouped[1].split(",")}
    elif re.match(r"(sum|max)\(", expression):
        labels = set()
    else:
        of_metric = (DECLARED[name].labels for name in re.findall(r"\btidelog_\w+", expression))
        labels = {"instance"}.union(*of_metric)
    assert labels - {"le"} == set(re.findall(r"\{\{(\w+)\}\}", legend)), place


FAULTS: dict[str, dict[str, str]] = {
    "ProcessDown": {'up{job="tidelog-nodes"}': "0x100"},
    "NoActiveController": {'up{job="tidelog-nodes"}': "1x100"},
    "SeveralActiveControllers": {'tidelog_active_controller{instance="a"}': "2x100"},
    "OfflinePartitions": {"tidelog_offline_partitions": "3x100"},
    "UnderMinIsrPartitions": {"tidelog_under_min_isr_partitions": "1x100"},
    "UncleanLeaderElection": {"tidelog_unclean_leader_elections_total": "0+1x100"},
    "LogDirectoryFailed": {'tidelog_log_directory_online{directory="/d"}': "0x100"},
    "DiskFull": {
        'tidelog_log_directory_free_bytes{directory="/d"}': "4x100",
        'tidelog_log_directory_size_bytes{directory="/d"}': "100x100",
    },
    "CertificateExpired": {'tidelog_certificate_expiry_timestamp_seconds{listener="SSL"}': "90000x100"},
    "UnderReplicatedPartitions": {"tidelog_under_replicated_partitions": "1x100"},
    "OfflineReplicas": {"tidelog_offline_replicas": "1x100"},
    "NodeFenced": {'tidelog_brokers{state="fenced"}': "1x100"},
    "DiskFillsUp": {'tidelog_log_directory_free_bytes{directory="/d"}': "12000-100x100"},
    "VoterSilent": {'tidelog_quorum_replica_last_contact_seconds{replica="2",role="voter"}': "0+60x100"},
    "QuorumUnstable": {"tidelog_quorum_epoch": "1+1x100"},
    "MetadataLag": {'tidelog_metadata_node_lag_records{node="1"}': "5000x100"},
    "IsrUnstable": {"tidelog_isr_shrinks_total": "0+60x100"},
    "EventLoopBusy": {"tidelog_event_loop_cpu_seconds_total": "0+58x100"},
    "EventLoopLate": {
        'tidelog_event_loop_delay_seconds_bucket{le="0.5"}': "0+1x100",
        'tidelog_event_loop_delay_seconds_bucket{le="1"}': "0+10x100",
        'tidelog_event_loop_delay_seconds_bucket{le="+Inf"}': "0+10x100",
    },
    "ProduceSlow": {
        f'tidelog_kafka_request_duration_seconds_bucket{{api="PRODUCE",phase="total",le="{le}"}}': f"0+{step}x100"
        for le, step in (("1", 1), ("5", 10), ("+Inf", 10))
    },
    "FileDescriptorsLow": {
        'process_open_fds{job="tidelog-nodes"}': "900x100",
        'process_max_fds{job="tidelog-nodes"}': "1000x100",
    },
    "ConnectionsRefused": {
        'tidelog_kafka_connections_refused_total{listener="SSL",limit="max.connections"}': "0+60x100"
    },
    "LoginsFail": {'tidelog_logins_total{listener="SASL",mechanism="PLAIN",result="failure"}': "0+600x100"},
    "CertificateExpires": {'tidelog_certificate_expiry_timestamp_seconds{listener="SSL"}': "900000x100"},
    "CoordinatorLoads": {'tidelog_coordinator_shards{coordinator="group",state="loading"}': "1x100"},
    "CleanerFails": {"tidelog_log_cleaner_skipped_partitions": "1x100"},
    "GroupLagGrows": {'tidelog_group_lag_records{group="g",topic="t",partition="0"}': "0+1000x100"},
    "LeadersUnbalanced": {"tidelog_preferred_leader_imbalance": "30x100", "tidelog_cluster_partitions": "100x100"},
    "SeriesOmitted": {"tidelog_topics_without_own_metrics": "1x100"},
}
"""The series that make an alert fire, a value per minute."""
MORE_FAULTS: tuple[tuple[str, dict[str, str]], ...] = (
    (
        "ProduceSlow",
        {
            f'{GRPC_TIMES}{{api="ProduceStream",phase="remote",le="{le}"}}': f"0+{step}x100"
            for le, step in (("1", 1), ("5", 10), ("+Inf", 10))
        },
    ),
)
"""Further faults of alerts with several causes."""
HEALTHY: dict[str, str] = {
    'up{job="tidelog-nodes"}': "1x100",
    'tidelog_active_controller{instance="a"}': "1x100",
    'tidelog_active_controller{instance="b"}': "0x100",
    "tidelog_offline_partitions": "0x100",
    "tidelog_under_min_isr_partitions": "0x100",
    "tidelog_unclean_leader_elections_total": "2x100",
    'tidelog_log_directory_online{directory="/d"}': "1x100",
    'tidelog_log_directory_free_bytes{directory="/d"}': "50x100",
    'tidelog_log_directory_size_bytes{directory="/d"}': "100x100",
    'tidelog_certificate_expiry_timestamp_seconds{listener="SSL"}': "9000000x100",
    "tidelog_under_replicated_partitions": "0x100",
    "tidelog_offline_replicas": "0x100",
    'tidelog_brokers{state="fenced"}': "0x100",
    'tidelog_quorum_replica_last_contact_seconds{replica="2",role="voter"}': "1x100",
    "tidelog_quorum_epoch": "7x100",
    'tidelog_metadata_node_lag_records{node="1"}': "3x100",
    "tidelog_event_loop_cpu_seconds_total": "0+20x100",
    'tidelog_group_lag_records{group="g",topic="t",partition="0"}': "50000x100",
    "tidelog_preferred_leader_imbalance": "3x100",
    "tidelog_cluster_partitions": "100x100",
    'tidelog_coordinator_shards{coordinator="group",state="active"}': "50x100",
    'tidelog_logins_total{listener="SASL",mechanism="PLAIN",result="success"}': "0+600x100",
    **{
        f'{GRPC_TIMES}{{api="ProduceStream",phase="{phase}",le="{le}"}}': f"0+{step}x100"
        for le, step in (("1", 1), ("5", 10), ("+Inf", 10))
        for phase in ("throttle", "total")
    },
}


def test_every_alert_has_a_fault() -> None:
    assert {f"Tidelog{name}" for name in FAULTS} == {rule["alert"] for rule in RULES}


@needs_promtool
def test_alert_fires_for_its_fault_and_none_for_a_healthy_cluster(tmp_path: Path) -> None:
    """All in one run of promtool, which takes longer to start than to evaluate."""
    tests = [_firing(f"Tidelog{name}", series) for name, series in (*FAULTS.items(), *MORE_FAULTS)]
    expression = {"expr": 'count(ALERTS{alertstate="firing"})', "eval_time": "100m", "exp_samples": []}
    tests.append({"name": "healthy", "input_series": _series(HEALTHY), "promql_expr_test": [expression]})
    rules = {"rule_files": [str(MONITORING / "alerts.yaml")], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump(rules))
    done = subprocess.run(["promtool", "test", "rules", "tests.yaml"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_configuration_of_prometheus_is_valid() -> None:
    done = subprocess.run(
        ["promtool", "check", "config", str(MONITORING / "prometheus.yaml")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _firing(alert: str, series: dict[str, str]) -> dict[str, Any]:
    # Certificates expire at a time, and the time of promtool begins with 1970.
    expression = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) > bool 0'
    sample = {"labels": "{}", "value": 1}
    test = {"expr": expression, "eval_time": "100m", "exp_samples": [sample]}
    return {"name": alert, "interval": "1m", "input_series": _series(series), "promql_expr_test": [test]}


def _series(series: dict[str, str]) -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in series.items()]


def test_every_dashboard_has_a_figure_in_the_docs() -> None:
    page = (REPOSITORY / "docs" / "monitoring.md").read_text()
    for path in (MONITORING / "dashboards").glob("*.json"):
        figure = f"images/dashboards/{path.stem}.png"
        assert f"({figure})" in page
        assert (REPOSITORY / "docs" / figure).stat().st_size <= MAX_FIGURE_BYTES


def test_figures_have_the_units_of_grafana(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(MONITORING))
    pytest.importorskip("matplotlib", reason="the extra demo is not installed")
    pytest.importorskip("confluent_kafka", reason="the extra schema-registry is not installed")
    rendered = runpy.run_path(str(MONITORING / "render_dashboards.py"))
    units = {
        panel["fieldConfig"]["defaults"]["unit"]
        for path in (MONITORING / "dashboards").glob("*.json")
        for panel in json.loads(path.read_text())["panels"]
        if panel["type"] != "row"
    }
    for unit in units:
        assert rendered["text_of"](0, unit).startswith("0")
    examples = {
        (0.5, "percentunit"): "50 %",
        (1536, "bytes"): "1.5 KiB",
        (0.002, "s"): "2 ms",
        (1500, "Bps"): "1.5 kB/s",
    }
    assert {key: rendered["text_of"](*key) for key in examples} == examples
