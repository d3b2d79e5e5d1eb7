"""The exports that OpenTelemetry's environment variables ask for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.otel.environment import GRPC, HTTP, Exports, requested_exports

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317"}


@pytest.mark.parametrize(
    ("environment", "metrics", "traces"),
    [
        ({}, None, None),
        ({"OTEL_SERVICE_NAME": "s", "OTEL_RESOURCE_ATTRIBUTES": "a=b", "OTEL_TRACES_SAMPLER": "always_on"}, None, None),
        (ENDPOINT, GRPC, GRPC),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, None, None),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "True"}, None, None),
        (ENDPOINT | {"OTEL_SDK_DISABLED": "no"}, GRPC, GRPC),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}, GRPC, None),
        (ENDPOINT | {"OTEL_METRICS_EXPORTER": "none"}, None, GRPC),
        ({"OTEL_METRICS_EXPORTER": "otlp"}, GRPC, None),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c"}, None, GRPC),
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, HTTP, HTTP),
        (
            ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc"},
            GRPC,
            HTTP,
        ),
    ],
)
def test_environment_asks_for_signals(environment: dict[str, str], metrics: str | None, traces: str | None) -> None:
    exports = requested_exports(environment)
    assert (exports.metrics, exports.traces, exports.refused) == (metrics, traces, ())


@pytest.mark.parametrize(
    ("variable", "value", "text"),
    [
        ("OTEL_METRICS_EXPORTER", "prometheus", "'prometheus'; only otlp and none are supported"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json", "'http/json', which must be one of grpc, http/protobuf"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "1s", "'1s', which must be a number of milliseconds"),
        ("OTEL_METRIC_EXPORT_INTERVAL", "0", "'0', which must be a number of milliseconds"),
        ("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta", "'delta'; metrics are always cumulative"),
    ],
)
def test_value_that_is_not_supported_is_named(variable: str, value: str, text: str) -> None:
    refused = requested_exports(ENDPOINT | {variable: value}).refused
    assert any(line.startswith(variable) and text in line for line in refused), refused


def test_interval_of_metrics_has_the_default_of_the_specification() -> None:
    assert requested_exports(ENDPOINT).interval_ms == 60_000
    assert requested_exports(ENDPOINT | {"OTEL_METRIC_EXPORT_INTERVAL": "500"}).interval_ms == 500


NAMES = (
    "OTEL_METRICS_EXPORTER",
    "OTEL_TRACES_EXPORTER",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
    "OTEL_METRIC_EXPORT_INTERVAL",
    "OTEL_SERVICE_NAME",
)


@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=12)))
def test_environment_without_an_endpoint_or_exporter_exports_nothing(environment: dict[str, str]) -> None:
    exports = requested_exports(environment)
    wanted = {name for name in NAMES[:2] if "otlp" in environment.get(name, "").split(",")}
    if not wanted:
        named = [value for value in environment.values() if "otlp" in value]
        assert named or exports == Exports(refused=exports.refused)
