"""Writes the Grafana dashboards in ``dashboards/`` from the rows and queries below.

``python deploy/monitoring/generate_dashboards.py`` exits with 1 when a committed dashboard is stale; ``--write``
replaces them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).resolve().parent / "dashboards"
_COLUMNS: Final = 24
_HEIGHT: Final = 8
_STAT_HEIGHT: Final = 4
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_RATE: Final = "[$__rate_interval]"


@dataclass(frozen=True, slots=True)
class Query:
    """An expression of Prometheus, and the legend of its series."""

    expression: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph, or with ``is_stat`` a number. ``unit`` is one of Grafana's; ``bad_from`` is the first value in red."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    description: str = ""
    is_stat: bool = False
    bad_from: float | None = None


@dataclass(frozen=True, slots=True)
class Dashboard:
    """A dashboard. ``variables`` have the values of a label of a metric, by the label's name."""

    name: str
    title: str
    rows: Mapping[str, Sequence[Panel]]
    variables: Mapping[str, str]


def _graph(title: str, expression: str, legend: str = "", unit: str = "short", description: str = "") -> Panel:
    return Panel(title, (Query(expression, legend),), unit, description)


def _stat(title: str, expression: str, bad_from: float | None = None, unit: str = "short") -> Panel:
    return Panel(title, (Query(expression),), unit, is_stat=True, bad_from=bad_from)


def _quantile(share: float, metric: str, by: str, where: str) -> str:
    return f"histogram_quantile({share}, sum by ({by}, le) (rate({metric}_bucket{{{where}}}{_RATE})))"


_CLUSTER: Final = 'cluster="$cluster"'
_NODE: Final = 'cluster="$cluster",instance=~"$instance"'
_TOPIC: Final = 'cluster="$cluster",topic=~"$topic"'
_GROUP: Final = 'cluster="$cluster",group=~"$group"'
_DENIED: Final = f'{_NODE},decision="denied"'
_REQUEST: Final = "tidelog_kafka_request_duration_seconds"
_CALL: Final = "tidelog_grpc_request_duration_seconds"
_LAG: Final = "tidelog_quorum_replica_lag_records"


def _traffic(metric: str, by: str, where: str) -> str:
    return f"sum by ({by}) (rate({metric}{{{where}}}{_RATE}))"


def _as_the_leader_knows(metric: str, by: str) -> str:
    """Return one series for each value of ``by``, from a metric that only the leading controller has.

    Without it, there is one for each controller that has led, and lines of the same name.
    """
    return f"max by ({by}) ({metric}{{{_CLUSTER}}})"


CLUSTER: Final = Dashboard(
    "cluster",
    "Tidelog: cluster",
    {
        "Health": (
            _stat("Active controllers", f"sum(tidelog_active_controller{{{_CLUSTER}}})", 2),
            _stat("Nodes", f'max(tidelog_brokers{{{_CLUSTER},state="active"}})'),
            _stat("Fenced nodes", f'max(tidelog_brokers{{{_CLUSTER},state="fenced"}})', 1),
            _stat("Offline partitions", f"max(tidelog_offline_partitions{{{_CLUSTER}}})", 1),
            _stat("Under min ISR", f"sum(tidelog_under_min_isr_partitions{{{_CLUSTER}}})", 1),
            _stat("Under-replicated", f"sum(tidelog_under_replicated_partitions{{{_CLUSTER}}})", 1),
        ),
        "Traffic": (
            _graph(
                "Produced bytes",
                _traffic("tidelog_topic_received_bytes_total", "instance", _CLUSTER),
                "{{instance}}",
                "Bps",
            ),
            _graph(
                "Produced records",
                _traffic("tidelog_topic_received_records_total", "instance", _CLUSTER),
                "{{instance}}",
                "cps",
            ),
            _graph(
                "Consumed bytes",
                _traffic("tidelog_topic_sent_bytes_total", "instance", _CLUSTER),
                "{{instance}}",
                "Bps",
            ),
            _graph(
                "Replicated bytes",
                _traffic("tidelog_topic_replication_received_bytes_total", "instance", _CLUSTER),
                "{{instance}}",
                "Bps",
            ),
        ),
        "Replication": (
            Panel(
                "Changes of the ISR",
                (
                    Query(f"sum(rate(tidelog_isr_shrinks_total{{{_CLUSTER}}}{_RATE}))", "shrinks"),
                    Query(f"sum(rate(tidelog_isr_expands_total{{{_CLUSTER}}}{_RATE}))", "expands"),
                ),
                "cps",
            ),
            Panel(
                "Elections of leaders",
                (
                    Query(f"sum(increase(tidelog_leader_elections_total{{{_CLUSTER}}}{_RATE}))", "all"),
                    Query(f"sum(increase(tidelog_unclean_leader_elections_total{{{_CLUSTER}}}{_RATE}))", "unclean"),
                ),
            ),
            _graph("Leaders", f"tidelog_leader_partitions{{{_CLUSTER}}}", "{{instance}}"),
            _graph(
                "Free disk space",
                f"tidelog_log_directory_free_bytes{{{_CLUSTER}}} / tidelog_log_directory_size_bytes{{{_CLUSTER}}}",
                "{{instance}} {{directory}}",
                "percentunit",
            ),
        ),
    },
    {},
)

NODE: Final = Dashboard(
    "node",
    "Tidelog: node",
    {
        "Process": (
            _graph(
                "Share of time in which the event loop is busy",
                f"rate(tidelog_event_loop_cpu_seconds_total{{{_NODE}}}{_RATE})",
                "{{instance}}",
                "percentunit",
                "One node uses about one core: at 80 % add nodes.",
            ),
            _graph(
                "Delay of the event loop, 99th percentile",
                _quantile(0.99, "tidelog_event_loop_delay_seconds", "instance", _NODE),
                "{{instance}}",
                "s",
            ),
            _graph("Processor", f"rate(process_cpu_seconds_total{{{_NODE}}}{_RATE})", "{{instance}}", "percentunit"),
            _graph("Resident memory", f"process_resident_memory_bytes{{{_NODE}}}", "{{instance}}", "bytes"),
            _graph("Open file descriptors", f"process_open_fds{{{_NODE}}}", "{{instance}}"),
            _graph("Tasks", f"tidelog_event_loop_tasks{{{_NODE}}}", "{{instance}}"),
        ),
        "Requests": (
            _graph(
                "Requests of Kafka clients",
                f'sum by (api) (rate({_REQUEST}_count{{{_NODE},phase="total"}}{_RATE}))',
                "{{api}}",
                "reqps",
            ),
            _graph(
                "Time of Kafka requests, 99th percentile",
                _quantile(0.99, _REQUEST, "api", f'{_NODE},phase="total"'),
                "{{api}}",
                "s",
            ),
            _graph(
                "Phases of produce requests, 99th percentile",
                _quantile(0.99, _REQUEST, "phase", f'{_NODE},api="PRODUCE"'),
                "{{phase}}",
                "s",
            ),
            _graph(
                "Calls over gRPC",
                f'sum by (api) (rate({_CALL}_count{{{_NODE},phase="total"}}{_RATE}))',
                "{{api}}",
                "reqps",
            ),
            _graph(
                "Time of gRPC calls, 99th percentile",
                _quantile(0.99, _CALL, "api", f'{_NODE},phase="total"'),
                "{{api}}",
                "s",
            ),
            _graph(
                "Failed gRPC calls",
                f"sum by (api, error) (rate(tidelog_grpc_request_errors_total{{{_NODE}}}{_RATE}))",
                "{{api}} {{error}}",
                "reqps",
            ),
        ),
        "Logs": (
            _graph("Requests that wait", f"tidelog_purgatory_requests{{{_NODE}}}", "{{instance}} {{operation}}"),
            _graph("Lag of followers", f"tidelog_follower_lag_max_records{{{_NODE}}}", "{{instance}} to {{follower}}"),
            _graph(
                "Flushes, 99th percentile",
                _quantile(0.99, "tidelog_log_flush_duration_seconds", "instance", _NODE),
                "{{instance}}",
                "s",
            ),
            _graph(
                "Bytes read by the cleaner",
                _traffic("tidelog_log_cleaner_read_bytes_total", "instance", _NODE),
                "{{instance}}",
                "Bps",
            ),
        ),
    },
    {"instance": "tidelog_partitions"},
)

TOPIC: Final = Dashboard(
    "topic",
    "Tidelog: topics",
    {
        "Traffic": (
            _graph(
                "Produced bytes", _traffic("tidelog_topic_received_bytes_total", "topic", _TOPIC), "{{topic}}", "Bps"
            ),
            _graph(
                "Produced records",
                _traffic("tidelog_topic_received_records_total", "topic", _TOPIC),
                "{{topic}}",
                "cps",
            ),
            _graph("Consumed bytes", _traffic("tidelog_topic_sent_bytes_total", "topic", _TOPIC), "{{topic}}", "Bps"),
            _graph(
                "Replicated bytes",
                _traffic("tidelog_topic_replication_sent_bytes_total", "topic", _TOPIC),
                "{{topic}}",
                "Bps",
            ),
        ),
        "Storage": (
            _graph(
                "Size of all replicas",
                f"sum by (topic) (tidelog_topic_log_size_bytes{{{_TOPIC}}})",
                "{{topic}}",
                "bytes",
            ),
            _graph(
                "Topics without series of their own",
                f"tidelog_topics_without_own_metrics{{{_CLUSTER}}}",
                "{{instance}}",
            ),
        ),
    },
    {"topic": "tidelog_topic_log_size_bytes"},
)

GROUP: Final = Dashboard(
    "group",
    "Tidelog: groups",
    {
        "Lag": (
            _graph("Lag", f"sum by (group) (tidelog_group_lag_records{{{_GROUP}}})", "{{group}}"),
            _graph(
                "Lag by topic", f"sum by (group, topic) (tidelog_group_lag_records{{{_GROUP}}})", "{{group}} {{topic}}"
            ),
            _graph(
                "Consumed records",
                f"sum by (group) (deriv(tidelog_group_committed_offset{{{_GROUP}}}{_RATE}))",
                "{{group}}",
                "cps",
            ),
            _graph(
                "Largest lag of a partition", f"max by (group) (tidelog_group_lag_records{{{_GROUP}}})", "{{group}}"
            ),
        ),
        "Coordinators": (
            _graph(
                "Groups by state", f"sum by (protocol, state) (tidelog_groups{{{_CLUSTER}}})", "{{protocol}} {{state}}"
            ),
            _graph(
                "Shards",
                f"sum by (coordinator, state) (tidelog_coordinator_shards{{{_CLUSTER}}})",
                "{{coordinator}} {{state}}",
            ),
            _graph(
                "Load of a shard, 99th percentile",
                _quantile(0.99, "tidelog_coordinator_load_duration_seconds", "coordinator", _CLUSTER),
                "{{coordinator}}",
                "s",
            ),
        ),
    },
    {"group": "tidelog_group_lag_records"},
)

QUORUM: Final = Dashboard(
    "quorum",
    "Tidelog: quorum",
    {
        "Quorum": (
            _graph("Leader", f"max by (instance) (tidelog_quorum_leader_id{{{_CLUSTER}}})", "as {{instance}} knows it"),
            _graph("Epoch", f"max(tidelog_quorum_epoch{{{_CLUSTER}}})", "epoch"),
            _graph(
                "Commits, 99th percentile",
                _quantile(0.99, "tidelog_quorum_commit_duration_seconds", "instance", _CLUSTER),
                "{{instance}}",
                "s",
            ),
            _graph(
                "Commits",
                f"sum by (instance) (rate(tidelog_quorum_commit_duration_seconds_count{{{_CLUSTER}}}{_RATE}))",
                "{{instance}}",
                "cps",
            ),
        ),
        "Replicas": (
            _graph("Lag of controllers", _as_the_leader_knows(_LAG, "role, replica"), "{{role}} {{replica}}"),
            _graph(
                "Time since the last contact",
                _as_the_leader_knows("tidelog_quorum_replica_last_contact_seconds", "role, replica"),
                "{{role}} {{replica}}",
                "s",
            ),
            _graph("Lag of nodes", _as_the_leader_knows("tidelog_metadata_node_lag_records", "node"), "node {{node}}"),
            _graph(
                "Entries behind the latest snapshot",
                f"max(tidelog_metadata_snapshot_lag_records{{{_CLUSTER}}})",
                "entries",
            ),
        ),
    },
    {},
)

CLIENTS: Final = Dashboard(
    "clients",
    "Tidelog: clients",
    {
        "Connections": (
            _graph(
                "Connections of Kafka clients",
                f"sum by (listener) (tidelog_kafka_connections{{{_NODE}}})",
                "{{listener}}",
            ),
            _graph(
                "New connections",
                f"sum by (listener) (rate(tidelog_kafka_connections_accepted_total{{{_NODE}}}{_RATE}))",
                "{{listener}}",
                "cps",
            ),
            Panel(
                "Refused connections",
                (
                    Query(
                        _traffic("tidelog_kafka_connections_refused_total", "listener, limit", _NODE),
                        "{{listener}} {{limit}}",
                    ),
                    Query(
                        _traffic("tidelog_grpc_connections_refused_total", "listener, limit", _NODE),
                        "{{listener}} {{limit}}",
                    ),
                ),
                "cps",
            ),
            _graph("Fetch sessions", f"tidelog_fetch_sessions{{{_NODE}}}", "{{instance}}"),
        ),
        "Security": (
            _graph(
                "Logins",
                f"sum by (listener, mechanism, result) (rate(tidelog_logins_total{{{_NODE}}}{_RATE}))",
                "{{listener}} {{mechanism}} {{result}}",
                "cps",
            ),
            _graph(
                "Refused operations",
                _traffic(
                    "tidelog_authorizer_decisions_total", "operation, resource_type", f'{_NODE},decision="denied"'
                ),
                "{{operation}} {{resource_type}}",
                "cps",
            ),
            _graph(
                "Time until certificates expire",
                f"tidelog_certificate_expiry_timestamp_seconds{{{_NODE}}} - time()",
                "{{instance}} {{listener}}",
                "s",
            ),
        ),
        "Quotas": (
            _graph(
                "Delayed requests",
                _traffic("tidelog_quota_throttled_requests_total", "quota", _NODE),
                "{{quota}}",
                "reqps",
            ),
            _graph("Delay", _traffic("tidelog_quota_throttle_time_seconds_total", "quota", _NODE), "{{quota}}", "s"),
        ),
    },
    {"instance": "tidelog_partitions"},
)

DASHBOARDS: Final = (CLUSTER, NODE, TOPIC, GROUP, QUORUM, CLIENTS)


def main() -> int:
    """Compare the dashboards with their declarations, or write them."""
    is_stale = False
    for dashboard in DASHBOARDS:
        path, fresh = FOLDER / f"{dashboard.name}.json", render(dashboard)
        if "--write" in sys.argv[1:]:
            path.write_text(fresh, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != fresh:
            print(f"stale: {path.name}; run `make docs`", file=sys.stderr)
            is_stale = True
    return int(is_stale)


def render(dashboard: Dashboard) -> str:
    """Return the JSON of a dashboard, as Grafana 10 and newer import it."""
    model = {
        "uid": f"tidelog-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["tidelog"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "links": [{"type": "dashboards", "tags": ["tidelog"], "title": "Tidelog", "asDropdown": True}],
        "templating": {"list": [*_variables(dashboard)]},
        "panels": [*_panels(dashboard)],
    }
    return json.dumps(model, indent=2) + "\n"


def _variables(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus"}
    yield _variable("cluster", 'label_values(up{job=~"tidelog.*"}, cluster)', is_multi=False)
    for label, metric in dashboard.variables.items():
        yield _variable(label, f"label_values({metric}{{{_CLUSTER}}}, {label})", is_multi=True)


def _variable(name: str, query: str, *, is_multi: bool) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "refresh": 2,
        "includeAll": is_multi,
        "multi": is_multi,
        **({"current": {"text": "All", "value": "$__all"}} if is_multi else {}),
    }


def _panels(dashboard: Dashboard) -> Iterator[dict[str, Any]]:
    top = number = 0
    for title, panels in dashboard.rows.items():
        number += 1
        yield {"id": number, "type": "row", "title": title, "gridPos": _position(0, top, _COLUMNS, 1), "panels": []}
        top += 1
        in_row = len(panels) if panels[0].is_stat else 2
        height = _STAT_HEIGHT if panels[0].is_stat else _HEIGHT
        width = _COLUMNS // in_row
        for index, panel in enumerate(panels):
            number += 1
            row, column = divmod(index, in_row)
            yield _panel(panel, number, _position(column * width, top + row * height, width, height))
        top += -(-len(panels) // in_row) * height


def _position(x: int, y: int, width: int, height: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": width, "h": height}


def _panel(panel: Panel, number: int, position: dict[str, int]) -> dict[str, Any]:
    steps = [{"color": "green", "value": None}]
    if panel.bad_from is not None:
        steps.append({"color": "red", "value": panel.bad_from})  # type: ignore[dict-item]
    return {
        "id": number,
        "type": "stat" if panel.is_stat else "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": position,
        "fieldConfig": {"defaults": {"unit": panel.unit, "thresholds": {"mode": "absolute", "steps": steps}, "min": 0}},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": query.expression,
                "legendFormat": query.legend,
            }
            for index, query in enumerate(panel.queries)
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
