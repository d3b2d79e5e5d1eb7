"""The values of pushes: statistics over the last minute, temporality, and OpenTelemetry's encoding."""

from __future__ import annotations

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

from tidelog.telemetry.measures import (
    ConnectionMeasures,
    ConsumerMeasures,
    IdleTime,
    ProducerMeasures,
    RebalanceMeasures,
)
from tidelog.telemetry.otlp import metrics_data
from tidelog.telemetry.points import Ledger, Point, TimedPoint
from tidelog.telemetry.sampled import Sampled

VALUES = st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False))
TEXTS = st.text(max_size=20)
POINTS = st.builds(Point, TEXTS, VALUES, st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple), st.booleans())
CREATION = "org.apache.kafka.producer.connection.creation.total"


def test_statistics_forget_values_after_a_minute() -> None:
    values = Sampled()
    assert (values.average(0), values.maximum(0), values.per_second(0)) == (None, None, 0.0)
    values.record(6, 1_000)
    values.record(2, 2_000)
    values.record(1, 40_000)
    assert (values.average(40_000), values.maximum(40_000)) == (3, 6)
    assert values.per_second(40_000) == pytest.approx(9 / 39)
    assert (values.average(62_000), values.maximum(62_000)) == (1, 1)
    assert values.average(101_000) is None


@given(st.lists(st.tuples(st.integers(0, 20_000), st.floats(0, 1e6)), min_size=1))
def test_statistics_cover_the_values_of_the_last_30_s_and_none_older_than_a_minute(
    steps: list[tuple[int, float]],
) -> None:
    values, now_ms = Sampled(), 0
    recorded: list[tuple[int, float]] = []
    for pause_ms, value in steps:
        now_ms += pause_ms
        values.record(value, now_ms)
        recorded.append((now_ms, value))
    within = {limit: [v for at, v in recorded if at > now_ms - limit] for limit in (30_000, 60_000)}
    greatest = values.maximum(now_ms)
    assert greatest is not None
    assert max(within[30_000]) <= greatest <= max(within[60_000])


def test_deltas_lose_nothing_to_a_refusal_and_count_nothing_twice() -> None:
    ledger = Ledger(100)

    def drawn(value: int, now_ns: int, *, is_delta: bool = True) -> tuple[float, int]:
        (timed,) = ledger.draw([Point("n", value, is_counter=True)], now_ns, is_delta=is_delta)
        return timed.point.value, timed.start_ns

    assert drawn(5, 200) == (5, 100)
    ledger.take_back()
    assert drawn(7, 300) == (7, 100)
    ledger.settle()
    assert drawn(9, 400) == (2, 300)
    ledger.settle()
    assert drawn(9, 500, is_delta=False) == (9, 100)
    ledger.settle()
    assert drawn(10, 600) == (10, 100)


@settings(max_examples=examples(30))
@given(st.lists(POINTS, max_size=5), st.dictionaries(TEXTS, TEXTS, max_size=3), st.booleans())
def test_opentelemetry_reads_what_is_encoded(points: list[Point], labels: dict[str, str], is_delta: bool) -> None:
    data = metrics_data([TimedPoint(point, 5) for point in points], labels, 9, 1_000_000, is_delta=is_delta)
    (found,) = MetricsData.FromString(data).resource_metrics
    assert {each.key: each.value.string_value for each in found.resource.attributes} == labels
    (scope,) = found.scope_metrics
    assert len(scope.metrics) == len(points)
    for metric, point in zip(scope.metrics, points, strict=True):
        (number,) = (metric.sum if point.is_counter else metric.gauge).data_points
        assert metric.name == point.name
        assert getattr(number, number.WhichOneof("value")) == point.value
        assert (number.start_time_unix_nano, number.time_unix_nano) == (5, 9)
        assert tuple((each.key, each.value.string_value) for each in number.attributes) == point.attributes
        if point.is_counter:
            assert metric.sum.is_monotonic
            assert metric.sum.aggregation_temporality == (1 if is_delta else 2)


@settings(max_examples=examples(30))
@given(st.lists(POINTS, max_size=8), st.integers(50, 1_000))
def test_encoding_keeps_to_its_limit_and_drops_points_from_the_end(points: list[Point], limit: int) -> None:
    data = metrics_data([TimedPoint(point, 5) for point in points], {}, 9, limit, is_delta=False)
    assert len(data) <= limit
    names = [metric.name for metric in MetricsData.FromString(data).resource_metrics[0].scope_metrics[0].metrics]
    assert names == [point.name for point in points][: len(names)]


def test_producer_has_the_required_metrics() -> None:
    connections, producer = ConnectionMeasures(), ProducerMeasures()
    for began_ms, now_ms in ((0, 4), (5, 7)):
        connections.begin("h:1")
        connections.answered("h:1", began_ms, now_ms)
    producer.queue_time.record(3, 10)
    producer.throttle_time.record(0, 10)
    prefix = "org.apache.kafka.producer"
    found = [*producer.points(prefix, 10), *connections.points(prefix, 10, {"h:1": 2})]
    assert {(point.name.removeprefix(f"{prefix}."), *point.attributes) for point in found} == {
        ("connection.creation.rate",),
        ("connection.creation.total",),
        ("node.request.latency.avg", ("node_id", "2")),
        ("node.request.latency.max", ("node_id", "2")),
        ("produce.throttle.time.avg",),
        ("produce.throttle.time.max",),
        ("record.queue.time.avg",),
        ("record.queue.time.max",),
    }
    assert [point for point in found if point.is_counter] == [Point(CREATION, 1, is_counter=True)]


def test_consumer_has_the_required_metrics() -> None:
    consumer = ConsumerMeasures(0)
    for sampled in (consumer.fetches, consumer.commits):
        sampled.record(1, 10)
    consumer.rebalances.begin(1)
    consumer.rebalances.end(4)
    found = {point.name for point in consumer.points("c", 10, 3, has_group=True)}
    assert found == {
        "c.coordinator.assigned.partitions",
        "c.coordinator.commit.latency.avg",
        "c.coordinator.commit.latency.max",
        "c.coordinator.rebalance.latency.avg",
        "c.coordinator.rebalance.latency.max",
        "c.coordinator.rebalance.latency.total",
        "c.fetch.manager.fetch.latency.avg",
        "c.fetch.manager.fetch.latency.max",
        "c.poll.idle.ratio.avg",
    }


def test_connection_counts_again_after_a_failure() -> None:
    connections, wakes = ConnectionMeasures(), []
    connections.on_connect = lambda: wakes.append(1)
    assert connections.least_loaded(None) is None
    for is_answered in (True, True, False, True):
        connections.begin("h:1")
        if is_answered:
            connections.answered("h:1", 0, 1)
        else:
            connections.failed("h:1", is_connected=False)
            assert connections.least_loaded("h:1") is None
    created = [point.value for point in connections.points("c", 1, {}) if point.is_counter]
    assert (created, len(wakes)) == ([2], 2)


def test_telemetry_stays_with_its_node_and_moves_to_the_least_loaded_one() -> None:
    connections = ConnectionMeasures()
    for address, in_flight in (("a:1", 2), ("b:1", 1), ("c:1", 0)):
        for _ in range(in_flight + 1):
            connections.begin(address)
        connections.answered(address, 0, 1)
    assert connections.least_loaded("a:1") == "a:1"
    assert connections.least_loaded("gone:1") == "c:1"


def test_idle_ratio_is_that_of_the_time_since_the_last_push() -> None:
    idle = IdleTime(0)
    idle.begin(10)
    idle.end(40)
    idle.begin(90)
    assert idle.ratio(100) == 0.4
    idle.end(150)
    assert idle.ratio(200) == 0.5
    assert idle.ratio(200) is None


def test_rebalance_lasts_from_its_first_beginning() -> None:
    rebalances = RebalanceMeasures()
    rebalances.end(3)
    assert not [*rebalances.points("c", 3)]
    for now_ms in (5, 9):
        rebalances.begin(now_ms)
    rebalances.end(12)
    assert [point.value for point in rebalances.points("c", 12)] == [7, 7, 7]
