"""All metrics of a controller."""

from __future__ import annotations

from typing import Final

from tidelog_foundation.authorization import counted
from tidelog_foundation.metrics import Metric
from tidelog_foundation.monitoring import event_loop
from tidelog_foundation.sasl import login_counts
from tidelog_foundation.security import metrics as security
from tidelog_foundation.transport import call_times, grpc_connections
from tidelog_quorum.server import controller_metrics

DECLARED: Final[tuple[tuple[str, tuple[Metric, ...]], ...]] = (
    ("Quorum and cluster", controller_metrics.METRICS),
    ("Requests", call_times.METRICS),
    ("Connections", grpc_connections.METRICS),
    ("Event loop", event_loop.METRICS),
    ("Security", (*security.METRICS, *login_counts.METRICS, *counted.METRICS)),
)
"""The metrics of a controller by subject."""
