"""The values of metrics, as components give them."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog_foundation.metrics import Family, Metric, Snapshot


def values(families: Iterable[Family], metric: Metric) -> dict[tuple[str, ...], float | Snapshot]:
    """Return the values of a metric by labels."""
    return {labels: value for family in families if family.metric is metric for labels, value in family.values.items()}
