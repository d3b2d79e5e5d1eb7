"""Lag and throughput from Spark's progress, in logs and gauges."""

from __future__ import annotations

import json
import logging
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent

from tidelog_spark.progress import LagListener, QueryLag, lag

ID = "00000000-0000-0000-0000-000000000001"
RUN = "00000000-0000-0000-0000-000000000002"
SOURCE = {
    "description": "tidelog",
    "startOffset": None,
    "endOffset": {"t": {"0": 10, "1": 5}},
    "latestOffset": {"t": {"0": 17, "1": 5, "2": 4}, "@ids": {"t": "x"}, "@start": None, "@lost": 9, "@lostAtMost": 12},
    "numInputRows": 3,
    "inputRowsPerSecond": 2.0,
    "processedRowsPerSecond": 6.0,
    "metrics": {},
}


def progress_of(*sources: dict[str, Any], **other: object) -> dict[str, Any]:
    tree = {
        "id": ID,
        "runId": RUN,
        "name": "orders",
        "timestamp": "2026-01-01T00:00:00.000Z",
        "batchId": 7,
        "batchDuration": 500,
        "durationMs": {},
        "eventTime": {},
        "stateOperators": [],
        "sources": list(sources),
        "sink": {"description": "noop", "numOutputRows": 3, "metrics": {}},
        "numInputRows": 3,
        "inputRowsPerSecond": 2.0,
        "processedRowsPerSecond": 6.0,
        "observedMetrics": {},
    }
    return {**tree, **other}


def gauges_of(registry: CollectorRegistry) -> dict[str, float]:
    return {
        ",".join((sample.name, *sample.labels.values())): sample.value
        for metric in registry.collect()
        for sample in metric.samples
    }


def test_lag_is_the_distance_from_the_micro_batch_to_the_ends_of_the_partitions() -> None:
    seen = lag(progress_of(SOURCE))
    assert seen == QueryLag("orders", 7, {("t", 0): 7, ("t", 1): 0, ("t", 2): 4}, 9, 3, 2.0, 6.0, 12)
    assert seen.total == 11


def test_lag_takes_offsets_as_text_and_ignores_sources_without_partitions() -> None:
    as_text = {
        **SOURCE,
        "endOffset": json.dumps(SOURCE["endOffset"]),
        "latestOffset": json.dumps(SOURCE["latestOffset"]),
    }
    rate = {**SOURCE, "endOffset": 5, "latestOffset": "6"}
    fresh = {**SOURCE, "endOffset": None, "latestOffset": "null"}
    assert lag(progress_of(as_text, rate, fresh, name=None)).partitions == lag(progress_of(SOURCE)).partitions
    assert lag(progress_of(rate, name=None)).query == ID


def test_throughput_is_known_in_sessions_of_spark_connect_that_report_it_by_source_alone() -> None:
    unknown = {"numInputRows": None, "inputRowsPerSecond": None, "processedRowsPerSecond": None}
    first = {key: value for key, value in SOURCE.items() if key != "inputRowsPerSecond"}
    seen = lag(progress_of(first, SOURCE, **unknown))
    assert (seen.rows, seen.input_rows_per_second, seen.processed_rows_per_second) == (6, 2.0, 12.0)


def test_lag_of_a_topic_that_two_sources_read_is_their_sum() -> None:
    assert lag(progress_of(SOURCE, SOURCE)).total == 22


def test_listener_logs_each_micro_batch_and_its_gauges_end_with_the_query(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    listener = LagListener(registry)
    with caplog.at_level(logging.INFO, "tidelog_spark.progress"):
        listener.onQueryProgress(QueryProgressEvent.fromJson({"progress": progress_of(SOURCE)}))
    assert caplog.messages == ["Query orders, micro-batch 7: 3 rows, 6 rows/s, 11 records behind, 9 to 12 lost"]
    assert gauges_of(registry) == {
        "tidelog_spark_lag_records,orders,t,0": 7,
        "tidelog_spark_lag_records,orders,t,1": 0,
        "tidelog_spark_lag_records,orders,t,2": 4,
        "tidelog_spark_input_rows_per_second,orders": 2,
        "tidelog_spark_processed_rows_per_second,orders": 6,
    }
    without_t2 = {**SOURCE, "latestOffset": {"t": {"0": 10, "1": 6}}}
    listener.onQueryProgress(QueryProgressEvent.fromJson({"progress": progress_of(without_t2)}))
    assert gauges_of(registry)["tidelog_spark_lag_records,orders,t,1"] == 1
    assert "tidelog_spark_lag_records,orders,t,2" not in gauges_of(registry)
    listener.onQueryTerminated(QueryTerminatedEvent(UUID(ID), UUID(RUN), None, None))
    assert gauges_of(registry) == {}
