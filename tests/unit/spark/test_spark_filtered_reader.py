"""A reader to which Spark pushes filters, at a node in memory."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, LessThan

from tidelog.testing import FakeCluster
from tidelog_foundation.records import RecordBatchBuilder
from tidelog_spark.source.options import batch_plan, parse_options
from tidelog_spark.source.reader import FilteredReader, batch_reader
from tidelog_spark.source.schema import spark_schema

WORKER = "pyspark.sql.worker.data_source_pushdown_filters"
BASE_MS = 1_700_000_000_000


def test_reader_with_filters_plans_only_what_they_may_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    at_10 = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=BASE_MS + 10)
    filters: list[Filter] = [
        EqualTo(("partition",), 1),
        LessThan(("offset",), 15),
        GreaterThanOrEqual(("timestamp",), at_10),
    ]
    monkeypatch.setitem(sys.modules, WORKER, sys)
    with FakeCluster() as cluster:
        cluster.create_topic("t", 2)
        for partition in range(2):
            builder = RecordBatchBuilder()
            for offset in range(20):
                builder.append(None, None, (), BASE_MS + (offset ^ 1))
            cluster.append("t", partition, builder.build())
        options = parse_options({"bootstrap.servers": cluster.bootstrap_servers, "subscribe": "t"})
        reader = batch_reader(batch_plan(options), spark_schema(include_headers=False, columns=["offset"]))
        assert isinstance(reader, FilteredReader)
        assert reader.pushFilters(filters) == [filters[2]]
        [planned] = reader.partitions()
        offsets = [offset for batch in reader.read(planned) for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(10, 15))


def test_reader_takes_no_filters_where_spark_pushes_none() -> None:
    options = parse_options({"bootstrap.servers": "a:1", "subscribe": "t"})
    assert not isinstance(batch_reader(batch_plan(options), spark_schema(include_headers=False)), FilteredReader)
