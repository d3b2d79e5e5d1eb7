"""The values that clients push: what is read from a push, and the bounds of what is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.records.compression import compress
from tidelog_node.telemetry.otlp import points_of
from tidelog_node.telemetry.pushed import MAX_TEXT, Point, PushedSeries

LIMIT = 100_000


def message() -> bytes:
    data = otlp.MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    sent = metrics.add(name="sent.total")
    sent.sum.is_monotonic, sent.sum.aggregation_temporality = True, otlp.AGGREGATION_TEMPORALITY_DELTA
    point = sent.sum.data_points.add(as_int=3)
    point.attributes.add(key="topic").value.string_value = "t"
    point.attributes.add(key="partition").value.int_value = 0
    metrics.add(name="queue.latency").gauge.data_points.add(as_double=1.5)
    size = metrics.add(name="size")
    size.histogram.aggregation_temporality = otlp.AGGREGATION_TEMPORALITY_CUMULATIVE
    size.histogram.data_points.add(count=2, sum=7.0)
    return data.SerializeToString()


POINTS = [
    Point("sent.total", "partition=0,topic=t", 3.0, True, True),
    Point("queue.latency", "", 1.5, False, False),
    Point("size.count", "", 2.0, True, False),
    Point("size.sum", "", 7.0, True, False),
]


@pytest.mark.parametrize(("number", "name"), [(0, "none"), (1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")])
def test_push_is_read_in_every_compression(number: int, name: str) -> None:
    assert points_of(number, compress(name, message(), -1 if name == "gzip" else None), LIMIT) == POINTS


@pytest.mark.parametrize("number", range(5))
def test_other_bytes_are_an_invalid_record(number: int) -> None:
    with pytest.raises(TidelogError) as refused:
        points_of(number, b"\xff" * 50, LIMIT)
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_push_that_grows_beyond_the_limit_is_too_large() -> None:
    with pytest.raises(TidelogError) as refused:
        points_of(4, compress("zstd", bytes(10 * LIMIT), None), LIMIT)
    assert refused.value.code is ErrorCode.TELEMETRY_TOO_LARGE


def test_deltas_of_counters_add_up_and_other_values_replace() -> None:
    series = PushedSeries(10, 10)
    series.add("c", "i", POINTS)
    series.add("c", "i", POINTS)
    assert {each.metric: each.value for each in series} == {
        "sent.total": 6.0,
        "queue.latency": 1.5,
        "size.count": 2.0,
        "size.sum": 7.0,
    }
    assert series.dropped == 0


def test_series_beyond_the_limits_are_dropped_and_counted() -> None:
    series = PushedSeries(max_clients=2, max_series=3)
    for number in range(3):
        series.add("c", str(number), [Point(f"m{each}", "", 1.0, True, True) for each in range(2)])
    assert series.number == len(list(series)) == 3
    assert series.dropped == 3
    series.forget("0")
    assert series.number == 1
    series.add("c", "2", POINTS[:2])
    assert series.number == 3
    series.add("c", "2", [Point("x" * (MAX_TEXT + 1), "", 1.0, True, True), Point("sent.total", "", -1.0, True, True)])
    assert series.dropped == 5


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=60))
def test_number_of_series_is_right_whatever_comes_and_goes(steps: list[tuple[int, int, bool]]) -> None:
    series = PushedSeries(max_clients=3, max_series=7)
    for client, metric, is_gone in steps:
        if is_gone:
            series.forget(str(client))
        else:
            series.add("c", str(client), [Point(f"m{metric}", "", 1.0, True, True)])
        kept = list(series)
        assert series.number == len(kept) <= 7
        assert len({each.client_instance_id for each in kept}) <= 3
