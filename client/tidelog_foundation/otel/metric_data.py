"""The values of declared metrics in OpenTelemetry's data model, cumulative since the start of the process."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.metrics.export import Metric as MetricData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from tidelog_foundation.metrics import Family, Kind, Labels, Metric, Snapshot
from tidelog_foundation.metrics.declaration import values_by_metric

_UCUM: Final = {"seconds": "s", "bytes": "By", "": "1"}
"""OpenTelemetry's units of Prometheus' ones. Others are numbers of things, as {records}."""
_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


def metrics_data(
    families: Iterable[Family], resource: Resource, scope: InstrumentationScope, start_ns: int, now_ns: int
) -> MetricsData:
    """Return the families as one export. Names, labels, help and buckets are those of Prometheus' exposition.

    ``start_ns`` is the wall-clock time from which counters count. Other threads can run between two metrics.
    """
    metrics = []
    for metric, values in values_by_metric(families).items():
        time.sleep(0)
        if values:
            metrics.append(_metric_data(metric, values, start_ns, now_ns))
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(scope, metrics, "")], "")])


def _metric_data(
    metric: Metric, values: Sequence[tuple[Labels, float | Snapshot]], start_ns: int, now_ns: int
) -> MetricData:
    unit = _UCUM.get(metric.unit, f"{{{metric.unit}}}")
    return MetricData(metric.name, metric.help, unit, _points(metric, values, start_ns, now_ns))


def _points(
    metric: Metric, values: Sequence[tuple[Labels, float | Snapshot]], start_ns: int, now_ns: int
) -> Sum | Gauge | HistogramData:
    numbers: list[NumberDataPoint] = []
    histograms: list[HistogramDataPoint] = []
    for labels, value in values:
        attributes = dict(zip(metric.labels, labels, strict=True))
        if isinstance(value, Snapshot):
            histograms.append(_histogram(attributes, value, start_ns, now_ns))
        else:
            numbers.append(NumberDataPoint(attributes, start_ns, now_ns, _number(value)))
    if metric.kind is Kind.HISTOGRAM:
        return HistogramData(histograms, _CUMULATIVE)
    return Sum(numbers, _CUMULATIVE, is_monotonic=True) if metric.kind is Kind.COUNTER else Gauge(numbers)


def _number(value: float) -> float:
    # OTLP has integers and doubles, but no booleans.
    return int(value) if isinstance(value, bool) else value


def _histogram(attributes: Mapping[str, str], value: Snapshot, start_ns: int, now_ns: int) -> HistogramDataPoint:
    unknown: Any = None
    """The extremes, which OTLP need not have."""
    count = sum(value.counts)
    return HistogramDataPoint(
        attributes, start_ns, now_ns, count, value.total, value.counts, value.bounds, min=unknown, max=unknown
    )
