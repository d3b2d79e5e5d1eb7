"""Exports of metrics and traces to a receiver of OTLP, over both protocols."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

from otlp_receiver import OtlpReceiver, attributes_of, grpc_receiver, http_receiver

from tidelog_foundation.metrics import Family, Kind, Metric
from tidelog_foundation.monitoring.loop_access import LoopBusyError
from tidelog_foundation.otel.environment import GRPC, HTTP, Exports
from tidelog_foundation.otel.export import open_export
from tidelog_foundation.otel.library import OtelExport

COUNTER = Metric("tidelog_things_total", Kind.COUNTER, "Things.", labels=("kind",))
GAUGE = Metric("tidelog_size_bytes", Kind.GAUGE, "A size.", unit="bytes")
TIMES = Metric("tidelog_time_seconds", Kind.HISTOGRAM, "Times.", unit="seconds", buckets=(0.1, 1))
PHASES = {"queue": 1_000_000, "local": 2_000_000, "remote": 500_000_000}


class Request:
    """A request as the log names it."""

    def origin(self) -> str:
        return "10.0.0.7 at PLAINTEXT"

    def request_id(self) -> str:
        return "reports-5f1c09/17"


def families() -> list[Family]:
    times = TIMES.histogram()
    times.observe(50_000_000)
    times.observe(5_000_000_000)
    return [COUNTER.of({("a",): 2}), COUNTER.of({("b",): 3}), GAUGE.of(True), TIMES.of(times.snapshot())]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@contextmanager
def export(receiver: OtlpReceiver, monkeypatch: pytest.MonkeyPatch, exports: Exports) -> Iterator[OtelExport]:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "2")
    opened = OtelExport(exports, "tidelog-node", {"service.instance.id": "7"})
    try:
        yield opened
    finally:
        opened.stop()


@pytest.mark.parametrize(("protocol", "receive"), [(GRPC, grpc_receiver), (HTTP, http_receiver)])
def test_export_sends_the_declared_metrics_and_spans(
    protocol: str,
    receive: Callable[[], contextmanager[OtlpReceiver]],  # type: ignore[valid-type]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test,service.version=9")
    with receive() as receiver:  # type: ignore[attr-defined]
        with export(receiver, monkeypatch, Exports(protocol, protocol, 3_600_000)) as opened:
            opened.start(families)
            assert opened.traces is not None
            opened.traces.record("kafka", "PRODUCE", Request(), 503_000_000, PHASES)
        # The last export is that of the stop.
        things = receiver.metric("tidelog_things_total")
        assert (things.description, things.unit, things.sum.is_monotonic) == ("Things.", "1", True)
        assert {(attributes_of(p.attributes)["kind"], p.as_int) for p in things.sum.data_points} == {("a", 2), ("b", 3)}
        [size] = receiver.metric("tidelog_size_bytes").gauge.data_points
        assert size.as_int == 1
        assert receiver.metric("tidelog_size_bytes").unit == "By"
        [times] = receiver.metric("tidelog_time_seconds").histogram.data_points
        assert (list(times.bucket_counts), list(times.explicit_bounds)) == ([1, 0, 1], [0.1, 1])
        assert (times.count, times.sum, times.HasField("max")) == (2, 5.05, False)
        assert 0 < times.start_time_unix_nano <= times.time_unix_nano
        [span] = receiver.spans
        assert span.span.end_time_unix_nano - span.span.start_time_unix_nano == 503_000_000
        assert span.attributes == {
            "rpc.system": "kafka",
            "rpc.method": "PRODUCE",
            "client.address": "10.0.0.7",
            "tidelog.listener": "PLAINTEXT",
            "messaging.client.id": "reports-5f1c09",
            "tidelog.request.id": "reports-5f1c09/17",
            "tidelog.queue.duration": 0.001,
            "tidelog.local.duration": 0.002,
            "tidelog.remote.duration": 0.5,
        }
        for resource in receiver.resources:
            assert (resource["service.name"], resource["service.instance.id"]) == ("tidelog-node", "7")
            assert (resource["deployment.environment"], resource["service.version"]) == ("test", "9")


def test_failing_export_has_one_line_and_one_when_it_succeeds_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A collector that is away must neither fill the log nor stop the exports."""
    caplog.set_level(logging.INFO)

    def lines() -> list[str]:
        return [f"{line.levelname} {line.getMessage()}" for line in caplog.records]

    with grpc_receiver() as receiver, export(receiver, monkeypatch, Exports(GRPC, None, 10)) as opened:
        calls = 0

        def collect() -> list[Family]:
            nonlocal calls
            calls += 1
            return families()

        receiver.is_refusing = True
        opened.start(collect)
        wait_until(lambda: calls > 5)
        receiver.is_refusing = False
        wait_until(lambda: bool(receiver.metrics) and len(lines()) > 1)
    failed, again = lines()
    assert failed.startswith("WARNING The metrics of this process are not exported by OTLP: Failed to export metrics")
    assert "no such tenant" in failed
    assert again == "INFO The metrics of this process are exported by OTLP again"


def test_export_goes_on_after_an_event_loop_that_did_not_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = iter([LoopBusyError("the event loop has not answered in 9 s")])

    def collect() -> list[Family]:
        for error in answers:
            raise error
        return families()

    with grpc_receiver() as receiver, export(receiver, monkeypatch, Exports(GRPC, None, 10)) as opened:
        opened.start(collect)
        wait_until(lambda: bool(receiver.metrics))
    assert "the event loop has not answered" in caplog.records[0].getMessage()


def test_queue_of_spans_is_bounded_and_full_without_blocking(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no collector, the oldest spans are dropped, and requests do not wait."""
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "50")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "50")
    receiver = OtlpReceiver(port=1)
    with export(receiver, monkeypatch, Exports(None, GRPC)) as opened:
        assert opened.traces is not None
        for _ in range(500):
            opened.traces.record("kafka", "PRODUCE", Request(), 1, PHASES)


def test_process_ends_in_time_without_a_collector(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A stop must not wait for the attempts of exporters. The lines name the cause, not the stop."""
    with export(OtlpReceiver(port=1), monkeypatch, Exports(GRPC, GRPC, 10)) as opened:
        opened.start(families)
        assert opened.traces is not None
        opened.traces.record("kafka", "PRODUCE", Request(), 1, PHASES)
        wait_until(lambda: len(caplog.records) == 2)
        begun_s = time.monotonic()
        opened.stop()
        assert time.monotonic() - begun_s < 2
        assert not [thread for thread in threading.enumerate() if thread.name in ("otel-metrics", "otel-stop")]
    assert all("UNAVAILABLE" in line.getMessage() for line in caplog.records)
    assert {line.getMessage().split()[1] for line in caplog.records} == {"metrics", "traces"}


def test_missing_library_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setitem(sys.modules, "tidelog_foundation.otel.library", None)
    assert open_export("tidelog-node", {}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"}) is None
    [line] = caplog.records
    assert line.levelno == logging.ERROR
    assert "nothing is exported" in line.getMessage()
    assert "pip install 'tidelog[otel]'" in line.getMessage()


@pytest.mark.costly
def test_process_that_nobody_asks_does_not_import_the_library() -> None:
    code = """
import sys
import tidelog, tidelog_node.server.process, tidelog_quorum.server.process
from tidelog_foundation.otel.export import open_export
from tidelog_foundation.otel.propagation import trace_metadata
assert open_export("s", {}, {"OTEL_SERVICE_NAME": "s"}) is None
assert trace_metadata() == ()
loaded = [name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.trace"))]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", code], check=True)
