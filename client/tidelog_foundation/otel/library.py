"""The exports of a process by OpenTelemetry's SDK and its exporters, in threads of their own."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Final

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from tidelog_foundation.metrics import Family
from tidelog_foundation.monitoring.loop_access import LoopBusyError
from tidelog_foundation.otel.environment import GRPC, Exports
from tidelog_foundation.otel.failures import ExportState, LibraryLines
from tidelog_foundation.otel.metric_data import metrics_data
from tidelog_foundation.otel.request_traces import RequestTraces
from tidelog_foundation.otel.spans import OtelTraces

_SCOPE: Final = "tidelog"
_MAX_POINTS: Final = 5_000
"""The data points of one request, which has about 100 bytes of each. Collectors take 4 MiB by default."""
_STOP_S: Final = 3.0
"""The longest wait for the last export of each signal."""


class OtelExport:
    """The exports of a process, from :meth:`start` to :meth:`stop`."""

    def __init__(self, exports: Exports, service: str, attributes: Mapping[str, str]) -> None:
        """Create the exporters, which read their own variables. ``attributes`` describe the process.

        Raises:
            ValueError: A variable is invalid.
            OSError: A certificate cannot be read.
        """
        self._lines = LibraryLines()
        self._is_stopped = False
        resource = _resource(service, attributes)
        self._metrics: _MetricExport | None = None
        self._spans: _WatchedSpans | None = None
        self._provider: TracerProvider | None = None
        self.traces: RequestTraces | None = None
        """The traces of requests, if they are exported."""
        if exports.metrics is not None:
            state = ExportState("metrics", self._lines)
            interval_s = exports.interval_ms / 1_000
            self._metrics = _MetricExport(_metric_exporter(exports.metrics), resource, interval_s, state)
        if exports.traces is not None:
            self._spans = _WatchedSpans(_span_exporter(exports.traces), ExportState("traces", self._lines))
            self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
            self._provider.add_span_processor(BatchSpanProcessor(self._spans))
            self.traces = OtelTraces(self._provider.get_tracer(_SCOPE, version("tidelog")))
        self._lines.install()

    def start(self, collect: Callable[[], list[Family]]) -> None:
        """Begin to export metrics. ``collect`` reads them, in a thread, and may raise :class:`LoopBusyError`."""
        if self._metrics is not None:
            self._metrics.start(collect)

    def stop(self) -> None:
        """Export what is left, unless exports fail, and end. It takes a few seconds at most; call it in a thread.

        Another call has no effect.
        """
        if self._is_stopped:
            return
        self._is_stopped = True
        # The library waits for up to 30 s for each signal.
        ends = (self._stop_metrics, self._stop_traces)
        threads = [threading.Thread(target=end, name="otel-stop", daemon=True) for end in ends]
        for thread in threads:
            thread.start()
        deadline_s = time.monotonic() + _STOP_S
        for thread in threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        self._lines.remove()

    def _stop_metrics(self) -> None:
        if self._metrics is not None:
            self._metrics.stop()

    def _stop_traces(self) -> None:
        if self._provider is not None and self._spans is not None:
            self._spans.give_up_if_failing()
            self._provider.shutdown()


class _MetricExport:
    """Exports metrics at an interval, in a daemon thread."""

    def __init__(self, exporter: MetricExporter, resource: Resource, interval_s: float, state: ExportState) -> None:
        self._exporter = exporter
        self._resource = resource
        self._scope = InstrumentationScope(_SCOPE, version("tidelog"))
        self._interval_s = interval_s
        self._state = state
        self._start_ns = time.time_ns()
        self._is_stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, collect: Callable[[], list[Family]]) -> None:
        self._thread = threading.Thread(target=self._run, args=(collect,), name="otel-metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping.set()
        if self._thread is not None and not self._state.is_failing:
            self._thread.join(_STOP_S)
        self._exporter.shutdown()
        if self._thread is not None:
            # The shutdown ends the attempts of a failing export, which has a last line about it.
            self._thread.join(_STOP_S)

    def _run(self, collect: Callable[[], list[Family]]) -> None:
        while not self._is_stopping.wait(self._interval_s):
            self._export(collect)
        if not self._state.is_failing:
            self._export(collect)

    def _export(self, collect: Callable[[], list[Family]]) -> None:
        try:
            data = metrics_data(collect(), self._resource, self._scope, self._start_ns, time.time_ns())
            is_exported = self._exporter.export(data) is MetricExportResult.SUCCESS
        except LoopBusyError as error:
            self._state.failed(str(error))
        except Exception as error:  # noqa: BLE001  # an exporter must not end the thread, nor harm the process
            self._state.failed(f"{type(error).__name__}: {error}")
        else:
            if is_exported:
                self._state.succeeded()
            else:
                self._state.failed()


class _WatchedSpans(SpanExporter):
    """An exporter of spans whose failures have one line, in the thread of the batch processor."""

    def __init__(self, exporter: SpanExporter, state: ExportState) -> None:
        self._exporter = exporter
        self._state = state

    def give_up_if_failing(self) -> None:
        """End the exporter at once, so that nobody waits for its attempts."""
        if self._state.is_failing:
            self._exporter.shutdown()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        try:
            result = self._exporter.export(spans)
        except Exception as error:  # noqa: BLE001  # as above
            self._state.failed(f"{type(error).__name__}: {error}")
            return SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self._state.succeeded()
        else:
            self._state.failed()
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return bool(self._exporter.force_flush(timeout_millis))


def _resource(service: str, attributes: Mapping[str, str]) -> Resource:
    """Return the resource. OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES take precedence over the process's own."""
    own = Resource({"service.name": service, "service.version": version("tidelog"), "process.pid": os.getpid()})
    own = own.merge(Resource(dict(attributes))).merge(OTELResourceDetector().detect())
    return Resource.create(own.attributes)


def _metric_exporter(protocol: str) -> MetricExporter:
    # Each import takes a tenth of a second.
    if protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter

        return OTLPMetricExporter(max_export_batch_size=_MAX_POINTS)
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetricExporter

    return HttpMetricExporter(max_export_batch_size=_MAX_POINTS)


def _span_exporter(protocol: str) -> SpanExporter:
    if protocol == GRPC:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        return OTLPSpanExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpanExporter

    return HttpSpanExporter()
