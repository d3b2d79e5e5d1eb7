"""The times and errors of gRPC calls, by method and phase, and the log of slow ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from time import perf_counter_ns
from typing import Final

from tidelog_foundation.errors import ErrorCode
from tidelog_foundation.logs.slow_requests import NO_SLOW_REQUESTS, SlowRequests
from tidelog_foundation.metrics import Family, Kind, Metric
from tidelog_foundation.otel.request_traces import NamedRequest, RequestSpan, RequestTraces

CALL_TIME: Final = Metric(
    "tidelog_grpc_request_duration_seconds",
    Kind.HISTOGRAM,
    "The time of gRPC calls with one response, and of the requests of ProduceStream, from their arrival until the "
    "response is ready. Phases: throttle is the delay by quotas; queue the wait for the request and its memory; local "
    "the work of the event loop; remote the waits, such as for replicas, for records or for the controller; total is "
    "their sum. gRPC sends the responses. Every eighth request of ProduceStream counts, and counts eight times.",
    unit="seconds",
    labels=("api", "phase"),
    kafka=tuple(
        f"kafka.network:type=RequestMetrics,request=*,name={name}"
        for name in ("TotalTimeMs", "ThrottleTimeMs", "RequestQueueTimeMs", "LocalTimeMs", "RemoteTimeMs")
    ),
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
OPEN_CALLS: Final = Metric(
    "tidelog_grpc_open_calls",
    Kind.GAUGE,
    "The gRPC calls and streams in progress.",
    labels=("api",),
)
METRICS: Final = (CALL_TIME, CALL_ERRORS, OPEN_CALLS)


_PHASES: Final = ("throttle", "queue", "local", "remote", "total")
_STRIDES: Final = {"ProduceStream": 8}
"""The frequent methods, of which one request in so many counts."""
_WAITING: Final = frozenset(("Fetch", "JoinGroup", "SyncGroup", "HoldConnection"))
"""The methods whose waits are the client's wish."""


class CallTimer:
    """The phases of one request: arrived, admitted by quotas, received, then worked on between enter and leave."""

    __slots__ = ("_admitted_ns", "_arrived_ns", "_entered_ns", "_local_ns", "_received_ns", "error", "span")

    def __init__(self) -> None:
        self._arrived_ns = self._admitted_ns = self._received_ns = self._entered_ns = perf_counter_ns()
        self._local_ns = 0
        self.span: RequestSpan | None = None
        """The span of the request, if the server traces its requests."""
        self.error: str | None = None
        """Kafka's name of the error with which the request has failed."""

    def admit(self) -> None:
        """Record that no quota delays the request any more."""
        self._admitted_ns = self._received_ns = perf_counter_ns()

    def receive(self) -> None:
        """Record that the request and its memory are there."""
        self._received_ns = perf_counter_ns()

    def enter(self) -> None:
        """Begin a step of work."""
        self._entered_ns = perf_counter_ns()

    def leave(self) -> None:
        """End a step of work."""
        self._local_ns += perf_counter_ns() - self._entered_ns

    def phases(self) -> tuple[int, int, int, int, int]:
        """Return the nanoseconds of each phase of a request that ends now."""
        now_ns, local_ns = perf_counter_ns(), self._local_ns
        return (
            self._admitted_ns - self._arrived_ns,
            self._received_ns - self._admitted_ns,
            local_ns,
            max(0, now_ns - self._received_ns - local_ns),
            now_ns - self._arrived_ns,
        )


class _MethodTimes:
    """The histograms of one method."""

    def __init__(self, method: str) -> None:
        self.stride = _STRIDES.get(method, 1)
        self.uncounted = 0
        self.of_phases = tuple(CALL_TIME.histogram() for _ in _PHASES)

    def count(self, phases: tuple[int, ...]) -> None:
        """Count a request, unless it is one of those that another one stands for."""
        if self.uncounted:
            self.uncounted -= 1
            return
        self.uncounted = self.stride - 1
        for histogram, time_ns in zip(self.of_phases, phases, strict=True):
            histogram.observe(time_ns, self.stride)


class CallTimes:
    """The calls of a server since its start."""

    def __init__(self, slow: SlowRequests = NO_SLOW_REQUESTS, traces: RequestTraces | None = None) -> None:
        self._slow = slow
        self.traces = traces
        """The traces of requests, None if they are not exported."""
        self._times: dict[str, _MethodTimes] = {}
        self._errors: Counter[tuple[str, str]] = Counter()
        self._open: Counter[tuple[str]] = Counter()

    def open(self, method: str) -> None:
        """Count a call or stream that begins."""
        self._open[(method,)] += 1

    def close(self, method: str) -> None:
        """Count the end of a call or stream."""
        self._open[(method,)] -= 1

    def end(self, method: str, timer: CallTimer, request: NamedRequest) -> None:
        """Count a request that ends now, report it if it was slow, and trace it."""
        phases = timer.phases()
        times = self._times.get(method)
        if times is None:
            times = self._times[method] = _MethodTimes(method)
        times.count(phases)
        *_, remote_ns, total_ns = phases
        threshold_ns = self._slow.threshold_ns
        if total_ns >= threshold_ns and (method not in _WAITING or total_ns - remote_ns >= threshold_ns):
            named = dict(zip(_PHASES[:-1], phases, strict=False))
            self._slow.report(method, request.origin(), request.request_id(), total_ns, named)
        if self.traces is not None:
            self._trace(self.traces, method, timer, request, phases)

    def fail(self, method: str, code: ErrorCode, timer: CallTimer | None = None) -> None:
        """Count an error of a call, whose timer remembers it."""
        self._errors[method, code.name] += 1
        if timer is not None:
            timer.error = code.name

    def families(self) -> Iterable[Family]:
        """Return the times and errors of the methods that have been called."""
        yield CALL_TIME.of(
            {
                (method, phase): histogram.snapshot()
                for method, times in self._times.items()
                for phase, histogram in zip(_PHASES, times.of_phases, strict=True)
            }
        )
        yield CALL_ERRORS.of(self._errors)
        yield OPEN_CALLS.of(self._open)

    def _trace(
        self, traces: RequestTraces, method: str, timer: CallTimer, request: NamedRequest, phases: tuple[int, ...]
    ) -> None:
        named = dict(zip(_PHASES[:-1], phases, strict=False))
        if timer.span is not None:
            timer.span.end(request, named, timer.error)
        else:
            traces.record("grpc", method, request, phases[-1], named)
