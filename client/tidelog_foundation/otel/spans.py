"""The server spans of requests, by OpenTelemetry's SDK."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from opentelemetry.context import Context, attach
from opentelemetry.propagate import extract
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context

from tidelog_foundation.logs.request_id import safe_request_id
from tidelog_foundation.otel.request_traces import NamedRequest

_SECOND_NS: Final = 1_000_000_000
_NO_PARENT: Final = Context()


class SampledSpan:
    """The span of a call in progress, a ``RequestSpan``."""

    __slots__ = ("_span",)

    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, request: NamedRequest, phases_ns: Mapping[str, int], error: str | None) -> None:
        """End the span with its attributes, which a request without a sampled span does not compute."""
        span = self._span
        if span.is_recording():
            span.set_attributes(_attributes(request, phases_ns))
            if error is not None:
                span.set_attribute("error.type", error)
                span.set_status(StatusCode.ERROR)
        span.end()


class OtelTraces:
    """Makes spans with a tracer: :class:`~tidelog_foundation.otel.request_traces.RequestTraces`."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def begin(self, api: str, metadata: Iterable[tuple[str, str | bytes]]) -> SampledSpan:
        """Begin the span of a call, and make it the current one of the call's task."""
        parent = extract({name: value for name, value in metadata if isinstance(value, str)}, _NO_PARENT)
        attributes = {"rpc.system": "grpc", "rpc.method": api}
        span = self._tracer.start_span(api, parent, SpanKind.SERVER, attributes)
        attach(set_span_in_context(span, parent))
        return SampledSpan(span)

    def record(
        self, protocol: str, api: str, request: NamedRequest, total_ns: int, phases_ns: Mapping[str, int]
    ) -> None:
        """Record a request that ends now."""
        now_ns = time.time_ns()
        attributes = {"rpc.system": protocol, "rpc.method": api}
        span = self._tracer.start_span(api, _NO_PARENT, SpanKind.SERVER, attributes, start_time=now_ns - total_ns)
        if span.is_recording():
            span.set_attributes(_attributes(request, phases_ns))
        span.end(now_ns)


def _attributes(request: NamedRequest, phases_ns: Mapping[str, int]) -> dict[str, str | float]:
    request_id = safe_request_id(request.request_id())
    address, _, listener = request.origin().partition(" at ")
    of_listener = {"tidelog.listener": listener} if listener else {}
    return (
        of_listener
        | {
            "client.address": address,
            "messaging.client.id": request_id.rpartition("/")[0],
            "tidelog.request.id": request_id,
        }
        | {f"tidelog.{phase}.duration": time_ns / _SECOND_NS for phase, time_ns in phases_ns.items()}
    )
