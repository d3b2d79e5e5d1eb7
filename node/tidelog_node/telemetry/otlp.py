"""The points of a push: OpenTelemetry's ``MetricsData`` in protobuf. It runs in a thread.

The package is imported with the first push, since most nodes never receive one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records.compression import OversizedRecordsError, codec_name, decompress
from tidelog_node.telemetry.pushed import Point

NO_COMPRESSION: Final = 0


def points_of(compression: int, data: bytes, max_bytes: int) -> list[Point]:
    """Return the points of a push whose data have at most ``max_bytes`` without compression.

    A histogram becomes the counters ``.count`` and ``.sum``.

    Raises:
        TidelogError: TELEMETRY_TOO_LARGE, or INVALID_RECORD for other data.
    """
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    try:
        raw = data if compression == NO_COMPRESSION else decompress(codec_name(compression), data, max_bytes)
    except OversizedRecordsError as error:
        text = f"the metrics have more than {max_bytes} bytes without compression"
        raise error_for(ErrorCode.TELEMETRY_TOO_LARGE, text) from error
    except TidelogError as error:
        raise error_for(ErrorCode.INVALID_RECORD, f"the metrics cannot be decompressed: {error.message}") from error
    try:
        message = MetricsData.FromString(bytes(raw))
    except DecodeError as error:
        raise error_for(
            ErrorCode.INVALID_RECORD, f"the metrics are not OpenTelemetry's MetricsData: {error}"
        ) from error
    return list(_points(message))


def _points(message: Any) -> Iterator[Point]:
    for of_resource in message.resource_metrics:
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                yield from _of_metric(metric)


def _of_metric(metric: Any) -> Iterator[Point]:
    kind = metric.WhichOneof("data")
    if kind == "gauge":
        for point in metric.gauge.data_points:
            yield Point(metric.name, _attributes(point), _number(point), False, False)
    elif kind == "sum":
        is_delta = _is_delta(metric.sum)
        for point in metric.sum.data_points:
            yield Point(metric.name, _attributes(point), _number(point), metric.sum.is_monotonic, is_delta)
    elif kind == "histogram":
        is_delta = _is_delta(metric.histogram)
        for point in metric.histogram.data_points:
            attributes = _attributes(point)
            yield Point(f"{metric.name}.count", attributes, float(point.count), True, is_delta)
            yield Point(f"{metric.name}.sum", attributes, point.sum, True, is_delta)


def _is_delta(data: Any) -> bool:
    return bool(data.aggregation_temporality == 1)


def _number(point: Any) -> float:
    return float(point.as_int if point.WhichOneof("value") == "as_int" else point.as_double)


def _attributes(point: Any) -> str:
    return ",".join(sorted(f"{each.key}={_text(each.value)}" for each in point.attributes))


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    return "" if kind is None else str(getattr(value, kind))
