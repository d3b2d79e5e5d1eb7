"""Server spans of calls, and the trace context between processes."""

from __future__ import annotations

import contextvars

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from tidelog_foundation.otel.propagation import trace_metadata
from tidelog_foundation.otel.spans import OtelTraces

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


class Request:
    def origin(self) -> str:
        return "10.0.0.7"

    def request_id(self) -> str:
        return "c/1"


@pytest.fixture
def exported() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traces(exported: InMemorySpanExporter) -> OtelTraces:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exported))
    return OtelTraces(provider.get_tracer("test"))


def test_span_of_a_call_continues_the_callers_trace_and_is_passed_on(
    traces: OtelTraces, exported: InMemorySpanExporter
) -> None:
    def call() -> tuple[tuple[str, str], ...]:
        span = traces.begin("CreateTopics", [("traceparent", PARENT), ("other-bin", b"x")])
        onwards = trace_metadata()
        span.end(Request(), {"local": 1_000_000_000}, "TOPIC_ALREADY_EXISTS")
        return onwards

    [(name, onwards)] = contextvars.copy_context().run(call)
    [span] = exported.get_finished_spans()
    assert span.context is not None
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, "b7ad6b7169203331")
    assert (name, onwards) == ("traceparent", f"00-{TRACE}-{span.context.span_id:016x}-01")
    assert span.attributes is not None
    assert span.attributes["error.type"] == "TOPIC_ALREADY_EXISTS"
    assert span.attributes["tidelog.local.duration"] == 1.0
    assert trace_metadata() == (), "the context of the test has no span"


@pytest.mark.parametrize("parent", ["", "garbage", f"00-{'0' * 32}-b7ad6b7169203331-01", "00-" + "f" * 4096])
def test_invalid_traceparent_begins_a_trace_of_its_own(
    parent: str, traces: OtelTraces, exported: InMemorySpanExporter
) -> None:
    def call() -> None:
        traces.begin("Fetch", [("traceparent", parent)]).end(Request(), {}, None)

    contextvars.copy_context().run(call)
    [span] = exported.get_finished_spans()
    assert span.parent is None


def test_caller_that_does_not_sample_is_followed(traces: OtelTraces, exported: InMemorySpanExporter) -> None:
    def call() -> tuple[tuple[str, str], ...]:
        traces.begin("Fetch", [("traceparent", PARENT[:-1] + "0")]).end(Request(), {}, None)
        return trace_metadata()

    [(_, onwards)] = contextvars.copy_context().run(call)
    assert onwards.endswith("-00")
    assert not exported.get_finished_spans()


def test_span_that_has_ended_is_not_sent_by_tasks_that_outlive_it() -> None:
    """A client's background task keeps the context of the application's call that has begun it."""
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")

    def background() -> None:
        span = tracer.start_span("main")
        context.attach(trace.set_span_in_context(span))
        assert trace_metadata()
        span.end()
        assert trace_metadata() == ()

    contextvars.copy_context().run(background)


def test_span_that_is_not_sampled_says_so() -> None:
    tracer = TracerProvider(ALWAYS_OFF, shutdown_on_exit=False).get_tracer("test")

    def call() -> None:
        context.attach(trace.set_span_in_context(tracer.start_span("main")))
        [(_, value)] = trace_metadata()
        # The other flag says that the id of the trace is random.
        assert int(value[-2:], 16) & 1 == 0

    contextvars.copy_context().run(call)
