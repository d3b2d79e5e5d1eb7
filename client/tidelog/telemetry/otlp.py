"""The encoder of OpenTelemetry's ``MetricsData`` (opentelemetry-proto, metrics/v1) for the points of a push.

It writes protobuf's wire format itself: the SDK does not depend on OpenTelemetry's package. Gauges and monotonic sums
of numbers are all that the metrics of KIP-714 need.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from tidelog.telemetry.points import TimedPoint

_LENGTH_DELIMITED: Final = 2
_FIXED64: Final = 1
_DELTA, _CUMULATIVE = 1, 2
_SCOPE: Final = "tidelog"


def metrics_data(
    points: Iterable[TimedPoint], resource: Mapping[str, str], now_ns: int, max_bytes: int, *, is_delta: bool
) -> bytes:
    """Return the points as one ``MetricsData`` of at most ``max_bytes`` bytes; points without room are left out.

    ``resource`` has the labels of the client, and ``now_ns`` is the time of the values since the epoch.
    """
    labels = _message(1, b"".join(_attribute(1, key, value) for key, value in resource.items()))
    scope = _message(1, _text(1, _SCOPE))
    # The two messages around the metrics have lengths of at most five bytes each.
    left = max_bytes - len(labels) - len(scope) - 2 * 6
    metrics = []
    for point in points:
        metric = _message(2, _metric(point, now_ns, is_delta))
        left -= len(metric)
        if left < 0:
            break
        metrics.append(metric)
    return _message(1, labels + _message(2, scope + b"".join(metrics)))


def _metric(timed: TimedPoint, now_ns: int, is_delta: bool) -> bytes:
    point = timed.point
    value = point.value
    number = (
        _fixed(2, struct.pack("<Q", timed.start_ns))
        + _fixed(3, struct.pack("<Q", now_ns))
        + (_fixed(6, struct.pack("<q", value)) if isinstance(value, int) else _fixed(4, struct.pack("<d", value)))
        + b"".join(_attribute(7, key, text) for key, text in point.attributes)
    )
    if not point.is_counter:
        return _text(1, point.name) + _message(5, _message(1, number))
    temporality = _DELTA if is_delta else _CUMULATIVE
    return _text(1, point.name) + _message(7, _message(1, number) + bytes((2 << 3, temporality, 3 << 3, 1)))


def _attribute(field: int, key: str, value: str) -> bytes:
    return _message(field, _text(1, key) + _message(2, _text(1, value)))


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())


def _message(field: int, content: bytes) -> bytes:
    return bytes((field << 3 | _LENGTH_DELIMITED,)) + _varint(len(content)) + content


def _fixed(field: int, content: bytes) -> bytes:
    return bytes((field << 3 | _FIXED64,)) + content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
