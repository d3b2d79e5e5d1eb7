"""The declaration of metrics.

Each component declares its metrics once, beside its counts: name, kind, unit, help, labels, and Kafka's JMX name. A
source reads their values when a monitoring system asks. Components only count, in plain integers and histograms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Final, TypeAlias, TypeVar

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.metrics.histogram import Buckets, Histogram, Snapshot

Labels: TypeAlias = tuple[str, ...]
"""The values of a metric's labels, in the order of their declaration."""
L = TypeVar("L", bound=Labels)
_NAME: Final = re.compile(r"tidelog(_[a-z][a-z0-9]*)+")
_LABEL: Final = re.compile(r"[a-z][a-z_]*")
_RESERVED: Final = ("_count", "_sum", "_bucket", "_created", "_info")
_TOTAL: Final = "_total"


class Kind(Enum):
    """The kinds of metrics, by Prometheus' names."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """The declaration of a metric, in Prometheus' conventions.

    The name ends with the unit, and then with ``_total`` if it is a counter's. ``unit`` is a base unit such as seconds
    or bytes, or empty for a number of things.

    Raises:
        ValueError: The declaration breaks a convention.
    """

    name: str
    kind: Kind
    help: str
    unit: str = ""
    labels: Labels = ()
    kafka: tuple[str, ...] = ()
    """The names of the corresponding MBeans of Kafka, with their attributes if those have names of their own."""
    buckets: Buckets = ()
    """The bounds of a histogram's buckets, in the unit."""

    def __post_init__(self) -> None:
        for is_kept, convention in self._conventions():
            if not is_kept:
                raise ValueError(f"metric {self.name}: {convention}")

    @property
    def family_name(self) -> str:
        """The name without a counter's suffix."""
        return self.name.removesuffix(_TOTAL)

    def histogram(self, per_unit: int = 1_000_000_000) -> Histogram:
        """Return a new histogram of observations of which ``per_unit`` make one unit."""
        return Histogram(self.buckets, per_unit)

    def of(self, values: Mapping[L, float | Snapshot] | float | Snapshot) -> Family:
        """Return the metric's values by labels, or its only one."""
        if isinstance(values, Mapping):
            return Family(self, dict(values.items()))
        return Family(self, {(): values})

    def _conventions(self) -> Iterable[tuple[bool, str]]:
        is_counter = self.kind is Kind.COUNTER
        yield _NAME.fullmatch(self.name) is not None, "the name has words of lower-case letters and begins with tidelog"
        yield is_counter is self.name.endswith(_TOTAL), "names of counters alone end with _total"
        yield not self.family_name.endswith(_RESERVED), "the name ends with a reserved suffix"
        yield not self.unit or self.family_name.endswith(f"_{self.unit}"), f"the name does not end with {self.unit}"
        yield self.help.endswith(".") and self.help[0].isupper(), "the help is a sentence"
        yield all(map(_LABEL.fullmatch, self.labels)), "a label's name is invalid"
        yield len(set(self.labels)) == len(self.labels), "a label occurs twice"
        yield (self.kind is Kind.HISTOGRAM) is bool(self.buckets), "histograms alone have buckets"
        yield list(self.buckets) == sorted(set(self.buckets)), "the buckets are not in ascending order"


@dataclass(frozen=True, slots=True)
class Family:
    """The values of a metric at a point in time, by the values of its labels."""

    metric: Metric
    values: Mapping[Labels, float | Snapshot]


def values_by_metric(families: Iterable[Family]) -> dict[Metric, list[tuple[Labels, float | Snapshot]]]:
    """Return the values of all families by metric, since several components can have values of one."""
    merged: dict[Metric, list[tuple[Labels, float | Snapshot]]] = {}
    for family in families:
        merged.setdefault(family.metric, []).extend(family.values.items())
    return merged


Source: TypeAlias = Callable[[], Iterable[Family | None]]
"""Reads the current values of some metrics on the event loop of its components.

It may be a generator. Other tasks can run after each value, which is None where nothing but a pause is due.
"""
