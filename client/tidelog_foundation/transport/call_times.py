"""The times and errors of gRPC calls with one response, by method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.metrics import Family, Histogram, Kind, Metric

CALL_TIME: Final = Metric(
    "tidelog_grpc_request_duration_seconds",
    Kind.HISTOGRAM,
    "The time of gRPC calls with one response, from their arrival until the response is ready, waits included.",
    unit="seconds",
    labels=("api",),
    kafka=("kafka.network:type=RequestMetrics,request=*,name=TotalTimeMs",),
    buckets=(
        *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
        *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    ),
)
CALL_ERRORS: Final = Metric(
    "tidelog_grpc_request_errors_total",
    Kind.COUNTER,
    "The gRPC calls that have failed as a whole, by Kafka's name of the error.",
    labels=("api", "error"),
    kafka=("kafka.network:type=RequestMetrics,request=*,name=ErrorsPerSec,error=*",),
)
METRICS: Final = (CALL_TIME, CALL_ERRORS)


class CallTimes:
    """The calls of a server since its start."""

    def __init__(self) -> None:
        self._times: dict[str, Histogram] = {}
        self._errors: Counter[tuple[str, str]] = Counter()

    def observe(self, method: str, duration_ns: int) -> None:
        """Count a call that has ended."""
        times = self._times.get(method)
        if times is None:
            times = self._times[method] = CALL_TIME.histogram()
        times.observe(duration_ns)

    def fail(self, method: str, code: ErrorCode) -> None:
        """Count an error of a call."""
        self._errors[method, code.name] += 1

    def families(self) -> Iterable[Family]:
        """Return the times and errors of the methods that have been called."""
        yield CALL_TIME.of({(method,): times.snapshot() for method, times in self._times.items()})
        yield CALL_ERRORS.of(self._errors)
