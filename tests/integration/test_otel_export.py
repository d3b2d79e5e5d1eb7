"""A cluster whose environment asks for OpenTelemetry: its metrics, and the trace of a client's call through it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from otlp_receiver import OtlpReceiver, ReceivedSpan, grpc_receiver

from tidelog import Consumer, Producer
from tidelog.admin import AdminClient, NewTopic
from tidelog.testing import LocalCluster
from tidelog_node.server import metrics as node_metrics
from tidelog_quorum.server import metrics as controller_metrics

DEADLINE_S = 30


@pytest.fixture(scope="module")
def receiver() -> Iterator[OtlpReceiver]:
    with grpc_receiver() as opened:
        yield opened


@pytest.fixture(scope="module")
def cluster(receiver: OtlpReceiver) -> Iterator[LocalCluster]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        environment.setenv("OTEL_METRIC_EXPORT_INTERVAL", "250")
        environment.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        environment.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
        with LocalCluster(controllers=1, nodes=1) as opened:
            yield opened


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_call_of_the_sdk_is_one_trace_from_the_program_to_the_controller(
    cluster: LocalCluster, receiver: OtlpReceiver
) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "client.id": "traced"}) as admin:
        with provider.get_tracer("program").start_as_current_span("provision") as span:
            admin.create_topics([NewTopic("t", 1, 1)])["t"].result(DEADLINE_S)
            trace_id = span.get_span_context().trace_id.to_bytes(16, "big")
            program_id = span.get_span_context().span_id.to_bytes(8, "big")
        untraced = trace.get_current_span()
        assert not untraced.get_span_context().is_valid
        admin.list_topics(timeout=DEADLINE_S)

    def in_trace(service: str) -> list[ReceivedSpan]:
        spans = receiver.spans_of("CreateTopics")
        return [each for each in spans if (each.service, each.span.trace_id) == (service, trace_id)]

    wait_for(lambda: bool(in_trace("tidelog-node")) and bool(in_trace("tidelog-controller")), "both spans")
    [node], [controller] = in_trace("tidelog-node"), in_trace("tidelog-controller")
    assert (node.span.parent_span_id, controller.span.parent_span_id) == (program_id, node.span.span_id)
    request_id = node.attributes["tidelog.request.id"]
    assert request_id.startswith("traced-")
    assert controller.attributes["tidelog.request.id"] == request_id, "the id of the logs leads to both"
    assert node.attributes["tidelog.remote.duration"] > 0
    assert node.attributes["messaging.client.id"] == request_id.rpartition("/")[0]


def test_requests_have_spans_over_both_protocols(cluster: LocalCluster, receiver: OtlpReceiver) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers}
    with Producer(settings) as producer:
        producer.produce("requests", b"x")
        assert producer.flush(DEADLINE_S) == 0
    with Consumer(settings | {"group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["requests"])
        assert len(consumer.consume(1, DEADLINE_S)) == 1
    wait_for(lambda: bool(receiver.spans_of("ProduceStream")) and bool(receiver.spans_of("Fetch")), "spans of gRPC")
    streamed = receiver.spans_of("ProduceStream")[0]
    assert "." in streamed.attributes["tidelog.request.id"].rpartition("/")[2], "the number in the stream"
    assert streamed.attributes["tidelog.local.duration"] > 0


def test_processes_export_all_their_declared_metrics(cluster: LocalCluster, receiver: OtlpReceiver) -> None:
    def names(declared: object) -> set[str]:
        return {metric.name for _, metrics in declared for metric in metrics}  # type: ignore[attr-defined]

    def seen() -> set[str]:
        return {metric.name for metric in list(receiver.metrics)}

    expected = {"tidelog_node_fenced", "tidelog_fetch_sessions", "tidelog_event_loop_cpu_seconds_total"}
    expected |= {"tidelog_active_controller", "tidelog_brokers"}
    wait_for(lambda: expected <= seen(), "the metrics of the node and of the controller")
    assert seen() <= names(node_metrics.DECLARED) | names(controller_metrics.DECLARED)
    services = {(each["service.name"], each["deployment.environment"]) for each in list(receiver.resources)}
    assert services == {("tidelog-node", "test"), ("tidelog-controller", "test")}
