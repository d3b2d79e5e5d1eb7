"""HttpSink on Spark: the records of a batch reach the API in the order of their partitions, or fail the batch."""

from __future__ import annotations

import pytest
from http_api import Api
from pyspark.sql import SparkSession

from tidelog_connect.connectors.connector import Batch
from tidelog_connect.connectors.http.sink import HttpSinkConnector
from tidelog_connect.connectors.registry import Registry


@pytest.mark.compat
def test_batch_is_sent_by_the_executors(spark: SparkSession) -> None:
    rows = spark.range(0, 6, 1, 2).selectExpr(
        "'t' AS topic",
        "CAST(id >= 3 AS INT) AS partition",
        "-id AS offset",
        "CAST(NULL AS STRING) AS key",
        "named_struct('id', id, 'x', CAST(NULL AS STRING)) AS value",
    )
    api = Api()
    try:
        config = {"name": "http", "connector.class": "HttpSink", "topics": "t", "http.api.url": api.url}
        config |= {"max.retries": "1", "retry.backoff.ms": "1", "connection.password": "x"}
        connector = HttpSinkConnector(Registry.installed("1").settings(config))
        api.codes = [503]
        connector.put(rows.coalesce(1), Batch("q", 0))
        sent = [body for _, _, body in api.requests[1:]]
        assert sent == [f'{{"id":{number},"x":null}}' for number in (2, 1, 0, 5, 4, 3)]
        api.codes = [500, 500]
        with pytest.raises(Exception, match=r"of t-0--2 failed: HTTP 500 no \(2 attempts\)"):
            connector.put(rows.coalesce(1), Batch("q", 1))
    finally:
        api.close()
