"""The operator's metrics: what its reconciliations did, how long they took, and the state of its resources.

The counts are plain, and only the event loop of kopf uses them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from tidelog_foundation.metrics import Family, Histogram, Kind, Metric

RECONCILIATIONS: Final = Metric(
    "tidelog_operator_reconciliations_total",
    Kind.COUNTER,
    "Reconciliations by kind of the resource and reason of its condition; the API server did not answer with "
    "KubernetesError.",
    labels=("kind", "reason"),
)
TIME: Final = Metric(
    "tidelog_operator_reconciliation_duration_seconds",
    Kind.HISTOGRAM,
    "The time of reconciliations by kind of the resource.",
    unit="seconds",
    labels=("kind",),
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0),
)
RESOURCES: Final = Metric(
    "tidelog_operator_resources",
    Kind.GAUGE,
    "Resources by kind, and by status and reason of their condition Ready, as of their last reconciliation.",
    labels=("kind", "ready", "reason"),
)
RESTARTS: Final = Metric(
    "tidelog_operator_restarts_total",
    Kind.COUNTER,
    "Pods that the operator has restarted for a new template or address, by role.",
    labels=("role",),
)
METRICS: Final = (RECONCILIATIONS, TIME, RESOURCES, RESTARTS)
DECLARED: Final[tuple[tuple[str, tuple[Metric, ...]], ...]] = (("Reconciliations", METRICS),)
"""The metrics of the operator by subject."""


class OperatorMetrics:
    """The counts of one operator. The series of a resource's condition end with the resource."""

    def __init__(self) -> None:
        self._reconciliations: Counter[tuple[str, str]] = Counter()
        self._times: dict[tuple[str], Histogram] = {}
        self._conditions: dict[tuple[str, str], tuple[str, str]] = {}
        self._restarts: Counter[tuple[str]] = Counter()

    def reconciled(self, kind: str, name: str, *, is_ready: bool, reason: str, duration_ns: int) -> None:
        """Count a reconciliation and its outcome."""
        self._reconciliations[kind, reason] += 1
        self._times.setdefault((kind,), TIME.histogram()).observe(duration_ns)
        self._conditions[kind, name] = ("true" if is_ready else "false", reason)

    def unanswered(self, kind: str) -> None:
        """Count a reconciliation whose resource could not be read, or whose status could not be written."""
        self._reconciliations[kind, "KubernetesError"] += 1

    def restarted(self, role: str) -> None:
        """Count a restarted pod."""
        self._restarts[role,] += 1

    def forget(self, kind: str, name: str) -> None:
        """Drop a resource that is gone."""
        self._conditions.pop((kind, name), None)

    def read(self) -> Iterable[Family]:
        """Return all values."""
        resources = Counter((kind, *condition) for (kind, _), condition in self._conditions.items())
        yield RECONCILIATIONS.of(self._reconciliations)
        yield TIME.of({labels: each.snapshot() for labels, each in self._times.items()})
        yield RESOURCES.of(resources)
        yield RESTARTS.of(self._restarts)
