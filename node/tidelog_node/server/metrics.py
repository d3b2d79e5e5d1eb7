"""All metrics of a node, and those of its service, which exist from the first image on."""

from __future__ import annotations

from typing import Final

from tidelog_foundation.authorization import counted
from tidelog_foundation.metrics import Metric
from tidelog_foundation.monitoring import event_loop
from tidelog_foundation.monitoring.monitor import Monitor
from tidelog_foundation.sasl import login_counts
from tidelog_foundation.security import metrics as security
from tidelog_foundation.transport import call_times
from tidelog_node.coordination import metrics as coordination
from tidelog_node.kafka.server import connection_counts, request_times
from tidelog_node.links import metrics as links
from tidelog_node.partitions import metrics as partitions
from tidelog_node.quotas import throttle_counts
from tidelog_node.server import loaded_snapshots, state_metrics
from tidelog_node.telemetry import client_telemetry

DECLARED: Final[tuple[tuple[str, tuple[Metric, ...]], ...]] = (
    ("Event loop", event_loop.METRICS),
    ("State", (*state_metrics.METRICS, *loaded_snapshots.METRICS)),
    ("Partitions and logs", partitions.METRICS),
    ("Groups and coordinators", coordination.METRICS),
    ("Cluster links", links.METRICS),
    ("Requests", (*request_times.METRICS, *call_times.METRICS)),
    ("Connections of Kafka clients", connection_counts.METRICS),
    ("Security", (*security.METRICS, *login_counts.METRICS, *counted.METRICS)),
    ("Quotas", throttle_counts.METRICS),
    ("Client metrics", client_telemetry.METRICS),
)
"""The metrics of a node by subject."""


def add_service_metrics(
    monitor: Monitor,
    of_partitions: partitions.PartitionMetrics,
    snapshots: loaded_snapshots.LoadedSnapshots,
    of_links: links.LinkMetrics,
    of_coordinators: coordination.CoordinatorMetrics,
) -> None:
    """Add the metrics of the parts that a node's service consists of to the page of its process."""
    for source in (of_partitions.families, snapshots.families, of_links.families, of_coordinators.families):
        monitor.add(source)
    monitor.add_blocking(of_partitions.spaces)
