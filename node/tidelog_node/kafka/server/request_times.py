"""The times of the requests to the Kafka listeners, by API and phase.

To count a request costs two microseconds. Produce and Fetch are so frequent that only every eighth request counts, and
counts eight times. Nothing distinguishes it from the others, so that percentiles stay the same. The log of slow
requests sees all of them.
"""

from __future__ import annotations

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from time import perf_counter_ns
from typing import Final

from tidelog_foundation.logs.slow_requests import NO_SLOW_REQUESTS, SlowRequests
from tidelog_foundation.metrics import Family, Kind, Metric, Snapshot
from tidelog_foundation.otel.request_traces import RequestTraces
from tidelog_node.kafka.protocol.api_keys import ApiKey
from tidelog_node.kafka.protocol.pipeline import Exchange

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
    "eighth Produce and Fetch counts, and counts eight times.",
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
"""The frequent APIs, of which one request in so many counts."""
_WAITING: Final = frozenset((ApiKey.FETCH.name, ApiKey.JOIN_GROUP.name, ApiKey.SYNC_GROUP.name))
"""The APIs whose waits are the client's wish."""
_QUEUE, _LOCAL, _REMOTE, _SEND, _TOTAL = range(5)


class TimedExchange(Exchange):
    """A request with the times of its phases: received, begun, worked on between ``enter`` and ``leave``, answered.

    The connection sets ``answered_ns``, since a method call for each time would cost more than the time itself.
    """

    __slots__ = ("answered_ns", "begun_ns", "entered_ns", "is_counted", "local_ns", "received_ns", "times")

    def __init__(
        self, correlation_id: int, times: ApiTimes, received_ns: int, *, overlaps: bool, has_tags: bool
    ) -> None:
        super().__init__(correlation_id, overlaps=overlaps, has_tags=has_tags)
        self.times = times
        self.is_counted = times.is_next_counted()
        self.received_ns = received_ns
        self.begun_ns = self.entered_ns = self.answered_ns = perf_counter_ns()
        self.local_ns = 0

    def enter(self) -> None:
        """Begin a step of work."""
        self.entered_ns = perf_counter_ns()

    def leave(self) -> None:
        """End a step of work."""
        self.local_ns += perf_counter_ns() - self.entered_ns

    def end(self, now_ns: int) -> None:
        """Count the request, whose response the kernel has, report it if it was slow, and trace it."""
        times = self.times
        if self.is_counted:
            times.count(*self._phases(now_ns))
        if now_ns - self.received_ns >= times.slow.threshold_ns:
            self._report(now_ns)
        if times.traces is not None:
            *_, total_ns = phases = self._phases(now_ns)
            times.traces.record("kafka", times.api, self, total_ns, dict(zip(_PHASES, phases[:-1], strict=False)))

    @abstractmethod
    def origin(self) -> str:
        """Return the address of the client, for the log."""

    @abstractmethod
    def request_id(self) -> str:
        """Return the client's name of the request, for the log."""

    @abstractmethod
    def throttle_ns(self) -> int:
        """Return the time for which quotas delay the client after the response."""

    def _phases(self, now_ns: int) -> tuple[int, int, int, int, int]:
        answered_ns, begun_ns, local_ns = self.answered_ns, self.begun_ns, self.local_ns
        received_ns = self.received_ns
        remote_ns = max(0, answered_ns - begun_ns - local_ns)
        return begun_ns - received_ns, local_ns, remote_ns, now_ns - answered_ns, now_ns - received_ns

    def _report(self, now_ns: int) -> None:
        times = self.times
        queue_ns, local_ns, remote_ns, send_ns, total_ns = self._phases(now_ns)
        if times.waits_as_asked and total_ns - remote_ns < times.slow.threshold_ns:
            return
        phases = {"queue": queue_ns, "local": local_ns, "remote": remote_ns, "send": send_ns}
        phases["throttle"] = self.throttle_ns()
        times.slow.report(times.api, self.origin(), self.request_id(), total_ns, phases)


class ApiTimes:
    """The histograms of an API. One method counts all phases, since every request pays for it."""

    __slots__ = ("_stride", "_uncounted", "api", "counts", "slow", "sums", "traces", "waits_as_asked")

    def __init__(
        self,
        stride: int = 1,
        api: str = "",
        slow: SlowRequests = NO_SLOW_REQUESTS,
        traces: RequestTraces | None = None,
    ) -> None:
        """Count one of ``stride`` requests."""
        self._stride = stride
        self._uncounted = 0
        """The number of requests before the next one that counts."""
        self.api = api
        self.slow = slow
        self.traces = traces
        self.waits_as_asked = api in _WAITING
        """True if the remote phase is a wait that the client asks for."""
        self.counts = tuple([0] * (len(_LIMITS) + 1) for _ in _PHASES)
        self.sums = [0] * len(_PHASES)

    def is_next_counted(self) -> bool:
        """Return whether the request that begins now counts, for all that it stands for."""
        if self._uncounted:
            self._uncounted -= 1
            return False
        self._uncounted = self._stride - 1
        return True

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

    def __init__(
        self, api_keys: Iterable[int], slow: SlowRequests = NO_SLOW_REQUESTS, traces: RequestTraces | None = None
    ) -> None:
        self.of = {key: ApiTimes(_STRIDES.get(ApiKey(key), 1), ApiKey(key).name, slow, traces) for key in api_keys}
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
