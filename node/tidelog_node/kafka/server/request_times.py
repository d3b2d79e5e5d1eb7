"""The times of the requests to the Kafka listeners, by API and phase.

A measured request costs two or three microseconds. Produce and Fetch are so frequent that only every eighth request is
measured, and counts eight times. Nothing distinguishes it from the others, so that percentiles stay the same.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from time import perf_counter_ns
from typing import Final

from tidelog_foundation.metrics import Family, Kind, Metric, Snapshot
from tidelog_node.kafka.protocol.api_keys import ApiKey

_REQUEST: Final = "kafka.network:type=RequestMetrics,request=*"
_PHASES: Final = {
    "queue": "RequestQueueTimeMs",
    "local": "LocalTimeMs",
    "remote": "RemoteTimeMs",
    "send": "ResponseSendTimeMs",
    "total": "TotalTimeMs",
}
REQUEST_TIME: Final = Metric(
    "tidelog_kafka_request_duration_seconds",
    Kind.HISTOGRAM,
    "The time of requests to the Kafka listeners. Phases: queue is the wait of a received request for its turn; local "
    "the work of the event loop; remote the waits, such as for replicas, for records or for the controller; send the "
    "wait of the response for its turn and for the kernel; total is from the arrival to the kernel's receipt. Every "
    "eighth Produce and Fetch is measured, and counts eight times.",
    unit="seconds",
    labels=("api", "phase"),
    kafka=(
        *(f"{_REQUEST},name={name}" for name in _PHASES.values()),
        f"{_REQUEST},name=ResponseQueueTimeMs (send)",
        f"{_REQUEST},name=RequestsPerSec (the count of total)",
    ),
    buckets=(
        *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
        *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    ),
)
METRICS: Final = (REQUEST_TIME,)
_NANOSECONDS: Final = 1_000_000_000
_LIMITS: Final = [round(bound * _NANOSECONDS) for bound in REQUEST_TIME.buckets]
_STRIDES: Final = {ApiKey.PRODUCE: 8, ApiKey.FETCH: 8}
"""The frequent APIs, of which one request in so many is measured."""
_QUEUE, _LOCAL, _REMOTE, _SEND, _TOTAL = range(5)


class RequestTimer:
    """The phases of one request: begun, then worked on between ``enter`` and ``leave``, answered, sent."""

    __slots__ = ("_answered_ns", "_begun_ns", "_entered_ns", "_local_ns", "_received_ns", "_times")

    def __init__(self, times: ApiTimes, received_ns: int) -> None:
        self._times = times
        self._received_ns = received_ns
        self._begun_ns = self._entered_ns = self._answered_ns = perf_counter_ns()
        self._local_ns = 0

    def enter(self) -> None:
        """Begin a step of work."""
        self._entered_ns = perf_counter_ns()

    def leave(self) -> None:
        """End a step of work."""
        self._local_ns += perf_counter_ns() - self._entered_ns

    def answer(self) -> None:
        """Record that the response is ready."""
        self._answered_ns = perf_counter_ns()

    def end(self, now_ns: int) -> None:
        """Record that the kernel has the response, and count the request."""
        answered_ns, begun_ns, local_ns = self._answered_ns, self._begun_ns, self._local_ns
        received_ns = self._received_ns
        self._times.count(
            begun_ns - received_ns,
            local_ns,
            max(0, answered_ns - begun_ns - local_ns),
            now_ns - answered_ns,
            now_ns - received_ns,
        )


class ApiTimes:
    """The histograms of an API. One method counts all phases, since every request pays for it."""

    __slots__ = ("_stride", "_unmeasured", "counts", "sums")

    def __init__(self, stride: int = 1) -> None:
        """Measure one of ``stride`` requests."""
        self._stride = stride
        self._unmeasured = 0
        """The number of requests before the next one that is measured."""
        self.counts = tuple([0] * (len(_LIMITS) + 1) for _ in _PHASES)
        self.sums = [0] * len(_PHASES)

    def timer(self, received_ns: int) -> RequestTimer | None:
        """Return the timer of a request that begins now, or None if it is not measured."""
        if self._unmeasured:
            self._unmeasured -= 1
            return None
        self._unmeasured = self._stride - 1
        return RequestTimer(self, received_ns)

    def count(self, queue_ns: int, local_ns: int, remote_ns: int, send_ns: int, total_ns: int) -> None:
        """Count a measured request for all that it stands for."""
        limits, sums, number = _LIMITS, self.sums, self._stride
        queue, local, remote, send, total = self.counts
        queue[bisect_left(limits, queue_ns)] += number
        local[bisect_left(limits, local_ns)] += number
        remote[bisect_left(limits, remote_ns)] += number
        send[bisect_left(limits, send_ns)] += number
        total[bisect_left(limits, total_ns)] += number
        sums[_QUEUE] += queue_ns * number
        sums[_LOCAL] += local_ns * number
        sums[_REMOTE] += remote_ns * number
        sums[_SEND] += send_ns * number
        sums[_TOTAL] += total_ns * number

    def snapshots(self) -> Mapping[str, Snapshot]:
        """Return the histograms by phase."""
        return {
            phase: Snapshot(REQUEST_TIME.buckets, tuple(counts), total / _NANOSECONDS)
            for phase, counts, total in zip(_PHASES, self.counts, self.sums, strict=True)
        }


class RequestTimes:
    """The times of all APIs that a node serves."""

    def __init__(self, api_keys: Iterable[int]) -> None:
        self.of = {key: ApiTimes(_STRIDES.get(ApiKey(key), 1)) for key in api_keys}
        """The times by API key."""

    def families(self) -> Iterable[Family]:
        """Return the times of the APIs that have been requested."""
        yield REQUEST_TIME.of(
            {
                (ApiKey(key).name, phase): snapshot
                for key, times in self.of.items()
                if any(times.counts[_TOTAL])
                for phase, snapshot in times.snapshots().items()
            }
        )
