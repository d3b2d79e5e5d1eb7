"""Metrics in the formats of Prometheus and OpenMetrics, by prometheus-client."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import accumulate

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector, openmetrics
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, choose_encoder
from prometheus_client.metrics_core import Metric as ExposedMetric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from tidelog_foundation.metrics import Family, Labels, Metric, Snapshot
from tidelog_foundation.metrics.declaration import values_by_metric


class Format(Enum):
    """The formats, by their content types. All names are valid in both, so that no escaping of names is needed."""

    TEXT = CONTENT_TYPE_PLAIN_0_0_4
    OPENMETRICS = openmetrics.exposition.CONTENT_TYPE_LATEST

    @classmethod
    def accepted(cls, accept: str) -> Format:
        """Return the best format that an ``Accept`` header names, or the text format if it is malformed."""
        try:
            _, content_type = choose_encoder(accept)
        except (TypeError, ValueError):
            # The library compares the versions in the header before it checks them.
            return cls.TEXT
        return cls.OPENMETRICS if content_type.startswith("application/openmetrics-text") else cls.TEXT


class Exposition:
    """Renders families in a thread beside the event loop, with the process's own metrics: CPU, memory, files, GC."""

    def __init__(self) -> None:
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    def render(self, families: Sequence[Family], format_: Format) -> bytes:
        """Return the text in a format."""
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collected(families))
        registry.register(self._process)
        encode, _ = choose_encoder(format_.value)
        return encode(registry)


class _Collected(Collector):
    """The families of one scrape."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[ExposedMetric]:
        """Yield the metrics one by one. The event loop can run between two of them."""
        for metric, values in values_by_metric(self._families).items():
            time.sleep(0)
            yield _exposed(metric, values)


def _exposed(metric: Metric, values: Iterable[tuple[Labels, float | Snapshot]]) -> ExposedMetric:
    exposed = ExposedMetric(metric.family_name, metric.help, metric.kind.value, metric.unit)
    for labels, value in values:
        named = dict(zip(metric.labels, labels, strict=True))
        if isinstance(value, Snapshot):
            _add_histogram(exposed, named, value)
        else:
            exposed.add_sample(metric.name, named, value)
    return exposed


def _add_histogram(exposed: ExposedMetric, labels: dict[str, str], value: Snapshot) -> None:
    bounds = [*map(floatToGoString, value.bounds), "+Inf"]
    count = 0
    for bound, count in zip(bounds, accumulate(value.counts), strict=True):
        exposed.add_sample(f"{exposed.name}_bucket", {**labels, "le": bound}, count)
    exposed.add_sample(f"{exposed.name}_count", labels, count)
    exposed.add_sample(f"{exposed.name}_sum", labels, value.total)
