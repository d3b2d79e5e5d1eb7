"""The delays that quotas impose on clients, counted by quota."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

from tidelog_foundation.metrics import Family, Kind, Metric

_MILLISECONDS: Final = 1_000
THROTTLED: Final = Metric(
    "tidelog_quota_throttled_requests_total",
    Kind.COUNTER,
    "Requests after which a client was delayed because it exceeded a quota.",
    labels=("quota",),
    kafka=("kafka.server:type={Produce|Fetch|Request|ControllerMutation},user=*,client-id=*",),
)
THROTTLE_TIME: Final = Metric(
    "tidelog_quota_throttle_time_seconds_total",
    Kind.COUNTER,
    "The delays of clients that exceeded a quota.",
    unit="seconds",
    labels=("quota",),
    kafka=("kafka.server:type={Produce|Fetch|Request|ControllerMutation},user=*,client-id=*: throttle-time",),
)
METRICS: Final = (THROTTLED, THROTTLE_TIME)


class ThrottleCounts:
    """The number of delays of each quota, and their sum."""

    def __init__(self, quotas: Iterable[Enum]) -> None:
        self._counts = dict.fromkeys(quotas, (0, 0))

    def count(self, quota: Enum, delay_ms: int) -> None:
        """Count a delay."""
        count, sum_ms = self._counts[quota]
        self._counts[quota] = count + 1, sum_ms + delay_ms

    def families(self) -> Iterable[Family]:
        """Return the counts."""
        names = {quota.name.lower(): counts for quota, counts in self._counts.items()}
        yield THROTTLED.of({(name,): count for name, (count, _) in names.items()})
        yield THROTTLE_TIME.of({(name,): sum_ms / _MILLISECONDS for name, (_, sum_ms) in names.items()})
