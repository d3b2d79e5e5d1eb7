"""A receiver of OTLP, as a collector: over gRPC, and over HTTP with protobuf."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics_pb
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_pb
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

_METRICS = "opentelemetry.proto.collector.metrics.v1.MetricsService"
_TRACES = "opentelemetry.proto.collector.trace.v1.TraceService"


@dataclass(slots=True)
class ReceivedSpan:
    """A span, and the service that has sent it."""

    service: str
    span: Span

    @property
    def attributes(self) -> dict[str, Any]:
        return attributes_of(self.span.attributes)


@dataclass(slots=True)
class OtlpReceiver:
    """The spans and metrics that have arrived. Requests are refused while ``is_refusing``."""

    port: int = 0
    is_refusing: bool = False
    resources: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    spans: list[ReceivedSpan] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def metric(self, name: str) -> Metric:
        """Return the newest values of a metric."""
        return [metric for metric in list(self.metrics) if metric.name == name][-1]

    def spans_of(self, name: str) -> list[ReceivedSpan]:
        return [span for span in list(self.spans) if span.span.name == name]

    def take_metrics(self, request: metrics_pb.ExportMetricsServiceRequest) -> metrics_pb.ExportMetricsServiceResponse:
        for each in request.resource_metrics:
            self.resources.append(attributes_of(each.resource.attributes))
            for scope in each.scope_metrics:
                self.metrics += scope.metrics
        return metrics_pb.ExportMetricsServiceResponse()

    def take_spans(self, request: trace_pb.ExportTraceServiceRequest) -> trace_pb.ExportTraceServiceResponse:
        for each in request.resource_spans:
            resource = attributes_of(each.resource.attributes)
            self.resources.append(resource)
            self.spans += [ReceivedSpan(resource["service.name"], span) for s in each.scope_spans for span in s.spans]
        return trace_pb.ExportTraceServiceResponse()


def attributes_of(pairs: Any) -> dict[str, Any]:
    """Return attributes as a dict of Python's values."""
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


@contextmanager
def grpc_receiver(port: int = 0) -> Iterator[OtlpReceiver]:
    """Receive OTLP over gRPC on loopback."""
    receiver = OtlpReceiver()

    def handled(take: Any, request: Any) -> grpc.RpcMethodHandler[Any, Any]:
        def answer(message: Any, context: Any) -> Any:
            if receiver.is_refusing:
                context.abort(grpc.StatusCode.PERMISSION_DENIED, "no such tenant")
            return take(message)

        return grpc.unary_unary_rpc_method_handler(answer, request.FromString, lambda reply: reply.SerializeToString())

    server = grpc.server(ThreadPoolExecutor(2))
    metrics = {"Export": handled(receiver.take_metrics, metrics_pb.ExportMetricsServiceRequest)}
    traces = {"Export": handled(receiver.take_spans, trace_pb.ExportTraceServiceRequest)}
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(_METRICS, metrics), grpc.method_handlers_generic_handler(_TRACES, traces))
    )
    receiver.port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    try:
        yield receiver
    finally:
        server.stop(0).wait()


@contextmanager
def http_receiver() -> Iterator[OtlpReceiver]:
    """Receive OTLP over HTTP with protobuf on loopback."""
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                content = gzip.decompress(content)
            if self.path == "/v1/metrics":
                reply: Any = receiver.take_metrics(metrics_pb.ExportMetricsServiceRequest.FromString(content))
            else:
                assert self.path == "/v1/traces"
                reply = receiver.take_spans(trace_pb.ExportTraceServiceRequest.FromString(content))
            body = reply.SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
